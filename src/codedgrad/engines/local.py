r"""The local engine: worker processes on this machine, numbers in shared memory.

```text
  root ------------ nursery               orders, reports    sockets, one a worker
   |  \               | fork              parameters, sums   shared memory
   |   \----- worker 0                    a death            the end of its stream
   \--------- worker 1 ...
```

Workers are forked from a process that has imported everything once, so they start, and
come back, in milliseconds. See `host` for the parts it is made of.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from codedgrad.delays import Times
from codedgrad.engines.engine import MakeJob
from codedgrad.engines.host.file_descriptors import enough_descriptors
from codedgrad.engines.host.fleet import Fleet
from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS, Memory, MemoryShape
from codedgrad.engines.host.nursery_client import (
    Children,
    Restarts,
    packed,
    script_arguments,
)
from codedgrad.engines.host.nursery_messages import Born, Died, Failed, Prepare
from codedgrad.engines.host.process_title import script_name
from codedgrad.engines.host.rows import Rows
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.engines.host.wire import Channel, Sent
from codedgrad.engines.host.worker_handle import WorkerHandle
from codedgrad.errors import EngineFailed, JobFailed

_log = logging.getLogger("codedgrad")
_SLOW_START = 10.0  # seconds until it is said what is waited for
_NAP = 3600.0  # seconds to wait at a time; a selector takes no more than 24 days


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

    Attributes:
        refused: What workers said that could not be meant, counted by reason.
    """

    name = "local"

    def __init__(
        self,
        *,
        open_segments: int = OPEN_SEGMENTS,
        folder: Path | None = None,
        preload: Sequence[str] = (),
        interrupts: bool = False,
    ) -> None:
        super().__init__(
            open_segments=open_segments, preload=preload, interrupts=interrupts
        )
        self._folder = folder
        self._restarts = Restarts()
        with enough_descriptors(1):
            self._held = _Resources()
        self._end = weakref.finalize(self, self._held.close)

    def close(self) -> None:
        """End all processes and let go of the memory."""
        self._end()

    @property
    def nursery(self) -> int:
        """The process id of the nursery."""
        return self._children.pid

    @property
    def cores(self) -> int:
        """Cores that the workers may use, all of them together."""
        return len(os.sched_getaffinity(0))

    @property
    def shape(self) -> MemoryShape:
        """What the shared memory has room for."""
        return self._memory.shape

    @property
    def _is_open(self) -> bool:
        return self._end.alive

    def _prepare_all(
        self, make: MakeJob, workers: int, delays: Times, parts: int
    ) -> None:
        job = packed(make)
        # A nursery that is started again must not see what the script sets meanwhile.
        self._environment = dict(os.environ)
        shape = MemoryShape.of(self._layout, workers, self.capabilities.rows_per_worker)
        shared = Shared(shape.size, shape.least, self._folder)
        self._held.memory = self._memory = Memory(shared, shape)
        self._shared_fd = shared.fd
        self._rows = Rows(self._memory)
        self._prepare = Prepare(
            script=script_name(),
            preload=self._preload,
            job=job,
            shape=shape,
            fixed=delays.fixed.T.tolist(),
            part=delays.part(parts).T.tolist(),
            interrupts=self.capabilities.interrupts_part,
            stretch=[] if delays.stretch is None else delays.stretch.T.tolist(),
            argv=script_arguments(),
        )
        self._handles = [WorkerHandle(number) for number in range(workers)]
        self._held.handles = self._handles
        self._new_nursery()

    def _keep(
        self, parameters: NDArray[Any], changed: Sequence[tuple[int, int]] | None
    ) -> None:
        in_hand = {h.version for h in self._handles if h.in_hand is not None}
        self._version = self._memory.publish(parameters, in_hand, changed)

    def _place(self, handle: WorkerHandle, row: int, step: int) -> tuple[int, int]:
        return row, self._version

    def _arrive(self, handle: WorkerHandle, sent: Sent) -> None:
        if self._rows.sent(handle.worker, sent.message, sent.cuts):
            self._hand_out(handle, sent)
        else:
            self._unknown(handle, sent)

    def _wait_for_something(self, timeout: float) -> None:
        ready = self._held.selector.select(min(timeout, _NAP))
        if any(key.data is None for key, _ in ready):
            self._hear_nursery()
        for key, mask in ready:
            handle = key.data
            if handle is not None:
                if mask & selectors.EVENT_WRITE and handle.channel is not None:
                    handle.channel.flush()
                    self._has_sent(handle)
                self._hear(handle)

    def _new_nursery(self) -> None:
        self._restarts.begin(self.now())
        self._held.children = self._children = Children(self._environment)
        self._held.selector.register(
            self._children.channel.link, selectors.EVENT_READ, None
        )
        self._children.prepare(self._prepare, self._shared_fd)

    def _hear_nursery(self) -> None:
        children = self._children
        for notice in children.notices():
            match notice:
                case Born(threads):
                    if threads > 1:
                        _log.warning(
                            "importing the job started %d threads, which workers "
                            "will not have; import such libraries inside the job",
                            threads - 1,
                        )
                case Failed(text):
                    raise JobFailed("the job, as it was unpacked", text)
                case Died(worker, life, code):
                    handle = self._handles[worker]
                    if handle.life == life and handle.channel is not None:
                        self._hear(handle)  # what it said before
                        self._lose(handle)
                    self._died(worker, life, code)
        if not children.channel.is_open:
            self._held.selector.unregister(children.channel.link)
            # Ends its workers as well: without a nursery their deaths are not reported,
            # and stopped ones would outlive the root.
            children.close()
            if not self._started:
                problem = "the process that forks the workers could not start"
                raise EngineFailed(problem, "reading what it has printed")
            _log.warning(
                "the process that forks the workers has died, and they with it; "
                "all start again"
            )
            for handle in self._handles:
                self._hear(handle)  # what it said before
                self._lose(handle)
                cause = "the process that forks the workers has died"
                self._losses.explain_all(handle.worker, cause)
            self._new_nursery()

    def _spawn(self, handle: WorkerHandle) -> None:
        if handle.channel is not None:
            return
        faults = self._faults.for_workers()
        channel = self._children.spawn(handle.worker, handle.life + 1, faults)
        handle.begin(channel, self.now())
        self._held.selector.register(channel.link, selectors.EVENT_READ, handle)

    def _forget_channel(self, handle: WorkerHandle) -> None:
        if isinstance(handle.channel, Channel):
            self._held.selector.unregister(handle.channel.link)

    def _signal(self, handle: WorkerHandle, life: int, number: signal.Signals) -> None:
        if handle.life != life or handle.channel is None:
            return
        if handle.pid:  # its nursery may have died, and we have not heard of it yet
            _kill(handle.pid, number)
        else:
            self._children.signal(handle.worker, life, number)

    def _has_sent(self, handle: WorkerHandle) -> None:
        """Look out for room in a worker's pipe only while something waits for it."""
        channel = handle.channel
        if not isinstance(channel, Channel):
            return  # it has none
        wanted = selectors.EVENT_READ
        if channel.is_full:
            wanted |= selectors.EVENT_WRITE
        if self._held.selector.get_key(channel.link).events != wanted:
            self._held.selector.modify(channel.link, wanted, handle)


def _kill(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # dead, and not heard of yet
        os.kill(pid, number)


class _Resources:
    """What must be given back, also if the engine is forgotten or Python ends."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.children: Children | None = None
        self.handles: list[WorkerHandle] = []
        self.memory: Memory | None = None
        self._owner = os.getpid()

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a fork of the root: none of this is its own
        for handle in self.handles:
            if handle.channel is not None:
                handle.channel.close()
        self.selector.close()
        if self.children is not None:
            self.children.close()
        if self.memory is not None:
            self.memory.close()
