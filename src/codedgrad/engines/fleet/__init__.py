"""The root's view of all workers, wherever they are.

`fleet` is what engines with worker processes have in common: orders, reports, faults on
purpose. `lives` begins and ends the lives of workers, `worker_handle` is one of them,
`deaths` what is learnt from dead ones, and `lost_workers` what is said of them.
`root_host` is the root's own machine; other machines are in `remote`.
"""
