"""Open the path that a command was given: a run, a trace, a recording or a probe.

`simulate`, `plan`, `who` and `report` all read their paths here, so that they take the
same kinds and refuse everything else with the same sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codedgrad.advise.probe.probe import Probe, read_probe
from codedgrad.delays import Matrix, read_matrix, traces
from codedgrad.errors import InvalidFolder, InvalidOptions
from codedgrad.scenario.delays_text import PATHS
from codedgrad.trace import Run, Trace, read, read_run
from codedgrad.trace.path_hints import did_you_mean
from codedgrad.trace.runs import MANIFEST
from codedgrad.trace.segments import read_segments

_RECORDINGS = (".csv", ".npy", ".parquet")
_NAMED = 3  # files or folders in a sentence


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What a path holds: the events of a run, or seconds by step and worker.

    Attributes:
        path: The file or the folder.
        name: What to call it: the name of the file, or `AR`.
        kind: `run`, `trace`, `recording` or `probe`.
        run: The run; None of all other kinds.
        trace: The events of a run or a trace; None of the other two kinds.
        matrix: Seconds for the uncoded load, of a recording or a probe; of a probe
            without the seconds that messages take. None of the other two kinds.
        probe: The probe; None of all other kinds.
    """

    path: Path
    name: str
    kind: str
    run: Run | None = None
    trace: Trace | None = None
    matrix: Matrix | None = None
    probe: Probe | None = None


def open_evidence(path: Path | str) -> Evidence:
    """Read a path, as its ending says.

    Args:
        path: The folder of a run, a trace (a .jsonl file, compressed or not, or the
            `trace` folder of a run), recorded seconds (.csv, .npy, .parquet), a probe
            (.json), or the name of a recording that comes with codedgrad.

    Raises:
        InvalidOptions: If there is no such path, or it is of no such kind.
        InvalidFolder: If it is a folder that is not of a run.
        InvalidTrace: If a run, a trace or a probe cannot be read.
        InvalidDelays: If a recording cannot be read.

    Example:
        >>> evidence = open_evidence("AR")
        >>> evidence.kind, evidence.name, evidence.matrix.seconds.shape
        ('recording', 'AR', (44, 4))
    """
    file = Path(path)
    if str(path) in traces():
        bundled = traces()[str(path)]
        return Evidence(bundled, str(path), "recording", matrix=read_matrix(bundled))
    name = file.name or str(path)
    if _is_dir(file):
        return _of_folder(file, name)
    if not _is_there(file):
        raise InvalidOptions(str(path), f"is not there{did_you_mean(file)}", PATHS)
    ending = file.name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending == "jsonl":
        return Evidence(file, name, "trace", trace=read(file))
    if file.name == MANIFEST:
        problem = "is one file of a run"
        raise InvalidFolder(str(file), problem, f"its folder, {file.parent}")
    if file.suffix.lower() == ".json":
        probe = read_probe(file)
        matrix = _matrix_of(probe)
        return Evidence(file, name, "probe", matrix=matrix, probe=probe)
    if file.suffix.lower() in _RECORDINGS:
        return Evidence(file, name, "recording", matrix=read_matrix(file))
    raise InvalidOptions(str(path), "is of no kind that can be read", PATHS)


def travel_of(probe: Probe) -> float:
    """Return the seconds of an order and a report that are in a probe's seconds."""
    # A probe on a loaded machine may have round trips longer than its shortest part:
    # half of that part is left for computing.
    return min(2 * probe.latency, float(np.min(probe.seconds)) / 2)


def _matrix_of(probe: Probe) -> Matrix:
    seconds = np.array(probe.seconds) - travel_of(probe)
    names = tuple(f"worker{number}" for number in range(probe.workers))
    return Matrix(np.arange(len(seconds)), seconds, names)


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name too long, or with a null character
        return False


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _of_folder(folder: Path, name: str) -> Evidence:
    if (folder / MANIFEST).exists():
        run = read_run(folder)
        return Evidence(folder, name, "run", run=run, trace=run.trace)
    trace = read_segments(folder)
    if trace is not None:
        return Evidence(folder, name, "trace", trace=trace)
    runs = [each.parent.name for each in folder.glob(f"*/{MANIFEST}")]
    inside = sorted(runs) or sorted(each.name for each in folder.glob("*.jsonl*"))
    if inside:
        problem = f"is not the folder of a run, but holds {_listed(inside)}"
        raise InvalidFolder(str(folder), problem, str(folder / inside[0]))
    problem = f"is not the folder of a run: it has no {MANIFEST}"
    raise InvalidFolder(str(folder), problem, PATHS)


def _listed(names: list[str]) -> str:
    shown, more = names[:_NAMED], len(names) - _NAMED
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
