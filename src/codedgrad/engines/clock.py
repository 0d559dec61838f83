"""The root's clock: it stands still while the root itself is away.

A root that is stopped (SIGSTOP, a paused machine, a stalled disk) cannot hear its
workers, so what it misses must not count against them. The root is away where time has
passed in which its thread neither waited as long as it meant to nor computed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LOOK = 0.5  # seconds that a root waits at a time, so that an absence shows
_AWAY = 0.5  # seconds that are not accounted for, from which on the root was away
_WORTH_SAYING = 5.0  # seconds

_log = logging.getLogger("codedgrad")


class Clock:
    """Seconds since it was made, without the root's absences while a step is open.

    Between steps all time counts: what the root does there, such as an evaluation, no
    worker is waiting for.

    Args:
        read: Reads a clock that never goes back, in seconds.
        busy: Reads the CPU time of the calling thread, in seconds.

    Attributes:
        away: Seconds left out so far.

    Example:
        >>> times = iter([0.0, 1.0, 45.0])
        >>> clock = Clock(lambda: next(times), lambda: 0.0)
        >>> clock.watch()  # after 1 s
        >>> clock.wait(0.5)  # the root means to wait so long, and is back 44 s later
        >>> clock.now(), clock.away
        (1.5, 43.5)
    """

    def __init__(
        self,
        read: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = time.thread_time,
    ) -> None:
        self._read, self._busy = read, busy
        self._begun = read()
        self._is_watched = False
        self._last = self._last_busy = self._waiting = 0.0
        self.away = 0.0

    def now(self) -> float:
        """Return the seconds; never goes back."""
        read = self._read()
        if self._is_watched:
            busy = self._busy()
            idle = read - self._last - max(busy - self._last_busy, 0.0)
            if (away := idle - self._waiting) > _AWAY:
                self._leave_out(away)
            self._last, self._last_busy, self._waiting = read, busy, 0.0
        return read - self._begun - self.away

    def watch(self) -> None:
        """Leave out absences from now on: a step is open."""
        self._last, self._last_busy, self._waiting = self._read(), self._busy(), 0.0
        self._is_watched = True

    def unwatch(self) -> None:
        """Count all time from now on."""
        if self._is_watched:
            self.now()  # an absence just now was within the step
        self._is_watched = False

    def wait(self, seconds: float) -> None:
        """Note that the root is about to wait, and for how long at most."""
        self._waiting = seconds

    def _leave_out(self, seconds: float) -> None:
        self.away += seconds
        if seconds >= _WORTH_SAYING:
            _log.warning(
                "this process was away for %.3g s, stopped or held up; "
                "that does not count for the step's deadline", seconds,
            )  # fmt: skip
