"""A job that writes where it must not ends its own worker, and spoils no sum."""

import ctypes
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedgrad.engines import Engine, Local, train
from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS, MemoryShape
from codedgrad.errors import JobFailed
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import uncoded

_spec = importlib.util.spec_from_file_location(
    "loopback", Path(__file__).parents[1] / "engines" / "loopback.py"
)
assert _spec is not None
assert _spec.loader is not None
loopback = importlib.util.module_from_spec(_spec)
sys.modules["loopback"] = loopback
_spec.loader.exec_module(loopback)

_MAPPED = re.compile("([0-9a-f]+)-([0-9a-f]+) (....) .*memfd:codedgrad")
SHAPE = MemoryShape.of(VectorLayout(parameters=3, gradient=3), 2, OPEN_SEGMENTS)


def mappings() -> list[tuple[int, int, str]]:
    """Return (first, last, permissions) of what this process shares with the root."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = [_MAPPED.match(line) for line in lines]
    return [(int(f[1], 16), int(f[2], 16), f[3]) for f in found if f]


def rows_of_the_first(x: np.ndarray[Any, Any]) -> int:
    whole = next(first for first, _, allowed in mappings() if allowed == "r--s")
    return whole + SHAPE.rows_offset


def the_parameters(x: np.ndarray[Any, Any]) -> int:
    return int(x.ctypes.data)


@pytest.mark.parametrize("where", [the_parameters, rows_of_the_first])
def test_a_stray_write_is_the_end_of_its_worker(
    where: Callable[[np.ndarray[Any, Any]], int],
) -> None:
    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        if part == 1:
            ctypes.memset(where(x), 255, 8)
        return 0.0, 1.0, x

    with pytest.raises(JobFailed, match=r"part 1: .*worker 1 by SIGSEGV"):
        train(gradient, np.zeros(3), uncoded(2), steps=1)


@pytest.mark.parametrize(
    "engine",
    [Local, loopback.Looped, lambda: loopback.Looped(hosts=1)],
    ids=["local", "a host each", "one host"],
)
def test_a_worker_maps_nothing_to_write_but_its_own_rows(
    engine: Callable[[], Engine], tmp_path: Path
) -> None:
    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        (tmp_path / str(part)).write_text(json.dumps(mappings()))
        return 0.0, 1.0, x

    made: Any = engine()
    train(gradient, np.zeros(3), uncoded(2), steps=1, engine=made)
    for part in range(2):
        found = json.loads((tmp_path / str(part)).read_text())
        writable = [last - first for first, last, allowed in found if "w" in allowed]
        places = 2 * made.capabilities.rows_per_worker
        own = MemoryShape.of(VectorLayout(parameters=3, gradient=3), 1, places // 2)
        assert writable == [places * own.row_bytes]
        assert {allowed for *_, allowed in found} == {"r--s", "rw-s"}
