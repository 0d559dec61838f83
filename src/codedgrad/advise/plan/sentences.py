"""What there is to say about a plan, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codedgrad.advise.plan.breakeven import BreakEven, growing_share, percent
from codedgrad.advise.plan.planner import Planned, Setting
from codedgrad.advise.plan.search import EQUAL, NEAR, PAYS, LeftOut, Score
from codedgrad.advise.slow.slowness import who_is_slow
from codedgrad.advise.slow.times import SecondsByStep, Series
from codedgrad.advise.slow.verdicts import Kind, Verdict
from codedgrad.delays import Replay, Times
from codedgrad.sim import ratio

_NAMED = 3  # at most, of workers or schemes


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """What to do, and why.

    Attributes:
        sentence: What to do.
        default: What to tell `train`, whose default would be slower; or empty.
        chosen: What to use; waiting for all if there is nothing to gain.
        ranking: All that was simulated, the best first.
        slow: Who is slow, in sentences.
        codes: Whether codes pay, in a sentence; empty if there is none.
        equals: What is as fast, in a sentence; empty if nothing is.
        left_out: What was not simulated, and why, in a sentence; or empty.
        break_even: When codes pay, in sentences.
    """

    sentence: str
    default: str
    chosen: Score
    ranking: tuple[Score, ...]
    slow: tuple[str, ...]
    codes: str
    equals: str
    left_out: str
    break_even: tuple[str, ...]


def advice_on(planned: Planned) -> Advice:
    """Say what to do on a cluster."""
    ranking = _ranked(planned.found.scores)
    waiting = next(s for s in ranking if s.candidate.text.startswith("uncoded"))
    sentence, chosen = _sentence(ranking[0], waiting)
    ranking = (chosen, *(score for score in ranking if score is not chosen))
    return Advice(
        sentence,
        _on_default(ranking, chosen),
        chosen,
        ranking,
        slow_workers(planned.setting, planned.times),
        _on_codes(ranking, chosen, waiting),
        _on_equals(ranking, chosen),
        _on_left_out(planned.found.left_out, ranking[0]),
        _on_break_even(planned, ranking, chosen, waiting),
    )


def _ranked(scores: Sequence[Score]) -> tuple[Score, ...]:
    """Put first, of those that may be the fastest, one that outlives a worker."""
    first = scores[0]
    equal = [s for s in scores if _as_fast(s, first) or _is_by_chance(s, first)]
    best = next((s for s in equal if s.candidate.goes_on), first)
    return (best, *(score for score in scores if score is not best))


def _as_fast(one: Score, other: Score) -> bool:
    near = one.seconds <= EQUAL * other.seconds
    return near and one.gave_up == other.gave_up


def _is_by_chance(one: Score, other: Score) -> bool:
    """Whether one is slower, but not clearly, and not by much."""
    near = one.seconds <= NEAR * other.seconds and one.gave_up == other.gave_up
    return near and not ratio(one.result, other.result).is_clear


def _sentence(best: Score, waiting: Score) -> tuple[str, Score]:
    if waiting.gave_up > best.gave_up:
        lost = f"{100 * waiting.gave_up:.0f} %"
        why = f"waiting for all gives up {lost} of the steps"
        return f"use {best.candidate.label}: {why}", best
    if best.seconds > PAYS * waiting.seconds:
        return "wait for all: nothing to gain here", waiting
    gain = times_text(waiting.seconds / best.seconds)
    said = f"use {best.candidate.label}: {gain} times less time than waiting for all"
    return said, best


def _on_default(ranking: Sequence[Score], chosen: Score) -> str:
    default = [score for score in ranking if score.candidate.is_default]
    if not default or default[0] is chosen or _as_fast(default[0], chosen):
        return ""
    said = "what train does unless told otherwise, auto,"
    if default[0].gave_up > chosen.gave_up:
        return f"{said} gives up {percent(default[0].gave_up)} of the steps"
    ratio = default[0].seconds / chosen.seconds
    return f"{said} takes {times_text(ratio)} times as long as that"


def times_text(ratio: float) -> str:
    """Return how many times, with two or three digits.

    Example:
        >>> times_text(1.942), times_text(12.3), times_text(1.066)
        ('1.9', '12', '1.07')
    """
    return f"{ratio:.{3 if ratio < 1.2 else 2}g}"


def _on_codes(ranking: Sequence[Score], chosen: Score, waiting: Score) -> str:
    codes = [score for score in ranking if score.candidate.is_code]
    if not codes or chosen.candidate.is_code:
        return ""
    best, name = codes[0], codes[0].candidate.label
    if waiting.gave_up:
        lost = f", and gives up {100 * best.gave_up:.0f} % of the steps"
        said = f"of the codes, {name} takes {best.seconds:.3g} s a step"
        return said + (lost if best.gave_up else "")
    ratio = best.seconds / waiting.seconds
    if ratio > PAYS:
        return (
            f"no code pays here: {name} takes {ratio:.2f} times as long as waiting "
            "for all"
        )
    said = f"{name} takes {ratio:.2f} of its time"
    return f"codes pay against waiting for all, but less: {said}"


def _on_equals(ranking: Sequence[Score], chosen: Score) -> str:
    quickest = min(ranking, key=lambda score: (score.gave_up, score.seconds))
    if not _as_fast(chosen, quickest) and _is_by_chance(chosen, quickest):
        part = f"{quickest.seconds / chosen.seconds:.2f}"
        return (
            f"{quickest.candidate.label} took {part} of the time of "
            f"{chosen.candidate.label}, which may be chance, and is held up if a "
            "worker dies"
        )
    equal = [
        score
        for score in ranking
        if score is not chosen and _as_fast(score, chosen) and _as_fast(chosen, score)
    ]
    if not equal:
        return ""
    names = " and ".join(score.candidate.label for score in equal[:_NAMED])
    verb = "is" if len(equal) == 1 else "are"
    said = f"as fast as {chosen.candidate.label}, within 1 %: {names}"
    if chosen.candidate.goes_on and not any(s.candidate.goes_on for s in equal):
        said += f", which {verb} held up if a worker dies"
    return said


def _on_left_out(left_out: Sequence[LeftOut], best: Score) -> str:
    if not left_out:
        return ""
    nearest, count = left_out[0], len(left_out)
    if count == 1:
        said = f"not simulated, as it cannot be the best: {nearest.candidate.label}"
    else:
        said = (
            f"{count} more were not simulated, as they cannot be the best; the nearest "
            f"of them is {nearest.candidate.label}"
        )
    if not 0 < best.seconds <= nearest.least < np.inf:
        return said
    ratio = f"{nearest.least / best.seconds:.2f}"
    return f"{said}, at least {ratio} times as long ({nearest.candidate.reason})"


def _on_break_even(
    planned: Planned, ranking: Sequence[Score], chosen: Score, waiting: Score
) -> tuple[str, ...]:
    if not planned.break_even:
        return ()
    share = growing_share(planned.times)
    # The tolerance that matters is the one whose code would be the fastest here.
    best = max(planned.break_even, key=lambda one: one.speedup(share))
    said = str(best)
    if 0 < best.share < np.inf:
        verdict = _on_whether_it_pays(planned, best, share, (ranking, chosen, waiting))
        said += f"; here {percent(share)} does: {verdict}"
    others = [
        f"with {one.tolerance} it is {percent(max(one.share, 0.0))}"
        for one in planned.break_even
        if one is not best and np.isfinite(one.share)
    ]
    if not others or not 0 < best.share < np.inf:
        return (said,)
    limit = f"that is the limit with tolerance {best.tolerance}"
    return said, f"{limit}; {', '.join(others)}"


def _on_whether_it_pays(
    planned: Planned,
    best: BreakEven,
    share: float,
    simulated: tuple[Sequence[Score], Score, Score],
) -> str:
    """Return what the limit says, and where the simulation says otherwise, why."""
    ranking, chosen, waiting = simulated
    code = next((score for score in ranking if score.candidate.is_code), None)
    by_limit = share < best.share
    if code is None or waiting.gave_up or not 0 < waiting.seconds < np.inf:
        return "it pays" if by_limit else "it does not pay"
    ratio = code.seconds / waiting.seconds
    pays = ratio <= PAYS and not code.gave_up
    if pays and by_limit:
        if chosen.candidate.is_code:
            return "it pays"
        return f"it pays, but {chosen.candidate.label} takes less time still"
    if not pays and not by_limit:
        return "it does not pay"
    name = code.candidate.label
    if pays:
        return (
            f"by this limit it does not pay, but {name} need not wait for so many "
            f"workers in every step, and takes {ratio:.2f} of the time of waiting for "
            "all"
        )
    return (
        f"by this limit it pays, but {_costs(planned, best, share)}: "
        f"{name} takes {ratio:.2f} of the time of waiting for all"
    )


def _costs(planned: Planned, best: BreakEven, share: float) -> str:
    """Return why no code pays in the simulation although one is below its limit."""
    field = planned.setting.field
    if best.speedup(share) * PAYS < 1:
        return f"saves less than {percent(1 - PAYS)} of a step"
    if field.machine.drain:
        return "late workers finish the part in hand before the next step"
    if field.machine.latency or field.machine.network is not None:
        return "messages take time"
    if field.overhead:
        return "larger loads have more parts, which cost time"
    return "no code that fits these workers is as fast as the limit assumes"


def slow_workers(setting: Setting, times: Times) -> tuple[str, ...]:
    """Return a sentence for everybody who holds the others up more than once."""
    x = times.fixed + times.unit
    there = np.isfinite(x)
    series = Series("compute", np.where(there, x, np.nan), np.zeros_like(there))
    numbers = _numbers(setting, len(x))
    paces = SecondsByStep(setting.names, numbers, (series,), there)
    own = setting.source.paces
    if own is not None and np.array_equal(own.steps, numbers):
        paces = own  # as `codedgrad who` has it: it knows which times are bounds
    slowness = who_is_slow(paces)
    said = [
        f"worker {_name(verdict.worker, setting.names)} {_manner(verdict)}"
        for verdict in slowness.verdicts
        if verdict.kind is not Kind.ONE_OFF
    ]
    said += [
        f"worker {_name(each.worker, setting.names)} is gone since step "
        f"{each.gone_since}"
        for each in slowness.standings
        if each.gone_since is not None
    ]
    if len(said) > _NAMED:
        more = len(said) - _NAMED
        said[_NAMED:] = [f"{more} more {'is' if more == 1 else 'are'} slow, too"]
    return tuple(said)


def _manner(verdict: Verdict) -> str:
    said = f"takes {verdict.factor:.3g} times as long as the others"
    if verdict.kind is Kind.TURNED:
        return f"{said} since step {verdict.since}"
    if verdict.kind is Kind.SOMETIMES:
        return f"{said} in {percent(verdict.share)} of the steps"
    return said


def _numbers(setting: Setting, steps: int) -> NDArray[np.int64]:
    """Return the numbers of the steps, as recorded if they are in that order."""
    law, matrix = setting.field.law, setting.matrix
    if matrix is not None and isinstance(law, Replay) and law.order == "recorded":
        return matrix.steps[:steps]
    return np.arange(steps, dtype=np.int64)


def _name(worker: int, names: Sequence[str]) -> str:
    name = names[worker]
    plain = name in (str(worker), f"worker{worker}")
    return str(worker) if plain else f"{worker} ({name})"
