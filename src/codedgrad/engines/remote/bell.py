"""Bells, by which processes of one host wake each other.

MPI gives no sign when something arrives, so whoever expects something has to look again
and again. A process that has sent something to another of its host rings: that one can
sleep until then.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress

from codedgrad.engines.host.nearby import Where, open_there, where_is

_COARSE = 1e-3  # seconds: `select.poll` waits no shorter
_MANY = 1 << 16  # rings that are heard at a time


class Bell:
    """A process's own bell.

    Attributes:
        fd: To wait at, with other things.

    Example:
        >>> bell = Bell()
        >>> rope = Rope.reach(bell.where)
        >>> bell.wait(0.0)
        False
        >>> rope.ring()
        >>> bell.wait(60.0), bell.was_rung(), bell.was_rung()
        (True, True, False)
        >>> rope.close(), bell.close()
        (None, None)
    """

    def __init__(self) -> None:
        self.fd, self._rope = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._rope, False)
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN)

    @property
    def where(self) -> Where | None:
        """Where others of this host find it; None: they cannot."""
        return where_is(self._rope)

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it is rung; for a very short time only as long."""
        if seconds < _COARSE:
            time.sleep(seconds)
            seconds = 0.0
        return bool(self._poll.poll(1e3 * seconds))

    def was_rung(self) -> bool:
        """Whether it was rung since this was asked last."""
        with suppress(BlockingIOError):
            return bool(os.read(self.fd, _MANY))
        return False

    def close(self) -> None:
        """Take it down; more than once is harmless."""
        if self.fd >= 0:
            os.close(self.fd)
            os.close(self._rope)
            self.fd = self._rope = -1


class Rope:
    """Rings the bell of another process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def reach(cls, where: Where | None) -> Rope | None:
        """Return a rope of a bell; None if it is not on this host."""
        fd = open_there(where, os.O_WRONLY | os.O_NONBLOCK)
        return None if fd is None else cls(fd)

    def ring(self) -> None:
        """Wake whoever waits there; never waits itself."""
        with suppress(BlockingIOError, BrokenPipeError):  # rung enough; or gone
            os.write(self._fd, b"!")

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)
