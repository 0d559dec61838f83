"""One line in the log for every worker that is lost, and one for its return.

The end of a worker's stream and the cause of its death come from two places. A loss
waits here for its cause, `LONGEST_WAIT` seconds at most, so that one line has both. The
kernel may take longer to end a large process than a new one takes to start: a return
then waits for the line about the loss.

Both lines are warnings. A script that has not set up logging prints warnings and leaves
out the rest, and a return is worth as much to its reader as the loss. A worker that
dies again and again is started less and less often, which bounds the number of lines.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_WAIT = 1.0
"""Seconds to wait for the cause of a loss, after which it is told without."""

UNKNOWN = "its process is gone, and why was not reported"
"""The cause of such a loss."""

_log = logging.getLogger("codedgrad")


@dataclass(frozen=True, slots=True)
class LostWorker:
    """The end of a life of a worker.

    Attributes:
        worker: Its number.
        pid: Of the process that ended; 0 if it was never ready.
        host: Where that was.
        moment: When, such as `in step 7`.
        outlook: What comes next, such as `a new process is started`.
        at: Seconds, on the engine's clock.
        crash: What the worker itself has reported of its end; empty: nothing.
    """

    worker: int
    pid: int
    host: str
    moment: str
    outlook: str
    at: float
    crash: str = ""


class LostWorkerLog:
    """Writes the lines.

    Example:
        >>> losses = LostWorkerLog()
        >>> lost = LostWorker(2, 4711, "node-a", "in step 7", "it stays away", 3.0)
        >>> losses.lost(1, lost)
        >>> losses.explain(2, 1, "ended by SIGKILL")  # now the line is written
        True
        >>> losses.explain(2, 1, "ended by SIGKILL")
        False
    """

    def __init__(self) -> None:
        self._unsaid: dict[tuple[int, int], LostWorker] = {}  # by worker and life
        self._since: dict[int, float] = {}  # by worker, when it was last there
        self._returns: dict[int, str] = {}  # by worker, a line that waits for another

    def lost(self, life: int, loss: LostWorker) -> None:
        """Note that a life of a worker is over."""
        self._returns.pop(loss.worker, None)  # it was back, and is lost again
        self._unsaid[loss.worker, life] = loss
        self._since.setdefault(loss.worker, loss.at)

    def explain(self, worker: int, life: int, cause: str) -> bool:
        """Write the line of a loss, unless it was written; return whether it was now.

        What the worker has reported itself says more than the exit code that follows
        from it, and is told instead.
        """
        loss = self._unsaid.pop((worker, life), None)
        if loss is None:
            return False
        where = f" (pid {loss.pid} on {loss.host})" if loss.pid else ""
        _log.warning(
            "worker %d%s was lost %s: %s; %s",
            worker, where, loss.moment, loss.crash or cause, loss.outlook,
        )  # fmt: skip
        self._tell_return(worker)
        return True

    def explain_together(
        self, lives: Sequence[tuple[int, int]], cause: str, outlook: str
    ) -> None:
        """Write one line for losses, as (worker, life), that have the same cause."""
        losses = [self._unsaid.pop(life) for life in lives if life in self._unsaid]
        if not losses:
            return
        first, workers = losses[0], [loss.worker for loss in losses]
        where = f" on {first.host}" if first.host else ""
        _log.warning(
            "%s%s %s lost: %s; %s",
            _named(workers), where, _were(workers), cause, outlook,
        )  # fmt: skip
        for worker in workers:
            self._tell_return(worker)

    def discard(self, worker: int, life: int) -> None:
        """Write no line: the loss ends the run, and the exception says so."""
        self._unsaid.pop((worker, life), None)

    def back(self, workers: Sequence[int], pid: int, host: str, at: float) -> None:
        """Write that workers have a process again, or for the first time.

        Args:
            workers: Of one host, which have come together.
            pid: Of the process of the first; it is named where there is no other.
            host: The name of the machine.
            at: Seconds, on the engine's clock.
        """
        where = f"(pid {pid} on {host})" if len(workers) == 1 else f"(on {host})"
        gone = [self._since.pop(worker) for worker in workers if worker in self._since]
        verb = "has" if len(workers) == 1 else "have"
        line = f"{_named(workers)} {verb} joined {where}"
        if gone:
            verb = "is" if len(workers) == 1 else "are"
            line = f"{_named(workers)} {verb} back {where} after {at - min(gone):.2g} s"
        self._returns[workers[0]] = line
        self._tell_return(workers[0])

    def _tell_return(self, worker: int) -> None:
        """Write the line of a return, if no loss of the worker is still to be told."""
        if worker in self._returns and all(one != worker for one, _ in self._unsaid):
            _log.warning("%s", self._returns.pop(worker))


def _named(workers: Sequence[int]) -> str:
    numbers = ", ".join(map(str, workers))
    return f"worker {numbers}" if len(workers) == 1 else f"workers {numbers}"


def _were(workers: Sequence[int]) -> str:
    return "was" if len(workers) == 1 else "were"
