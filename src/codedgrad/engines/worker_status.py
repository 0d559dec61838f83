"""Where the workers are and what they do, for people: `coded.workers`.

| state | the worker |
| --- | --- |
| `starting` | has a process that is not ready for orders yet |
| `ready` | is idle, and waits for orders |
| `working` | computes a part of the step that the root waits for |
| `late` | computes a part of a step that has ended without it |
| `lost` | has no process; the root's log says why, and whether a new one starts |
| `ended` | was ended with the run |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker, as the root knows it.

    Attributes:
        number: Of the worker, from 0.
        host: The name of its host; empty if it is not known.
        pid: The id of its process on that host; None if it has none, or it is not
            known.
        state: `starting`, `ready`, `working`, `late`, `lost` or `ended`.
    """

    number: int
    host: str
    pid: int | None
    state: str


class WorkerTable(tuple[WorkerStatus, ...]):
    """All workers by number; `print` shows them as a table.

    Example:
        >>> one = WorkerStatus(0, "node-a", 4711, "working")
        >>> other = WorkerStatus(1, "node-a", None, "lost")
        >>> print(WorkerTable([one, other]))
        worker  host    pid   state
             0  node-a  4711  working
             1  node-a     -  lost
    """

    __slots__ = ()

    def __str__(self) -> str:
        rows = [("worker", "host", "pid", "state")]
        for worker in self:
            pid = "-" if worker.pid is None else str(worker.pid)
            rows.append((str(worker.number), worker.host or "-", pid, worker.state))
        _, host, pid_, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
        head, *others = rows
        lines = [f"{head[0]}  {head[1]:{host}}  {head[2]:{pid_}}  {head[3]}"]
        lines += [f"{a:>6}  {b:{host}}  {c:>{pid_}}  {d}" for a, b, c, d in others]
        return "\n".join(lines)


@runtime_checkable
class ListsWorkers(Protocol):
    """An engine that knows its workers' processes."""

    @property
    def workers(self) -> WorkerTable:
        """All workers; looking never waits."""
        ...


def workers_of(engine: object, alive: Sequence[bool]) -> WorkerTable:
    """Return the workers of an engine.

    Args:
        engine: The engine.
        alive: Whether each worker is there, for an engine that does not list them.

    Example:
        >>> print(workers_of(object(), [True, False]))
        worker  host  pid  state
             0  -       -  ready
             1  -       -  lost
    """
    if isinstance(engine, ListsWorkers):
        return engine.workers
    states = ("ready" if is_there else "lost" for is_there in alive)
    return WorkerTable(WorkerStatus(n, "", None, s) for n, s in enumerate(states))
