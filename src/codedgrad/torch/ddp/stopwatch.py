"""The clock of one worker's own steps, told when its gradients come and go."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock
from time import perf_counter

from codedgrad.delays.matrix import SHORTEST


class StepStopwatch:
    """Takes the seconds of one worker's own steps; any thread may tell it of a bucket.

    Args:
        clock: Seconds that never go back.

    Example:
        >>> times = iter([0.0, 5.0, 5.5, 6.0])
        >>> watch = StepStopwatch(lambda: next(times))
        >>> watch.forward_called(training=True)  # at 5
        >>> watch.forward_began()  # at 5.5: buffers were shared
        >>> watch.bucket_ready(first=True, last=True)  # at 6
        0.5
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._lock = Lock()
        self._over = self._begun = clock()
        self._called: float | None = None
        self._is_first = True
        self._has_worked = False

    def forward_called(self, training: bool) -> None:
        """Note that DDP's forward is about to share; the first step begins here."""
        self._called = self._clock()
        if training:
            self._over = self._called if self._is_first else self._over
            self._is_first, self._has_worked = False, True

    def forward_began(self) -> None:
        """Note that the model's own forward begins; the sharing was nobody's own."""
        if self._called is not None:
            self._over += self._clock() - self._called
            self._called = None

    def bucket_ready(self, first: bool, last: bool) -> float | None:
        """Note that gradients are ready; with the last return the step's seconds.

        They are NaN if there was no forward: a worker out of data only waits in
        `join()`.
        """
        now = self._clock()
        if first:  # all of the step before is over, nothing of this one is
            self._begun = self._over
        if not last:
            return None
        seconds = max(now - self._begun, SHORTEST) if self._has_worked else math.nan
        self._has_worked = False
        return seconds

    def bucket_reduced(self) -> None:
        """Note that an all-reduce is over; the last to be over ends the step."""
        with self._lock:
            self._over = max(self._over, self._clock())
