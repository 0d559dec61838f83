"""The last steps of a run, in a checkpoint: what was learnt of the workers.

Schemes learn from the steps that a coordinator remembers, 64 at most. So a checkpoint
holds the trace of that many, bounded in bytes as well, and the root that goes on with
the run lets its estimators learn from them once more. A million steps cost it no more
than 64. An estimator that had weighed more of them begins with these. The state of
estimators is not written, so a new estimator needs no file format of its own.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from codedgrad.core import History, Patience, Scheme
from codedgrad.errors import InvalidTrace
from codedgrad.trace.format import Entry, Header, encode, other_version
from codedgrad.trace.metrics import rebuilt
from codedgrad.trace.read import Trace
from codedgrad.trace.write import Chunk, Steps

_STEPS = 64  # as many as a history remembers
_SIZE = 16 << 20  # bytes of lines


class Recent:
    """Keeps the lines of the last steps.

    Args:
        header: Of the life.
        entries: Of the steps that an earlier life has kept.
    """

    def __init__(self, header: Header, entries: Iterable[Entry] = ()) -> None:
        self._header = header
        self._chunks: deque[Chunk] = deque(maxlen=_STEPS)
        steps = Steps()
        for entry in entries:
            if chunk := steps.add(entry.event, entry.commands):
                self.add(chunk)

    def add(self, chunk: Chunk) -> None:
        """Take the lines of a step, or more of the last one."""
        if chunk.step is None and self._chunks:
            last = self._chunks.pop()
            chunk = last._replace(lines=last.lines + chunk.lines)
        self._chunks.append(chunk)
        while sum(len(each.lines) for each in self._chunks) > _SIZE:
            self._chunks.popleft()

    def packed(self) -> dict[str, Any]:
        """Return all of it for a checkpoint: text, and an array of bytes."""
        before = self._chunks[0].preface if self._chunks else b""
        lines = zlib.compress(before + b"".join(c.lines for c in self._chunks), 1)
        return {
            "header": encode(self._header).decode(),
            "lines": np.frombuffer(lines, dtype=np.uint8).copy(),
        }


def relearn(
    packed: Mapping[str, Any],
    step: int,
    header: Header,
    scheme: Scheme,
    patience: Patience,
) -> tuple[History, tuple[Entry, ...]]:
    """Return the history of the steps that an earlier life kept, and those steps.

    Args:
        packed: By `Recent.packed`.
        step: The next step; recorded events of it, or of later steps, are left out.
        header: Of the life that is to go on.
        scheme: It goes on with this scheme, which looks at each step as if it were to
            plan it.
        patience: Of that life.

    Raises:
        InvalidTrace: If they were steps of other workers or of another scheme, are in
            another version of the format, or contradict themselves.
    """
    try:
        was = msgspec.json.decode(packed["header"], type=Header)
        if problem := other_version(was):
            raise InvalidTrace("the trace of the last steps", problem)
        for name in ("scheme", "workers", "parts", "driver", "capabilities"):
            if getattr(was, name) != getattr(header, name):
                problem = f"are of another life: its {name} was {getattr(was, name)}"
                raise InvalidTrace("the last steps", problem)
        decode = msgspec.json.Decoder(Entry).decode
        every = tuple(decode(line) for line in _unpacked(packed).splitlines())
        entries = Trace(header, every).before(step)
        return rebuilt(header, entries, scheme, patience), entries
    except InvalidTrace:
        raise
    except Exception as error:  # whatever a scheme of another version makes of them
        problem = f"contradict themselves ({type(error).__name__}: {error})"
        raise InvalidTrace("the last steps", problem) from error


def _unpacked(packed: Mapping[str, Any]) -> bytes:
    unpacking = zlib.decompressobj()
    lines = unpacking.decompress(bytes(packed["lines"]), 2 * _SIZE)
    if not unpacking.eof:
        raise InvalidTrace("the last steps", f"are more than {_SIZE >> 20} MB")
    return lines
