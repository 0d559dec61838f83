"""Warnings that a host will be taken away, from launchers that know it in advance.

An engine whose launcher is told of preemptions has a method `notices` (`GivesNotice`).
The trainer asks about once a second while a step waits, and at the end of every step.
It writes a checkpoint if the root's own host goes. The loss of a worker's host is an
ordinary event, and needs no more than a line in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class PreemptionNotice:
    """A host will be taken away.

    Attributes:
        host: Its name.
        seconds: Until then; None: the launcher does not say.
        reason: In a few words.
        is_root: Whether it is the host of the root.

    Example:
        >>> print(PreemptionNotice("node-7", 30.0, "spot", is_root=True))
        the root's host node-7 will be taken away in 30 s (spot)
    """

    host: str
    seconds: float | None
    reason: str
    is_root: bool

    def __str__(self) -> str:
        what = "the root's host" if self.is_root else "host"
        when = "soon" if self.seconds is None else f"in {self.seconds:.0f} s"
        return f"{what} {self.host} will be taken away {when} ({self.reason})"


@runtime_checkable
class GivesNotice(Protocol):
    """An engine that hears in advance of hosts that will be taken away."""

    def notices(self) -> list[PreemptionNotice]:
        """Return the notices that came since the last call; never waits."""
        ...


def notices_of(engine: object) -> list[PreemptionNotice]:
    """Return the new notices of an engine; none from one that gives none."""
    return engine.notices() if isinstance(engine, GivesNotice) else []
