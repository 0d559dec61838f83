"""The MPI engine: `mpirun -n 9 python -m codedgrad.engines.mpi train.py`."""
