"""Which path a caller may have meant who gave one that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path

_CLOSE = 0.6  # of difflib's ratio: a slip or two in a short name


def did_you_mean(
    path: Path, accept: Callable[[Path], bool] = Path.exists, close: float = _CLOSE
) -> str:
    """Return ` (did you mean runs/first?)` for a path, or nothing if none is near it.

    Args:
        path: That does not exist, or is not what is wanted.
        accept: Whether another path would be what is wanted.
        close: How alike the names must be, from 0 (not at all) to 1.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "first").mkdir()
        >>> did_you_mean(folder / "frist") == f" (did you mean {folder / 'first'}?)"
        True
        >>> did_you_mean(folder / "zoo")
        ''
    """
    nearest = None
    # A name may be too long or hold a null character, a folder may not be readable.
    with suppress(OSError, ValueError):
        nearest = _nearest(path, accept, close)
    return "" if nearest is None else f" (did you mean {nearest}?)"


def _nearest(path: Path, accept: Callable[[Path], bool], close: float) -> Path | None:
    parent: Path | None = path.parent
    if parent == path:  # a root, or a working directory that was removed
        return None
    if not path.parent.is_dir():
        parent = _nearest(path.parent, Path.is_dir, _CLOSE)
    if parent is None:
        return None
    likeness = {
        each: _likeness(path, each)
        for each in sorted(parent.iterdir())
        if not each.name.startswith(".") and each != path and accept(each)
    }
    nearest = max(likeness, key=likeness.__getitem__, default=None)
    return nearest if nearest is not None and likeness[nearest] >= close else None


def _likeness(one: Path, other: Path) -> float:
    # By their endings alone, none.parquet and all.parquet would be alike.
    pairs = ((one.name, other.name), (one.stem, other.stem))
    return min(SequenceMatcher(None, *pair).ratio() for pair in pairs)
