"""Recorded seconds, read from and written to files.

| file | holds |
| --- | --- |
| `.csv` | a line `step,<worker>,<worker>...`, then a line per step; or numbers only |
| `.npy` | a 2-d array (steps, workers); neither step numbers nor names |
| `.parquet` | a column `step`, then one per worker; needs `codedgrad[parquet]` |

Where there are no step numbers, the steps are 0, 1, 2... and follow each other.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as brief
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from codedgrad.delays.arguments import LONGEST, settle
from codedgrad.delays.times import Floats
from codedgrad.errors import InvalidDelays

Ints: TypeAlias = NDArray[np.int64]
_Format: TypeAlias = tuple[Callable[[bytes], "Matrix"], Callable[["Matrix"], bytes]]

HEADER = "a first line such as step,worker0,worker1 and commas between numbers"
STEPS = (
    "step",
    "steps",
    "iteration",
    "index",
    "",
)  # what the first column may be called
SHORTEST = 1e-9  # seconds; less would be 0 on the grid of times
STRAIGHT = "a .csv or .parquet file, which keep the step numbers"


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Seconds that workers took at the uncoded load, step by step.

    Attributes:
        steps: Numbers of the steps recorded, ascending; they may have gaps.
        seconds: (steps, workers), above 0.
        workers: Their names.

    Example:
        >>> matrix = Matrix([3, 4, 9], [[1.0, 2.0], [1.1, 2.1], [1.2, 2.2]], ["a", "b"])
        >>> matrix.seconds.shape, matrix.follows
        ((3, 2), array([ True, False]))
    """

    steps: Ints
    seconds: Floats
    workers: tuple[str, ...]

    def __post_init__(self) -> None:
        steps, seconds = _whole(self.steps), _plain(self.seconds)
        workers = tuple(str(worker) for worker in self.workers)
        if (len(steps), len(workers)) != seconds.shape:
            problem = f"seconds has shape {seconds.shape}"
            advice = (
                f"{(len(steps), len(workers))}, a row per step, a column per worker"
            )
            raise InvalidDelays("matrix", problem, advice)
        if len(set(workers)) < len(workers):
            raise InvalidDelays("matrix", "two workers share a name", "unique names")
        wrong = ~((seconds >= SHORTEST) & (seconds <= LONGEST))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise InvalidDelays(
                "matrix",
                f"step {steps[row]}, worker {workers[column]}: "
                f"{float(seconds[row, column])} is not a duration",
                f"seconds from {SHORTEST:g} to {LONGEST:.7g}",
            )
        settle(self, steps=steps, seconds=seconds, workers=workers)

    @property
    def follows(self) -> NDArray[np.bool_]:
        """Whether each row but the first is the step right after the row before it."""
        return np.asarray(np.diff(self.steps) == 1)


def read_matrix(path: str | os.PathLike[str]) -> Matrix:
    """Read recorded seconds from a `.csv`, `.npy` or `.parquet` file.

    Nothing in the file is executed. What is not a recording is refused with the file,
    the place in it and what would do.

    Example:
        >>> from codedgrad.delays import traces
        >>> matrix = read_matrix(traces()["AR"])
        >>> matrix.workers, matrix.steps[:3]
        (('dp0', 'dp1', 'dp2', 'dp3'), array([16, 21, 27]))
    """
    file = Path(path)
    parse = _format(file)[0]
    try:
        return parse(file.read_bytes())
    except InvalidDelays as error:
        raise InvalidDelays(str(file), error.problem, error.advice) from None
    except (OSError, ValueError) as error:  # ValueError: a path that cannot be one
        problem = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        raise InvalidDelays(str(file), problem, "the path of a recording") from None


