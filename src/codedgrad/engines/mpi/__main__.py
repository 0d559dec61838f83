"""`mpirun -n 9 python -m codedgrad.engines.mpi train.py arguments`."""

from codedgrad.engines.mpi.launch import main

if __name__ == "__main__":
    main()
