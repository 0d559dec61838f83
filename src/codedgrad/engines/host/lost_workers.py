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

    def explain_all(self, worker: int, cause: str) -> bool:
        """Write the lines of all losses of a worker; return whether there were any."""
        lives = [life for one, life in self._unsaid if one == worker]
        return any([self.explain(worker, life, cause) for life in lives])

    def discard(self, worker: int, life: int) -> None:
        """Write no line: the loss ends the run, and the exception says so."""
        self._unsaid.pop((worker, life), None)

    def back(self, worker: int, pid: int, host: str, at: float) -> None:
        """Write that a worker has a process again, or for the first time."""
        where = f"(pid {pid} on {host})"
        since = self._since.pop(worker, None)
        line = f"worker {worker} has joined {where}"
        if since is not None:
            line = f"worker {worker} is back {where} after {at - since:.2g} s"
        self._returns[worker] = line
        self._tell_return(worker)

    def _tell_return(self, worker: int) -> None:
        """Write the line of a return, if no loss of the worker is still to be told."""
        if worker in self._returns and all(one != worker for one, _ in self._unsaid):
            _log.warning("%s", self._returns.pop(worker))
