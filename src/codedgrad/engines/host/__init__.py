"""A host: the worker processes of one machine, and the memory that they share.

`host` is all of it, as the root or an agent has it. `nursery` is the process that
workers are forked from, `nursery_client` the other end of its socket, `worker` the loop
of a worker process, and `wire` the frames between them. `shared_memory`,
`memory_layout` and `rows` hold parameters and sums; `sum_checks` and `same_job` see
that they are right. `reactor` waits for all sockets, and `cores` says how many cores
there are.
"""
