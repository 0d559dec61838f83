"""Who is slow, how much, since when: verdicts that chance does not bring about.

A worker is slow among the others, never by itself: what is common to all, such as a
larger batch, makes nobody slow. It is `always slow`, `turned slow` (and still is),
`sometimes slow`, or was so in a `one-off`; by `compute` or, where messages are seen
apart, by `network`. See `ratios` for what stands out, and `spells` for when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import bdtrc

from codedgrad.advise.slow.ratios import (
    FEWEST_STEPS,
    FEWEST_STEPS_OF_TWO,
    SHORTEST,
    TWICE,
    WORTH,
    Limit,
    Ratios,
    limits,
    ratios,
    rolling,
)
from codedgrad.advise.slow.spells import Spell, slow_steps, spells
from codedgrad.advise.slow.stopwatch import Bools, Floats
from codedgrad.advise.slow.times import COMPUTE, SecondsByStep, Series
from codedgrad.advise.slow.verdicts import Kind, Slowness, Standing, Verdict

_RECENT = 10  # steps of each worker
_BEST = 0.1  # the quantile of its stretches that is a worker's best
_ALWAYS = 0.9  # of its steps
_FEW = 2  # slow steps are a one-off
_LASTING = 3  # steps at the end: it has turned slow
_BEFORE = 0.1  # of the steps before may have been slow, too
_SEEN = 0.1  # of the steps in which a worker was late; less tells nothing of it
_LONG = 20  # steps in which it was late, since it was last seen to finish
_NAMED = 8  # workers in a sentence
_CHANCE = 0.002  # that anybody is told apart from a crowd that is as often slow


def who_is_slow(paces: SecondsByStep) -> Slowness:
    """Find who is slow, how much and since when.

    Example:
        >>> from codedgrad.advise.slow.times import read_paces
        >>> [verdict] = who_is_slow(read_paces("AR")).verdicts
        >>> verdict.worker, str(verdict.kind), verdict.cause, round(verdict.factor, 2)
        (0, 'always slow', 'compute', 2.25)
        >>> who_is_slow(read_paces("SE")).verdicts
        []
    """
    doubts: list[str] = []
    needed = fewest_steps(len(paces.names))
    verdicts: list[Verdict] = []
    now = best = np.full(len(paces.names), np.nan)
    for series in paces.series:
        found = ratios(series.seconds, series.is_bound)
        if len(paces.steps) >= needed:
            told, moving = _judge(found, series, paces)
            verdicts += told
            doubts += _unknown(found, series)
            if moving:
                doubts.append(_moving(moving))
        if series is paces.series[0]:
            now, best = _scores(found, {v.worker: v.lasts for v in verdicts})
    standings = tuple(
        Standing(
            worker=worker,
            name=name,
            now=float(now[worker]),
            best=float(best[worker]),
            verdicts=tuple(each for each in verdicts if each.worker == worker),
            gone_since=_gone_since(paces, worker),
            lost=tuple(step for step, lost in paces.losses if lost == worker),
        )
        for worker, name in enumerate(paces.names)
    )
    return Slowness(
        standings,
        len(paces.steps),
        tuple(doubts),
        paces.remarks,
        needed,
        paces.savings,
    )


def fewest_steps(workers: int) -> int:
    """Return how many steps are needed to tell which of so many workers are slow."""
    return FEWEST_STEPS_OF_TWO if workers == 2 else FEWEST_STEPS


def verdicts_on(paces: SecondsByStep) -> list[Verdict]:
    """Return only what is wrong with whom, which is quicker where nothing is."""
    found: list[Verdict] = []
    for series in paces.series:
        found += _judge(ratios(series.seconds, series.is_bound), series, paces)[0]
    return found


def _unknown(found: Ratios, series: Series) -> list[str]:
    """Say of whom it is not known how slow they are now: nobody waits for them."""
    if series.cause != COMPUTE:
        return []
    late = series.is_bound.sum(axis=0)
    hidden = [
        worker
        for worker, count in enumerate(found.counts.tolist())
        if (late[worker] >= SHORTEST and count < _SEEN * late[worker])
        or _unseen_since(found, series, worker) >= _LONG
    ]
    if not hidden:
        return []
    *most, last = map(str, hidden[:_NAMED])
    if len(hidden) > _NAMED:
        most, last = [*most, last], f"{len(hidden) - _NAMED} more"
    who = f"workers {', '.join(most)} and {last} are" if most else f"worker {last} is"
    return [
        f"How slow {who} now cannot be told: late for long, with nothing to show when "
        "the steps ended."
    ]


def _moving(share: float) -> str:
    return (
        f"Single steps take much longer now and then, {100 * share:.2g} % of all, but "
        "of one worker no more often than of others."
    )


def _gone_since(paces: SecondsByStep, worker: int) -> int | None:
    there = np.flatnonzero(paces.alive[:, worker])
    first = int(there[-1]) + 1 if there.size else 0
    return int(paces.steps[first]) if first < len(paces.steps) else None


def _scores(found: Ratios, lasts: Mapping[int, int]) -> tuple[Floats, Floats]:
    """Return by worker how it does against the others, and against its own best.

    Args:
        found: The ratios of all workers.
        lasts: For how many steps workers have been slow now; only these count for them.
    """
    steps, workers = found.values.shape
    now, best = np.full((2, workers), np.nan)
    stretches = rolling(found, SHORTEST) if steps >= SHORTEST else None
    for worker, count in enumerate(found.counts.tolist()):
        steps_now = min(_RECENT, lasts.get(worker) or _RECENT)
        recent = slice(max(0, count - steps_now), count)
        if not count:
            continue
        own, others, values = (
            float(np.median(each[recent, worker]))
            for each in (found.own, found.others, found.values)
        )
        now[worker] = math.exp(min(0.0, others - own))
        if stretches is not None and count >= SHORTEST:
            some = stretches[:, worker]
            lowest = float(np.quantile(some[np.isfinite(some)], _BEST))
            best[worker] = math.exp(min(0.0, lowest - values))
    return now, best


# -- verdicts ------------------------------------------------------------------------


def _judge(
    found: Ratios, series: Series, paces: SecondsByStep
) -> tuple[list[Verdict], float]:
    """Return the verdicts, and the share of slow steps that are nobody's own."""
    whom = _suspects(found)
    if not whom:
        return [], 0.0
    made, excess = limits(found, whom)
    verdicts, moving = [], 0.0
    for place, worker in enumerate(whom):
        cut = _cut(found, made, place, worker, float(excess[place]))
        if cut is None:
            continue
        runs = spells(cut)
        if runs[-1].end == len(cut):
            unseen = _unseen_since(found, series, worker)
            runs[-1] = Spell(runs[-1].first, runs[-1].end + unseen)
        kind = _kind(runs, max(len(cut), runs[-1].end))
        slow = found.values > made[0].limit[place]
        if kind in (Kind.SOMETIMES, Kind.ONE_OFF) and _is_common(cut, slow, worker):
            moving = float(slow.sum() / found.counts.sum())
            continue
        verdicts.append(_verdict(found, series, paces, worker, cut, runs, kind))
    return verdicts, moving


