r"""The local engine: worker processes on this machine, numbers in shared memory.

```text
  root ------------ nursery               orders, reports    sockets, one a worker
   |  \               | fork              parameters, sums   shared memory
   |   \----- worker 0                    a death            the end of its stream
   \--------- worker 1 ...
```

Workers are forked from a process that has imported everything once, so they start, and
come back, in milliseconds. It is one host, in the root's own process: see `host` for
the parts it is made of.
"""

from __future__ import annotations

from codedgrad.engines.fleet.fleet import Fleet
from codedgrad.engines.host.cores import usable_cores
from codedgrad.engines.host.memory_layout import MemoryShape
from codedgrad.engines.host.nursery_messages import Setup
from codedgrad.engines.host.reactor import Reactor


class Local(Fleet):
    """Workers as processes of this machine.

    Args:
        open_segments: Sums that a worker may hold in a step. Memory is used by those
            that it does hold; in a `folder` there must be room for all.
        folder: A file system in memory for what is shared; None: none is needed on
            Linux, elsewhere the usual one.
        preload: Modules that workers will import anyway; imported once for all.
        interrupts: Whether `delays` end when their part is abandoned. A job that
            computes cannot be interrupted, so this is for measurements: what it would
            be like if it could.
        threads: That every worker computes with; `"auto"`: the cores that this process
            may use, divided by the workers.

    Attributes:
        refused: What workers said that could not be meant, counted by reason.
    """

    name = "local"

    @property
    def nursery(self) -> int:
        """The process id of the nursery."""
        assert self._root_host is not None  # it is started
        return self._root_host.nursery

    @property
    def cores(self) -> int:
        """Cores that the workers may use, all of them together."""
        return usable_cores()

    @property
    def shape(self) -> MemoryShape:
        """What the shared memory has room for."""
        return self._memory.shape

    def _open(self, setup: Setup, workers: int) -> None:
        self._reactor = Reactor()
        self._held.stack.callback(self._reactor.close)
        self._begin_at_root(setup, list(range(workers)), 0, usable_cores(), inbox=0)
        self._seat_workers(workers)
