"""Ending a process with the process that has started it, even if it is stopped."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends.

    A process that looks for its parent now and then cannot do so while it is stopped.
    Only for a parent that forks in a thread which lasts as long as the parent: the
    kernel sends the signal when that *thread* ends. Where there is no prctl, nothing
    happens.
    """
    parent = os.getppid()
    try:
        prctl = ctypes.CDLL(None).prctl
    except AttributeError:  # not Linux
        return
    prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)