def _suspects(found: Ratios) -> list[int]:
    """Return the workers that may be slow; mostly nobody, and that is quick."""
    suspect = (found.values > TWICE).any(axis=0)
    if len(found.values) >= SHORTEST:
        suspect |= (rolling(found, SHORTEST) > WORTH).any(axis=0)
    return [int(worker) for worker in np.flatnonzero(suspect)]


def _cut(
    found: Ratios, made: list[Limit], place: int, worker: int, noise: float
) -> Bools | None:
    """Return which steps of a worker are slow; None if nothing stands out.

    What stands out at any length gives a level. The steps it leads to must stand out
    together, and of several levels the one counts that explains the most.
    """
    values = found.values[: found.counts[worker], worker]
    best, most = None, -math.inf
    for limit in made:
        medians = limit.medians[:, worker]
        high = medians[medians > limit.limit[place]]
        if not high.size:
            continue
        cut, gain = slow_steps(values, float(np.median(high)), noise)
        count = int(cut.sum())
        together = [each for each in made if each.length <= count]
        if len(together) > 1:
            floor = together[-1].limit[place]
            count = count if np.median(values[cut]) > floor else 0
        if count and gain > most:
            best, most = cut, gain
    return best


def _unseen_since(found: Ratios, series: Series, worker: int) -> int:
    """Return in how many steps a worker was late since it was last seen to finish."""
    count = found.counts[worker]
    last = int(found.rows[count - 1, worker]) if count else -1
    return int(series.is_bound[last + 1 :, worker].sum())


def _kind(runs: list[Spell], steps: int) -> Kind:
    slow = sum(run.length for run in runs)
    edges = [0, *(edge for run in runs for edge in (run.first, run.end)), steps]
    pause = max(b - a for a, b in zip(edges[0::2], edges[1::2], strict=True))
    if slow <= _FEW:
        return Kind.ONE_OFF
    last = runs[-1]
    # A single spell that began after a usual step has a step that it began with, even
    # where it fills nine tenths of a short run.
    began_later = len(runs) == 1 and last.first > 0
    if slow >= _ALWAYS * steps and pause < SHORTEST and not began_later:
        return Kind.ALWAYS
    before = slow - last.length
    lasts = last.end == steps and last.length >= _LASTING
    return Kind.TURNED if lasts and before <= _BEFORE * last.first else Kind.SOMETIMES


def _is_common(cut: Bools, slow: Bools, worker: int) -> bool:
    """Whether many others have such steps, too, and as often."""
    counts = np.delete(slow.sum(axis=0), worker)
    if np.count_nonzero(counts) <= slow.shape[1] / 4:
        return False
    rate = min(1.0, float(counts.sum()) / (len(slow) * len(counts)))
    chance = float(bdtrc(int(cut.sum()) - 1, len(cut), rate))
    return bool(chance > _CHANCE / slow.shape[1])


def _verdict(
    found: Ratios,
    series: Series,
    paces: SecondsByStep,
    worker: int,
    cut: Bools,
    runs: list[Spell],
    kind: Kind,
) -> Verdict:
    seen = slice(0, len(cut))
    own, others = found.own[seen, worker][cut], found.others[seen, worker][cut]
    rows = found.rows[seen, worker]
    numbers = paces.steps[rows]
    late = runs[-1].end - len(cut)  # steps since, in which it was only late
    is_on = late >= 0 and rows[-1] + late >= len(paces.steps) - _LASTING
    # A worker that is always slow may have single usual steps in between.
    began = runs[0 if kind is Kind.ALWAYS else -1].first
    return Verdict(
        worker=worker,
        kind=kind,
        cause=series.cause,
        factor=math.exp(float(np.median(own) - np.median(others))),
        is_bound=bool(found.is_bound[seen, worker][cut].mean() > 0.5),
        share=float(cut.mean()),
        since=int(numbers[began]),
        until=int(numbers[min(runs[-1].end, len(cut)) - 1]),
        lasts=runs[-1].length if is_on else 0,
        steps=tuple(int(step) for step in numbers[cut]),
    )
