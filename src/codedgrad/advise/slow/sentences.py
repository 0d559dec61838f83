"""What there is to say about who is slow: sentences, rows of a table, JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from codedgrad.advise.slow.verdicts import Kind, Slowness, Standing, Verdict

HEADS = ("worker", "what", "cause", "times", "steps [%]", "since", "now", "best")


def said(slowness: Slowness) -> list[str]:
    """Return the verdicts in plain sentences, the worst first.

    Example:
        >>> from codedgrad.advise import read_paces, who_is_slow
        >>> said(who_is_slow(read_paces("AR")))
        ['worker 0 is 2.25 times as slow as the others, always (compute)']
        >>> said(who_is_slow(read_paces("SE")))
        ['nobody is slow']
    """
    told = [sentence(verdict) for verdict in slowness.verdicts]
    if not told:
        told = [_cannot_tell(slowness) or "nobody is slow"]
    gone = [
        f"worker {each.worker} is gone since step {each.gone_since}"
        for each in slowness.standings
        if each.gone_since is not None
    ]
    lost = [
        _lost(each)
        for each in slowness.standings
        if each.lost and each.gone_since is None
    ]
    return told + gone + lost


def _lost(standing: Standing) -> str:
    """Say how often a worker's process was lost, and when last."""
    worker, times, last = standing.worker, len(standing.lost), standing.lost[-1]
    if times == 1:
        return f"worker {worker} was lost in step {last} and came back"
    return f"worker {worker} was lost {times} times and came back, last in step {last}"


def _cannot_tell(slowness: Slowness) -> str:
    """Return why slow workers cannot be told from others, or ""."""
    if len(slowness.standings) < 2:
        return (
            "cannot tell which worker is slow: there is no other worker to compare with"
        )
    if not slowness.is_too_short:
        return ""
    ended = {0: "no step has", 1: "1 step has"}.get(
        slowness.steps, f"{slowness.steps} steps have"
    )
    return (
        f"cannot tell which worker is slow: {ended} ended, and {slowness.needed} "
        "steps are needed"
    )


def sentence(verdict: Verdict) -> str:
    """Return a verdict in a plain sentence, without a full stop."""
    least = "at least " if verdict.is_bound else ""
    how = f"{least}{times_text(verdict.factor)} times as slow as the others"
    match verdict.kind:
        case Kind.ALWAYS:
            told = f"is {how}, always"
        case Kind.TURNED:
            told = f"is {how}, since step {verdict.since}"
        case Kind.SOMETIMES:
            told = f"is {how} in {_percent(verdict.share)} % of its steps"
            if verdict.lasts:
                told += f", again since step {verdict.since}"
            else:
                told += f", last in step {verdict.until}"
        case Kind.ONE_OFF if verdict.lasts == len(verdict.steps):
            told = (
                f"was {how} in {_steps(verdict.steps)}, the last: too few steps to "
                "tell whether it stays slow"
            )
        case Kind.ONE_OFF:
            told = f"was {how} in {_steps(verdict.steps)} only"
    return f"worker {verdict.worker} {told} ({verdict.cause})"


def in_short(verdict: Verdict) -> str:
    """Return what is wrong now, as short as on a screen that moves.

    Example:
        >>> in_short(Verdict(2, Kind.TURNED, "compute", 9.96, False, 0.1, 7, 18, 12,
        ...                  (7,)))
        'worker 2: 10x slow for 12 steps'
    """
    least = "at least " if verdict.is_bound else ""
    steps = "1 step" if verdict.lasts == 1 else f"{verdict.lasts} steps"
    cause = ", network" if verdict.cause == "network" else ""
    factor = f"{verdict.factor:.{1 if verdict.factor < 9.95 else 0}f}"
    told = f"{least}{factor}x slow for {steps}{cause}"
    return f"worker {verdict.worker}: {told}"


def rows(slowness: Slowness, everybody: bool = False) -> list[tuple[str, ...]]:
    """Return the rows under `HEADS`: who something is wrong with, the worst first.

    Args:
        slowness: What was found.
        everybody: Go on with all others, by number.
    """
    standings = slowness.standings
    found = [_row(standings[each.worker], each) for each in slowness.verdicts]
    found += [_row(each) for each in standings if _is_only_gone(each)]
    if everybody:
        fine = "too few steps" if slowness.is_too_short else "nothing wrong"
        found += [_row(each, fine=fine) for each in standings if each.is_fine]
    return found


def rest(slowness: Slowness) -> str:
    """Return a line about those with whom nothing is wrong; empty if there are none."""
    fine = [each for each in slowness.standings if each.is_fine]
    scores = [each.now for each in fine if math.isfinite(each.now)]
    if not fine or not scores or slowness.is_too_short:
        return ""
    whole = len(fine) == len(slowness.standings)
    who = f"all {len(fine)} workers" if whole else f"the other {len(fine)}"
    return f"{who}: nothing wrong, now {_score(min(scores))} to {_score(max(scores))}"


def for_machines(slowness: Slowness) -> dict[str, Any]:
    """Return everything as JSON has it, None for what is not a number."""
    return {
        "steps": slowness.steps,
        "steps_needed": slowness.needed,
        "said": said(slowness),
        "savings": None if slowness.savings is None else asdict(slowness.savings),
        "doubts": list(slowness.doubts),
        "remarks": list(slowness.remarks),
        "workers": [
            {
                "worker": each.worker,
                "name": each.name,
                "now": _finite(each.now),
                "best": _finite(each.best),
                "gone_since": each.gone_since,
                "lost": list(each.lost),
                "slow": [_told(verdict) for verdict in each.verdicts],
            }
            for each in slowness.standings
        ],
    }


def times_text(factor: float) -> str:
    """Return a factor with three digits.

    Example:
        >>> times_text(2.2523), times_text(10.004), times_text(1234.5)
        ('2.25', '10', '1234')
    """
    return f"{factor:.3g}" if factor < 1000 else f"{factor:.0f}"


def _told(verdict: Verdict) -> dict[str, Any]:
    return {
        "kind": str(verdict.kind),
        "cause": verdict.cause,
        "factor": verdict.factor,
        "is_bound": verdict.is_bound,
        "share": verdict.share,
        "since": verdict.since,
        "until": verdict.until,
        "lasts": verdict.lasts,
        "steps": list(verdict.steps),
    }


def _row(
    standing: Standing, verdict: Verdict | None = None, fine: str = "nothing wrong"
) -> tuple[str, ...]:
    name = str(standing.worker)
    if standing.name not in (name, f"worker{name}"):
        name += f" ({standing.name})"
    scores = _score(standing.now), _score(standing.best)
    if verdict is None:
        gone = standing.gone_since
        what = fine if math.isfinite(standing.now) else "not seen"
        what = what if gone is None else "gone"
        return (name, what, "-", "-", "-", "-" if gone is None else str(gone), *scores)
    least = ">= " if verdict.is_bound else ""
    return (
        name,
        str(verdict.kind),
        verdict.cause,
        f"{least}{times_text(verdict.factor)}",
        _percent(verdict.share),
        str(verdict.since),
        *scores,
    )


def _is_only_gone(standing: Standing) -> bool:
    return standing.gone_since is not None and not standing.verdicts


def _steps(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f"step {steps[0]}"
    *most, last = map(str, steps)
    return f"steps {', '.join(most)} and {last}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.01 else f"{100 * share:.1g}"


def _score(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "-"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
