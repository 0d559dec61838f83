"""Ctrl-C and SIGTERM that leave a whole step behind.

While a root waits for a gradient, or before it does, its model has not changed since
the step before: it may stop at once. Between a gradient and the end of the step the
user's code is changing the model: there a signal waits for the end of the step, and a
second one does not.

A process has one handler, and may have several roots, whose loops may be interleaved:

1. If all roots of the main thread may stop, the signal stops them at once.
2. Otherwise every root that comes to the end of a step writes a checkpoint there, and
   the process stops as soon as each root has done so, or may stop at once. A root may
   begin another step meanwhile; that step is not in its checkpoint, and is taken again.
3. A root of another thread stops at the end of its own step. Python gives signals to
   the main thread only, so such a root hears of one only while a root of the main
   thread handles it.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any
from weakref import WeakSet

__all__ = ["Stopping"]

_log = logging.getLogger("codedgrad")
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Stopping:
    """What a root does about both signals while it is installed.

    The signals are taken only where they have their usual effect: a handler of the
    user's own stays, and is the only one called.

    Args:
        may_stop: Whether the root may stop at once.
        save: Writes a checkpoint; called at the end of a step.
    """

    def __init__(self, may_stop: Callable[[], bool], save: Callable[[], None]) -> None:
        self._may_stop = may_stop
        self._save = save
        self._thread = threading.current_thread()
        self._wanted: int | None = None  # the signal that is to be obeyed
        self._is_saved = False  # at the end of a step, since the signal came

    def install(self) -> None:
        """Hear of signals from now on; take them if this is the main thread."""
        self._thread = threading.current_thread()
        _installed.add(self)
        if self._thread is threading.main_thread():
            for number, usual in _USUAL.items():
                if signal.getsignal(number) is usual:
                    _before[number] = signal.signal(number, _handle)

    def remove(self) -> None:
        """Hear of no more signals; the last root gives them back."""
        _installed.discard(self)
        if not _of(threading.main_thread()) and _is_main():
            _give_back()

    def obey(self) -> None:
        """Stop, if that was wanted and nobody is in the middle; the end of a step."""
        wanted = self._wanted
        if wanted is None:
            return
        together = _of(self._thread)
        if all(each is self or each._is_ready() for each in together):
            _forget(together)
            _stop(wanted)
        # the process goes on until the others are at an end of theirs, and by then this
        # root may be in the middle of its next step
        self._save()
        self._is_saved = True

    def _is_ready(self) -> bool:
        return self._is_saved or self._may_stop()


# Weak, so that a root that the user dropped without closing it holds nobody up.
_installed: WeakSet[Stopping] = WeakSet()
_before: dict[signal.Signals, Any] = {}  # what the signals did before they were taken


def _handle(number: int, frame: FrameType | None) -> None:
    """Handle a signal for all roots of the process, in the main thread."""
    here = _of(threading.main_thread())
    if not here:  # all were dropped without being closed
        _give_back()
        signal.raise_signal(number)
        return
    is_second = any(each._wanted is not None for each in here)
    for each in list(_installed):
        each._wanted = number
    if is_second or all(each._may_stop() for each in here):
        _forget(here)
        _stop(number)
    _log.warning("stopping at the end of this step; once more to stop at once")


def _of(thread: threading.Thread) -> list[Stopping]:
    return [each for each in list(_installed) if each._thread is thread]


def _forget(stopped: list[Stopping]) -> None:
    """Let what stops now be used again, as a notebook may."""
    for each in stopped:
        each._wanted, each._is_saved = None, False


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _give_back() -> None:
    """Let the signals do what they did, where no other handler was set meanwhile."""
    while _before:
        number, handler = _before.popitem()
        if signal.getsignal(number) is _handle:
            signal.signal(number, handler)


def _stop(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
