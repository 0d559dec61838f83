r"""Measure a cluster before it is planned for: what a part takes, and a message.

Three short runs on the engine itself:

1. A job that computes nothing and sends one number: how long an order and a report are
   under way.
2. The real job at the usual load, one part for every worker, and at twice that load, in
   turn. A worker that takes $T_1$ and $T_2$ seconds has a share
   $f = (T_2 - T_1) / T_1$ of its time grow with its load.
3. The usual load cut into several parts: what it takes longer is what parts cost.

What a message of the real job takes longer than one number is the bandwidth. All
figures are medians: workers that are slow now and then do not change them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from codedgrad.advise.probe.scheme import Measuring
from codedgrad.core import State
from codedgrad.engines import Driver, Engine
from codedgrad.engines.engine import MakeJob
from codedgrad.errors import InvalidOptions, InvalidTrace
from codedgrad.jobs import NumpyJob, VectorLayout
from codedgrad.trace.files import write_whole

VERSION = 1
_KIND = "codedgrad probe"
_WARM = 1  # steps at every load before it counts
_STEADY = 1.5  # times: steps that differ more are not of an idle machine
_MOST = 10_000  # of anything
_LONGEST = 2.0**23  # seconds
_SHORTEST = 1e-9

Rows: TypeAlias = list[list[float]]
Floats: TypeAlias = NDArray[np.float64]
Prepared: TypeAlias = Callable[[int], "Work"]
"""Cuts a job into so many parts."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A job that is cut into parts.

    Attributes:
        make: Makes it in a worker.
        layout: How long its vectors are.
        parameters: To compute with.
    """

    make: MakeJob
    layout: VectorLayout
    parameters: NDArray[Any]


class Probe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured; lists of seconds are (steps, workers).

    Attributes:
        engine: What the workers were, such as `local`.
        job: What they computed, in a word.
        workers: How many.
        seconds: For the uncoded load, in one part.
        doubled: For twice the load, in two.
        pieces: Parts that the uncoded load was then cut into.
        cut: For the uncoded load in so many parts.
        round_trips: An order there and a report back.
        uploads: The same, with a message of the job.
        message: Bytes of that.
        kind: Says that this is a probe.
        version: Of the format.
    """

    engine: str
    job: str
    workers: int
    seconds: Rows
    doubled: Rows
    pieces: int
    cut: Rows
    round_trips: Rows
    uploads: Rows
    message: int
    kind: str = _KIND
    version: int = VERSION

    @property
    def shares(self) -> list[float]:
        """Of every worker's time, what grows with its load, from 0 to 1."""
        one, two = (np.median(rows, axis=0) for rows in (self.seconds, self.doubled))
        shares: list[float] = np.clip((two - one) / one, 0.0, 1.0).tolist()
        return shares

    @property
    def share(self) -> float:
        """The median of the shares."""
        return float(np.median(self.shares))

    @property
    def overhead(self) -> float | None:
        """Seconds that one part more takes; None if there was one part only."""
        if self.pieces == 1:
            return None
        cut, whole = (np.median(rows, axis=0) for rows in (self.cut, self.seconds))
        return max(0.0, float(np.median(cut - whole)) / (self.pieces - 1))

    @property
    def latency(self) -> float:
        """Seconds that an order or a report is under way."""
        return float(np.median(self.round_trips)) / 2

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second, of one message at a time; None if it is too fast to tell."""
        beyond = float(np.median(self.uploads) - np.median(self.round_trips))
        return self.message / beyond if beyond > 0 else None

    @property
    def spread(self) -> float:
        """How far apart a worker's steps are: their 90 % over their 10 % quantile.

        The larger of one part and several, the median over workers; 1 is steady.
        """
        found = []
        for rows in (self.seconds, self.cut):
            low, high = np.quantile(rows, (0.1, 0.9), axis=0)
            found.append(float(np.median(high / low)))
        return max(found)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What one should know before one believes it, in sentences."""
        if self.spread <= _STEADY:
            return ()
        return (
            f"A worker's steps differ by a factor of {self.spread:.2g} at the same "
            "load: something else is running, or there are more workers than cores. "
            "What a part more costs is then mostly waiting, and comes out otherwise "
            "next time.",
        )

    @property
    def typical(self) -> float:
        """Seconds for the uncoded load, the median."""
        return float(np.median(self.seconds))


def steps_of(steps: int, pieces: int) -> int:
    """Return how many steps a probe takes in all, for a progress bar."""
    runs = [1, 2] if pieces == 1 else [1, 2, 1]  # loads of each
    return sum(loads * (steps + _WARM) for loads in runs)


