"""What `mpirun ... python -m codedgrad.engines.mpi train.py` runs; see `launch`."""

from codedgrad.engines.mpi.launch import main

if __name__ == "__main__":
    main()
