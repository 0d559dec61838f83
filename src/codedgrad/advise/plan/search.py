"""Score candidates on the same delays, those that cannot win left out.

No candidate is simulated that cannot be the best: one whose lower bound is more than
1 % above the best so far. The bound of a code is what it takes if late workers stop at
once, at no latency; draining and latency only add to that. The bound of any other
scheme is that of a clairvoyant with parts as large. One code is simulated anyway, and
more until one pays or none can, so that it can be said whether codes pay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.advise.plan.candidates import Candidate
from codedgrad.codes.bounds import clairvoyant
from codedgrad.codes.bounds.clairvoyant import clairvoyant_whole
from codedgrad.delays import Delays, Times, draw
from codedgrad.sim import Machine, Result, compare, end_times, has_fast_path
from codedgrad.sim.arrays.codes import as_code

PAYS = 0.97
"""Of the time of waiting for all: what takes more is not worth the trouble."""

EQUAL = 1.01
"""Times: what is nearer is as fast."""

NEAR = 1.1
"""Times: what is nearer may be as fast, if that may be chance."""


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A law, with what a scheme pays more on it than one that was measured.

    Attributes:
        law: The law.
        parts: Of the scheme, in a step.
        overhead: Seconds for a part more.
        pieces: Parts that the uncoded load was cut into when it was measured.
    """

    law: Delays
    parts: int
    overhead: float = 0.0
    pieces: float = 1.0

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times; the law draws the same, whatever is added to them."""
        times = self.law.sample(rng, steps, workers)
        each = self.parts / workers
        more = self.overhead * (each - self.pieces)
        return Times(times.fixed, np.maximum(times.unit + more, 0.0), times.truth)

    def __str__(self) -> str:
        return str(self.law)


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """What came of a candidate.

    Attributes:
        candidate: The scheme.
        result: Of its simulation.
        seconds: A step, the mean over those that gave a sum; inf if none did.
        over_bound: Of the least that a clairvoyant needs, on the same steps.
        work: Parts computed, over parts.
        messages: Heard, in a step.
        gave_up: Share of the steps that gave no sum.
    """

    candidate: Candidate
    result: Result
    seconds: float
    over_bound: float
    work: float
    messages: float
    gave_up: float


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that cannot be the best.

    Attributes:
        candidate: The scheme.
        least: Seconds a step that it takes at least.
    """

    candidate: Candidate
    least: float


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What a search gave.

    Attributes:
        scores: The best first.
        left_out: Those that were not simulated, the nearest first.
        bound: Seconds a step that a clairvoyant needs.
    """

    scores: tuple[Score, ...]
    left_out: tuple[LeftOut, ...]
    bound: float


@dataclass(frozen=True, slots=True, eq=False)
class Arena:
    """Where candidates are compared.

    Attributes:
        law: How long workers take.
        workers: How many.
        steps: In a run.
        runs: Independent ones.
        seed: Of the delays.
        machine: What the engine can do.
        overhead: Seconds for a part more.
        pieces: Parts that the uncoded load was cut into when it was measured.
    """

    law: Delays
    workers: int
    steps: int
    runs: int
    seed: int
    machine: Machine
    overhead: float = 0.0
    pieces: float = 1.0

    def priced(self, candidate: Candidate) -> Priced:
        """Return what a candidate meets."""
        return Priced(self.law, candidate.scheme.parts, self.overhead, self.pieces)

    def times(self, law: Delays) -> list[Times]:
        """Return the times of all runs."""
        return [
            draw(law, steps=self.steps, workers=self.workers, seed=self.seed, run=run)
            for run in range(self.runs)
        ]


def search(
    field: Arena,
    candidates: Sequence[Candidate],
    advanced: Callable[[int], None] | None = None,
) -> Search:
    """Simulate the candidates that may win; the first one and `auto` always.

    Args:
        field: Where.
        candidates: Waiting for all is the first.
        advanced: Called with a number of scheme-steps done, for a progress bar.
    """
    told = advanced or (lambda done: None)
    bounds = np.array([clairvoyant(t.fixed, t.unit) for t in field.times(field.law)])
    first, *others = candidates
    scores = [_score(field, first, bounds, told)]
    left_out: list[LeftOut] = []
    for least, candidate in _by_bound(field, others):
        can_win = least <= EQUAL * _best(scores) or candidate.is_default
        if not can_win and not _says_more(candidate, least, scores):
            left_out.append(LeftOut(candidate, least))
            told(field.steps * field.runs)
        else:
            scores.append(_score(field, candidate, bounds, told))
    scores.sort(key=lambda score: (score.gave_up, score.seconds))
    return Search(tuple(scores), tuple(left_out), float(bounds.mean()))


def _best(scores: Sequence[Score]) -> float:
    """Return the seconds that a candidate must not exceed to be the best."""
    whole = [score.seconds for score in scores if score.gave_up == 0]
    return min(whole, default=np.inf)


def _says_more(candidate: Candidate, least: float, scores: Sequence[Score]) -> bool:
    """Whether a code that cannot be the best is needed to say whether codes pay."""
    codes = [score.seconds for score in scores if score.candidate.is_code]
    pays = PAYS * _best(scores[:1])
    undecided = not codes or (min(codes) > pays and least < pays)
    return candidate.is_code and undecided


def _by_bound(
    field: Arena, candidates: Sequence[Candidate]
) -> list[tuple[float, Candidate]]:
    found = [(_least(field, candidate), candidate) for candidate in candidates]
    return sorted(found, key=lambda pair: pair[0])


def _least(field: Arena, candidate: Candidate) -> float:
    """Return a lower bound of the mean seconds of a step."""
    scheme, traits, every = candidate.scheme, candidate.scheme.traits, []
    for times in field.times(field.priced(candidate)):
        part = times.part(scheme.parts)
        if has_fast_path(scheme):
            ends = end_times(*as_code(scheme, times))
        elif traits.fewest is not None and traits.load is not None:
            # Whichever worker sits where, each computes as much before it answers.
            answers = np.sort(times.fixed + traits.load * part, axis=1)
            ends = answers[:, traits.fewest - 1]
        else:
            ends = clairvoyant_whole(times.fixed, part, scheme.parts)
        every.append(ends)
    return float(np.mean(every))


def _score(
    field: Arena,
    candidate: Candidate,
    bounds: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    advanced: Callable[[int], None],
) -> Score:
    (result,) = compare(
        [candidate.scheme],
        field.priced(candidate),
        steps=field.steps,
        runs=field.runs,
        seed=field.seed,
        machine=field.machine,
        advanced=advanced,
    )
    figures, done = result.summary(), np.isfinite(result.seconds)
    least = float(bounds[done].sum())
    over = float(result.seconds[done].sum()) / least if least > 0 else np.nan
    return Score(
        candidate,
        result,
        figures["mean_seconds"] if done.any() else np.inf,
        over,
        figures["work"],
        figures["messages"],
        figures["gave_up"],
    )
