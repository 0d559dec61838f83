"""The worker processes of one machine, and the memory they share with root or agent.

`nursery` is the process that workers are forked from, `nursery_client` the other end of
its socket, `worker` the loop of a worker process. `shared_memory`, `memory_layout` and
`rows` hold parameters and sums; `sum_checks` and `same_job` see that they are right.
`fleet` is what all engines with worker processes do: lives, back-off, orders that wait.
`worker_handle` is its view of one worker, `deaths` what it learns from dead ones, and
`wire` the frames between them. `nearby` opens what another process of the machine has.
"""
