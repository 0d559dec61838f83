"""Ctrl-C and SIGTERM that leave a whole step behind; SIGUSR1 that only asks for it.

While a root waits for a gradient, or before it does, its model has not changed since
the step before: it may stop at once. Between a gradient and the end of the step the
user's code is changing the model: there a signal waits for the end of the step.

A process has one handler, and may have several roots, whose loops may be interleaved:

1. If all roots of the main thread may stop, the signal stops them at once.
2. Otherwise every root that comes to the end of a step writes a checkpoint there, and
   the process stops as soon as each root has done so, or may stop at once. A root may
   begin another step meanwhile; that step is not in its checkpoint, and is taken again.
3. A root of another thread stops at the end of its own step. Python gives signals to
   the main thread only, so such a root hears of one only while a root of the main
   thread handles it.
4. SIGUSR1, the warning that a scheduler sends minutes before it stops a job, asks every
   root for a checkpoint and stops none. A root of the main thread that may stop writes
   it at once, within the handler, because a step may wait for longer than the warning
   is early. Other roots write it where they call `heed`: while they wait, or at the end
   of the step.
5. The handler interrupts Python code anywhere, also while a checkpoint is written or
   workers are ended. A root says so by `busy`, and does what signals want when it is
   through.
6. A second Ctrl-C stops the root wherever it is, for its user has seen the first one
   wait. A second SIGTERM waits as the first one does: schedulers send one to every
   process of a job, shells pass theirs on, so that a root gets two within milliseconds,
   and the second must not cost the checkpoint that the first leads to.
7. Ctrl-C raises `KeyboardInterrupt`, as it does in any script. In a script it is of a
   class that is also a `SystemExit`: uncaught, it ends the process with exit code 130
   and no traceback, because the root has said in one line where it stopped. In a
   notebook or at a prompt a `SystemExit` could end the session, so it is none there.
"""

from __future__ import annotations

import builtins
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn
from weakref import WeakSet

from codedgrad.errors import InvalidCheckpoint

_log = logging.getLogger("codedgrad")
_USUAL = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGUSR1: signal.SIG_DFL,
}
_REPEATED = 5.0
"""Seconds after a stop in which another SIGTERM is taken for the same one. It must not
raise a second time while the first exception is on its way to the root's `with`; after
that a process whose user caught the first must still be one that SIGTERM ends. A guess:
twins come within milliseconds, schedulers kill after 30 s or more."""


class Terminated(SystemExit):
    """SIGTERM has stopped the root."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C has stopped the root."""


class InterruptedScript(SystemExit, Interrupted):
    """Ctrl-C has stopped the root of a script: uncaught, it prints no traceback."""


def is_interactive() -> bool:
    """Whether a person types what this process runs: at a prompt, in a notebook."""
    return hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")


class Stopping:
    """What a root does about the signals while it is installed.

    The signals are taken only where they have their usual effect: a handler of the
    user's own stays, and is the only one called.

    Attributes:
        may_stop: Whether the root may stop at once; it may before it has begun.
        save: Writes a checkpoint, and returns whether there is a place for it; called
            only where the root may stop.
    """

    def __init__(self) -> None:
        self.may_stop: Callable[[], bool] = lambda: True
        self.save: Callable[[], bool] = lambda: True  # nothing has happened yet
        self._thread = threading.current_thread()
        self._wanted: int | None = None  # the signal that is to be obeyed
        self._is_saved = False  # at the end of a step, since the signal came
        self._is_asked = False  # for a checkpoint, by a warning
        self._is_busy = False
        self._is_obeying = False
        self._stopped_at: float | None = None  # monotonic; since the last end of a step

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

    def ask(self) -> None:
        """Write a checkpoint: at once if the root may stop, else when it next may.

        To be called in the root's own thread.
        """
        self._is_asked = True
        self.heed()

    def heed(self) -> None:
        """Write the checkpoint that was asked for, if the root may stop here."""
        if self._is_asked and not self._is_busy and self.may_stop():
            self._is_asked = False
            try:
                there = self.save()
            except InvalidCheckpoint as error:  # the root is not to stop yet
                _log.warning("checkpoint requested; %s", error)
                return
            if there:
                _log.info("checkpoint requested, and written")
            else:
                _log.warning("checkpoint requested, but the run has no run_dir")

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Let signals that come in this block wait for the block's end."""
        before, self._is_busy = self._is_busy, True
        try:
            yield
        finally:
            self._is_busy = before
        self.heed()
        if self._wanted is not None and not self._is_busy and not self._is_obeying:
            self.obey()

    def obey(self) -> None:
        """Do what signals wanted; called at the end of a step.

        Stops if that was wanted and no other root is in the middle of a step.
        """
        self._stopped_at = None
        self.heed()
        wanted = self._wanted
        if wanted is None:
            return
        together = _of(self._thread)
        if all(each is self or each._is_ready() for each in together):
            _stop(wanted, [self, *together])
        # the process goes on until the others are at an end of theirs, and by then this
        # root may be in the middle of its next step
        self._is_obeying = True
        try:
            self.save()
        finally:
            self._is_obeying = False
        self._is_saved = True

    def _is_ready(self) -> bool:
        return self._is_saved or (self.may_stop() and not self._is_busy)


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
    if number == signal.SIGUSR1:
        for each in list(_installed):
            each._is_asked = True  # a root of another thread heeds it there
        for each in here:
            each.heed()
        return
    is_waiting = any(each._wanted is not None for each in here)
    stopped = [each._stopped_at for each in here if each._stopped_at is not None]
    for each in list(_installed):
        each._wanted = number
    if number == signal.SIGINT and (is_waiting or stopped):
        _stop(number, here)
    if any(each._is_busy for each in here):
        return  # which ends soon, and then obeys
    if stopped and time.monotonic() - max(stopped) < _REPEATED:
        return  # closing the root obeys
    if stopped or all(each.may_stop() for each in here):
        _stop(number, here)
    if not is_waiting:
        _log.warning("stopping at the end of this step; Ctrl-C to stop at once")


def _of(thread: threading.Thread) -> list[Stopping]:
    return [each for each in list(_installed) if each._thread is thread]


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _give_back() -> None:
    """Let the signals do what they did, where no other handler was set meanwhile."""
    while _before:
        number, handler = _before.popitem()
        if signal.getsignal(number) is _handle:
            signal.signal(number, handler)


def _stop(number: int, roots: list[Stopping]) -> NoReturn:
    now = time.monotonic()
    for each in roots:  # they may be used again, as in a notebook
        each._wanted, each._is_saved, each._stopped_at = None, False, now
    if number != signal.SIGINT:
        raise Terminated(128 + number)
    raise Interrupted if is_interactive() else InterruptedScript(128 + number)