def probe(
    prepared: Prepared,
    engine: Callable[[], Engine],
    workers: int,
    *,
    steps: int = 10,
    pieces: int = 8,
    job: str = "",
    advanced: Callable[[], None] = lambda: None,
) -> Probe:
    """Measure a job on an engine.

    Args:
        prepared: Cuts the job into so many parts.
        engine: Makes an engine that is not started yet; called for every run.
        workers: How many; 2 at least, for twice the load is that of two.
        steps: That count, at every load.
        pieces: Parts for each worker.
        job: What to call it.
        advanced: Called after every step.
    """
    if workers < 2:
        raise InvalidOptions("workers", f"{workers} are too few", "2 or more")
    if steps < 1 or pieces < 1:
        problem = f"are {steps} and {pieces}"
        raise InvalidOptions("steps, pieces", problem, "1 or more of each")
    runs = _Runs(engine, workers, steps, advanced)
    idle = runs.run(nothing(), Measuring(workers))
    work = prepared(workers)
    whole = runs.run(work, Measuring(workers, loads=(1, 2)))
    cut = whole
    if pieces > 1:
        cut = runs.run(prepared(workers * pieces), Measuring(workers, pieces))
    layout = work.layout
    return Probe(
        engine=runs.name,
        job=job,
        workers=workers,
        seconds=whole.seconds[1],
        doubled=whole.seconds[2],
        pieces=pieces,
        cut=cut.seconds[1],
        round_trips=idle.uploads,
        uploads=whole.uploads,
        message=layout.message * np.dtype(layout.dtype).itemsize,
    )


def nothing() -> Work:
    """Return a job of which a part is no work and a message one number."""
    job = NumpyJob(_no_gradient, 1)
    return Work(lambda: job, job.layout, np.zeros(1))


def _no_gradient(
    parameters: Floats, part: int, step: int
) -> tuple[float, float, Floats]:
    return 0.0, 1.0, parameters


@dataclass(slots=True)
class _Measured:
    seconds: dict[int, Rows]  # by load
    uploads: Rows


@dataclass(slots=True)
class _Runs:
    engine: Callable[[], Engine]
    workers: int
    steps: int
    advanced: Callable[[], None]
    name: str = ""

    def run(self, work: Work, scheme: Measuring) -> _Measured:
        """Run a scheme on an engine of its own, and close that."""
        found = _Measured({load: [] for load in scheme.loads}, [])
        with closing(self.engine()) as engine:
            self.name = engine.name
            driver = Driver(engine, scheme, work.layout)
            engine.start(work.make, work.layout, self.workers, parts=scheme.parts)
            for step in range(len(scheme.loads) * (self.steps + _WARM)):
                driver.step(work.parameters)
                if step >= len(scheme.loads) * _WARM:
                    self._note(found, driver, scheme.load(step))
                self.advanced()
        return found

    def _note(self, found: _Measured, driver: Driver, load: int) -> None:
        seconds, uploads = taken(driver.coordinator.history.records[-1].state)
        found.seconds[load].append(seconds)
        found.uploads.append(uploads)


def taken(state: State) -> tuple[list[float], list[float]]:
    """Return what a step of `Measuring` took every worker, and then its message."""
    segments, messages = state.segments.values(), state.messages.values()
    ends = [known.marks[-1][1] - state.started for known in segments]
    trips = [(known.arrived or 0.0) - known.asked for known in messages]
    return [max(x, _SHORTEST) for x in ends], [max(x, 0.0) for x in trips]


# -- files ---------------------------------------------------------------------------


def write_probe(path: Path, found: Probe) -> None:
    """Write what was measured, whole or not at all."""
    data = msgspec.json.encode(found)
    write_whole(path, msgspec.json.format(data, indent=1) + b"\n")


def read_probe(path: Path | str) -> Probe:
    """Read what was measured; nothing in the file is executed.

    Raises:
        InvalidTrace: If it is none, with what is wrong.
    """
    file = Path(path)
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Probe)
    except OSError as error:
        raise InvalidTrace(file, f"cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidTrace(file, f"is not a probe: {error}") from None
    if problem := _problem(found):
        raise InvalidTrace(file, f"is not a probe: {problem}")
    return found


def _problem(found: Probe) -> str:
    """Say what is wrong with a probe, in few words; nothing if it is right."""
    if found.kind != _KIND:
        return f"says it is a {found.kind[:40]!r}"
    if found.version > VERSION:
        return f"has version {found.version}, newer than {VERSION}"
    for name in (found.engine, found.job):
        if not name.isprintable() or len(name) > 200:
            return "has a name that cannot be shown"
    for name in ("workers", "pieces", "message"):
        if not 1 <= getattr(found, name) <= (_MOST if name != "message" else 2**50):
            return f"{name} is {getattr(found, name)}"
    for name in ("seconds", "doubled", "cut", "round_trips", "uploads"):
        rows, least = getattr(found, name), _SHORTEST if name in _WORK else 0.0
        if not 1 <= len(rows) <= _MOST:
            return f"{name} has {len(rows)} steps"
        for row in rows:
            if len(row) != found.workers:
                return f"{name} has a row of {len(row)}, not {found.workers} workers"
            if not all(math.isfinite(x) and least <= x <= _LONGEST for x in row):
                return f"{name} holds what is no duration"
    return ""


_WORK = ("seconds", "doubled", "cut")
