"""The recorded times that a scenario replays, and what is known beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from codedgrad.delays import Matrix, Replay, read_matrix
from codedgrad.delays.bundled import located


@dataclass(frozen=True, slots=True, eq=False)
class TimesToReplay:
    """Seconds by step and worker, and what is known of where they were taken.

    Attributes:
        matrix: Seconds for the uncoded load.
        share: Of those, what grows with the load; None if it is not known.
        latency: Seconds that a message takes; they are not in `matrix`.
        scheme: What the times were taken with, in words; empty if it is not known.
        notes: What the reader should know before using them, in sentences.
    """

    matrix: Matrix
    share: float | None = None
    latency: float = 0.0
    scheme: str = ""
    notes: tuple[str, ...] = ()


ReadTimes: TypeAlias = Callable[[str, float | None], TimesToReplay]
"""Reads the times at a path; the share that grows with the load is given if known."""


def read_recording(path: str, share: float | None = None) -> TimesToReplay:
    """Read a recording; this layer does not know how to read runs and traces."""
    return TimesToReplay(read_matrix(located(path)))


def with_share(
    table: Mapping[str, object], known: dict[str, TimesToReplay], read: ReadTimes
) -> dict[str, object]:
    """Return a table of delays with the share that its recording is known to have.

    Args:
        table: Of any kind; one that is not about a recording is returned as it is.
        known: What was read, by path; added to.
        read: Reads the times at a path.
    """
    path = table.get("path")
    if table.get("kind") != Replay.kind or not isinstance(path, str):
        return dict(table)
    share = table.get("share")
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        share = None  # none was given, or `build` refuses it
    known[path] = times = read(path, share)
    if times.share is None:
        return dict(table)
    return {"kind": Replay.kind, "path": path, "share": times.share, **table}
