"""Ctrl-C and SIGTERM that leave a whole step behind.

While the root waits for a gradient, or before it does, nothing has changed since the
step before: it may stop at once. Between a gradient and the end of the step the user's
code is changing the model: there a signal waits for the end of the step, and a second
one does not.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["Stopping"]

_log = logging.getLogger("codedgrad")
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Stopping:
    """Handles both signals while it is installed; only where nobody else does.

    Args:
        may_stop: Whether it may stop at once.
    """

    def __init__(self, may_stop: Callable[[], bool]) -> None:
        self._may_stop = may_stop
        self._wanted: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Take the signals that have their usual effect; in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, usual in _USUAL.items():
            if signal.getsignal(number) is usual:
                self._before[number] = signal.signal(number, self._handle)

    def remove(self) -> None:
        """Give the signals back."""
        while self._before:
            number, handler = self._before.popitem()
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def obey(self) -> None:
        """Stop, if that was wanted; the end of a step."""
        if self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            _stop(wanted)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._may_stop() or self._wanted is not None:
            self._wanted = None
            _stop(number)
        self._wanted = number
        _log.warning("stopping at the end of this step; once more to stop at once")


def _stop(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