def write_matrix(
    path: str | os.PathLike[str],
    steps: ArrayLike,
    seconds: ArrayLike,
    workers: Sequence[str],
) -> None:
    """Write recorded seconds; the file is whole or not there at all.

    Numbers come back exactly as they were. `.npy` does not keep the names, and is
    refused for steps other than 0, 1, 2...

    Args:
        path: A name that ends in `.csv`, `.npy` or `.parquet`.
        steps: Step numbers, ascending.
        seconds: (steps, workers).
        workers: Their names.
    """
    file = Path(path)
    dump = _format(file)[1]
    try:
        plain = np.asarray(steps), np.asarray(seconds)
        data = dump(Matrix(*plain, tuple(workers)))
        _replace(file, data)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise InvalidDelays(str(file), problem, "a folder that is there") from None
    except InvalidDelays as error:
        raise InvalidDelays(str(file), error.problem, error.advice) from None


def _format(file: Path) -> _Format:
    ending = file.suffix.lower()
    if ending not in _FORMATS:
        problem = f"the ending {ending!r} is not known"
        raise InvalidDelays(str(file), problem, f"one of {', '.join(_FORMATS)}")
    return _FORMATS[ending]


def _replace(file: Path, data: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def _numbered(seconds: Floats) -> Matrix:
    """Return a recording that has neither step numbers nor names."""
    rows, columns = seconds.shape
    names = tuple(f"worker{i}" for i in range(columns))
    return Matrix(np.arange(rows), seconds, names)


def _from_csv(data: bytes) -> Matrix:
    try:
        lines = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        rows = [(lines.line_num, row) for row in lines if any(map(str.strip, row))]
    except (UnicodeDecodeError, csv.Error):
        raise InvalidDelays("csv", "is not a text of values", HEADER) from None
    if not rows:
        raise InvalidDelays("csv", "is empty", HEADER)
    header = [cell.strip() for cell in rows[0][1]]
    numbers = [_number(cell) is not None for cell in header]
    if all(numbers):
        names = [f"column {i + 1}" for i in range(len(header))]
        return _numbered(_without_steps(_cells(rows, names)))
    if any(numbers) or "" in header[1:]:
        problem = f"line {rows[0][0]} is neither numbers nor names"
        raise InvalidDelays("csv", problem, HEADER)
    if len(rows) == 1:
        raise InvalidDelays("csv", "has no line after the first", "a line per step")
    cells = _cells(rows[1:], header)
    if header[0].lower() not in STEPS:
        seconds = _without_steps(cells)
        return Matrix(np.arange(len(cells)), seconds, tuple(header))
    if len(header) < 2:
        raise InvalidDelays("csv", "has no worker", HEADER)
    steps = [row[0] for row in cells]
    return Matrix(_whole(steps), np.array(cells)[:, 1:], tuple(header[1:]))


def _without_steps(cells: list[list[float]]) -> Floats:
    """Return the values, unless the first column cannot but be step numbers."""
    seconds = np.array(cells)
    first = seconds[:, 0]
    if len(first) > 1 and np.all(np.diff(first) == 1) and np.all(first % 1 == 0):
        problem = "the first column counts, as step numbers do, and is not called step"
        raise InvalidDelays("csv", problem, HEADER)
    return seconds


def _cells(rows: list[tuple[int, list[str]]], names: list[str]) -> list[list[float]]:
    cells = []
    for line, row in rows:
        if len(row) != len(names):
            problem = f"line {line} has {len(row)} values, the first has {len(names)}"
            raise InvalidDelays("csv", problem, "as many on every line")
        values = [_number(cell) for cell in row]
        if None in values:
            column = values.index(None)
            problem = f"line {line}, {names[column]}: {brief(row[column])} is no number"
            raise InvalidDelays("csv", problem, "a number such as 1.25")
        cells.append([value for value in values if value is not None])
    return cells


def _number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _to_csv(matrix: Matrix) -> bytes:
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["step", *matrix.workers])
    for step, row in zip(matrix.steps.tolist(), matrix.seconds.tolist(), strict=True):
        lines.writerow([step, *row])
    return text.getvalue().encode()


