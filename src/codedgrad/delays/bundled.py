"""The recordings that come with codedgrad; `traces/ORIGIN.md` says whose they are."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(__file__).parent / "traces"


def traces() -> dict[str, Path]:
    """Return the files by their short names.

    `AR`: 44 steps of 4 workers, one of them about 2.25 times as slow as the others in
    every step. `SE`: 43 steps of 32 workers with uneven sequence lengths.

    Example:
        >>> sorted(traces())
        ['AR', 'SE']
    """
    return {
        name: _FOLDER / f"bytedance-{name}-dp-compute-seconds.csv"
        for name in ("AR", "SE")
    }


def located(path: str | os.PathLike[str]) -> Path:
    """Return the bundled file if `path` is exactly its name, else `path` itself."""
    name = os.fspath(path)
    return traces().get(name, Path(name))
