"""The MPI engine: one process of `mpirun` on every machine is its agent."""