def _from_npy(data: bytes) -> Matrix:
    try:
        array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # its header is parsed, and may be anything
        problem = f"is not a plain array ({' '.join(str(error).split())})"
        advice = "numpy.save(path, seconds) with an array of floats"
        raise InvalidDelays("npy", problem, advice) from None
    return _numbered(_plain(array))


def _to_npy(matrix: Matrix) -> bytes:
    if not np.array_equal(matrix.steps, np.arange(len(matrix.steps))):
        problem = ".npy has no room for step numbers other than 0, 1, 2..."
        raise InvalidDelays("npy", problem, STRAIGHT)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, matrix.seconds, allow_pickle=False)
    return buffer.getvalue()


def _from_parquet(data: bytes) -> Matrix:
    arrow, parquet = _arrow()
    try:
        table = parquet.ParquetFile(arrow.BufferReader(data)).read()
        names = table.column_names
        columns = [table.column(i).to_numpy() for i in range(table.num_columns)]
    except (arrow.ArrowException, OSError) as error:
        problem = f"is not a parquet table ({str(error).splitlines()[0]})"
        raise InvalidDelays("parquet", problem, "write_matrix to make one") from None
    if len(names) < 2 or names[0].lower() != "step":
        problem = f"the columns are {brief(names)}"
        raise InvalidDelays("parquet", problem, "step and then one per worker")
    for name, column in zip(names, columns, strict=True):
        if column.dtype.kind not in "iuf":
            problem = f"the column {name} does not hold numbers"
            raise InvalidDelays("parquet", problem, "a number in every row")
    return Matrix(_whole(columns[0]), np.column_stack(columns[1:]), tuple(names[1:]))


def _to_parquet(matrix: Matrix) -> bytes:
    arrow, parquet = _arrow()
    names = ["step", *matrix.workers]
    table = arrow.Table.from_arrays(
        [arrow.array(column) for column in (matrix.steps, *matrix.seconds.T)], names
    )
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _arrow() -> tuple[Any, Any]:
    try:
        arrow = importlib.import_module("pyarrow")
        return arrow, importlib.import_module("pyarrow.parquet")
    except ImportError:
        problem = "parquet files need the package pyarrow"
        advice = 'pip install "codedgrad[parquet]"'
        raise InvalidDelays("parquet", problem, advice) from None


def _whole(given: ArrayLike) -> Ints:
    """Return ascending step numbers."""
    steps = np.asarray(given)
    advice = "whole numbers, each more than the one before"
    if steps.dtype.kind not in "iuf" or steps.ndim != 1 or not len(steps):
        raise InvalidDelays("matrix", f"steps are {brief(given)}", advice)
    odd = ~((np.abs(steps) < 2**53) & (steps == np.floor(steps)))
    if odd.any():
        problem = f"{steps[odd][0]} is not a step number"
        raise InvalidDelays("matrix", problem, advice)
    steps = steps.astype(np.int64)
    back = np.flatnonzero(np.diff(steps) <= 0)
    if len(back):
        before, after = steps[back[0] : back[0] + 2]
        problem = f"step {after} comes after step {before}"
        raise InvalidDelays("matrix", problem, advice)
    return steps


def _plain(given: ArrayLike) -> Floats:
    """Return a (steps, workers) array of floats."""
    advice = "a 2-d array of floats, (steps, workers)"
    try:
        seconds = np.asarray(given)
    except ValueError:  # ragged
        seconds = np.array("")
    if seconds.dtype.kind not in "iuf":
        problem = f"seconds are {brief(given)}, not numbers"
        raise InvalidDelays("matrix", problem, advice)
    if seconds.ndim != 2 or not seconds.size:
        raise InvalidDelays("matrix", f"seconds has shape {seconds.shape}", advice)
    return np.ascontiguousarray(seconds, dtype=np.float64)


_FORMATS: dict[str, _Format] = {
    ".csv": (_from_csv, _to_csv),
    ".npy": (_from_npy, _to_npy),
    ".parquet": (_from_parquet, _to_parquet),
}
