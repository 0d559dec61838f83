"""What came of runs, in a sentence.

Only what was measured is compared. What waiting for all would have taken, in a run that
did not wait for all, is an estimate with a range: `codedgrad.learning.waiting`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from codedgrad.view.comparison import percent
from codedgrad.view.subjects import Fate, Subject
from codedgrad.view.summaries import Summary, seconds_text, summary

_NAMED = 3  # workers in a sentence
_BLOCKS = 10  # stretches of steps whose means are as good as independent


def verdict_on(subjects: Sequence[Subject]) -> str:
    """Say in plain words what came of it; only measured runs are compared."""
    figures = [summary(subject) for subject in subjects]
    some = [(s, f) for s, f in zip(subjects, figures, strict=True) if f.steps]
    whole = [(s, f) for s, f in some if f.steps > f.gave_up]
    if not some and any(subject.lines for subject in subjects):
        return "Its trace is missing: who was late, and what that cost, is not known."
    if not some:
        return "No step has ended yet."
    if not whole:
        return "Every step was given up: there was not one sum."
    said = _on_several(whole) if len(whole) > 1 else _on_one(*whole[0])
    if len(whole) == 1 < len(subjects):
        said = f"“{whole[0][0].title}”: {said}"
    for subject in subjects:
        if len(subjects) > 1 and not len(subject.reports):
            said += f" No step of “{subject.title}” has ended yet."
    for _, each in some:
        if each.gave_up:
            which = f"“{each.title}”" if len(subjects) > 1 else "It"
            said += f" {which} gave up {each.gave_up} of its {each.steps} steps."
    return said


def _on_several(whole: Sequence[tuple[Subject, Summary]]) -> str:
    base = next((pair for pair in whole if pair[1].waited_for_all), whole[0])
    others = [pair for pair in whole if pair is not base]
    best = min(others, key=lambda pair: pair[1].mean_seconds)
    ours, theirs = best[1].mean_seconds, base[1].mean_seconds
    names = f"“{best[1].title}”", f"“{base[1].title}”{_which_waits(base[1])}"
    where = "simulated steps" if all(s.is_simulated for s, _ in whole) else "steps"
    if not _is_clear(best[0], base[0]):
        return (
            f"No clear difference: {where} took {seconds_text(ours)} on average with "
            f"{names[0]} and {seconds_text(theirs)} with {names[1]}."
        )
    if ours > theirs:
        return (
            f"Nothing gained: {where} took {seconds_text(theirs)} on average with "
            f"{names[1]} and {seconds_text(ours)} with {names[0]}"
            f"{_as_long(ours, theirs)}."
        )
    fastest = f", the fastest of {len(whole)}," if len(whole) > 2 else ""
    said = (
        f"{where.capitalize()} took {seconds_text(ours)} on average with {names[0]}"
        f"{fastest} and {seconds_text(theirs)} with {names[1]}"
        f"{_as_long(theirs, ours)}."
    )
    if best[1].exact < min(1.0, base[1].exact):
        inexact = percent(1 - best[1].exact)
        said += f" But {inexact} of the sums of {names[0]} were not exact."
    return said


def _which_waits(figures: Summary) -> str:
    needs = figures.waited_for_all and "wait" not in figures.title.lower()
    return " (waiting for all)" if needs else ""


def _as_long(more: float, less: float) -> str:
    if not less > 0:
        return ""
    ratio = more / less
    return f": {ratio:.{2 if ratio >= 1.2 else 3}g} times as long"


def _is_clear(one: Subject, other: Subject) -> bool:
    """Return whether two mean steps differ by more than chance in 19 of 20 cases."""
    means, variance, count = [], 0.0, 1e9
    for subject in (one, other):
        seconds = subject.seconds[subject.combined]
        blocks = np.array_split(seconds, min(_BLOCKS, len(seconds)))
        if len(blocks) < 2:
            return False
        each = np.array([block.mean() for block in blocks])
        means.append(float(seconds.mean()))
        variance += float(each.var(ddof=1)) / len(each)
        count = min(count, len(each))
    limit = float(stdtrit(count - 1, 0.975)) * math.sqrt(variance)
    return abs(means[0] - means[1]) > limit


def _on_one(subject: Subject, figures: Summary) -> str:
    mean, n = seconds_text(figures.mean_seconds), figures.workers
    step = "simulated step" if subject.is_simulated else "step"
    if figures.waited_for_all:
        answers = subject.answers[subject.combined]
        half = np.mean([np.nanmedian(row) for row in answers if np.isfinite(row).any()])
        if subject.kind == "recording":
            return (
                f"Waiting for all {n} workers takes {mean} a step on average; half of "
                f"the workers are done after {seconds_text(float(half))}."
            )
        return (
            f"Every {step} waited for all {n} workers and took {mean} on average; half "
            f"of the workers had answered after {seconds_text(float(half))}."
        )
    told = f"{subject.savings}. "
    told = told[:1].upper() + told[1:]
    late = _late_workers(subject)
    if late:
        return f"{told}{late}"
    return f"{told}No worker was late: a {step} heard {figures.heard:.3g} of {n}."


def _late_workers(subject: Subject) -> str:
    """Say which workers were late most often; empty if none was."""
    share = (subject.fates[subject.combined] == Fate.LATE).mean(axis=0)
    often = [int(worker) for worker in np.argsort(-share) if share[worker] > 0]
    told = [
        f"worker {subject.workers[worker]} in {percent(float(share[worker]))}"
        for worker in often[:_NAMED]
    ]
    if not told:
        return ""
    more = f" and {len(often) - _NAMED} more" if len(often) > _NAMED else ""
    return f"Late: {', '.join(told)} of the steps{more}."


def caveats(subjects: Sequence[Subject]) -> list[str]:
    """Say what one should know before one believes a comparison."""
    said = []
    for name, values in _conditions(subjects).items():
        if len(set(values)) > 1:
            each = ", ".join(
                f"{value} (“{subject.title}”)"
                for subject, value in zip(subjects, values, strict=True)
            )
            said.append(f"The {name} differ: {each}.")
    if len({subject.is_simulated for subject in subjects}) > 1:
        said.append("Simulated seconds are compared with measured ones.")
    for subject in subjects:
        if subject.lines and subject.reports:
            first, traced = subject.lines[0].step, subject.reports[0].step
            if first < traced:
                said.append(
                    f"The trace of “{subject.title}” begins with step {traced}: steps "
                    "before had other workers or another scheme, or were not kept. "
                    "Loss and scores are of all steps, the rest is from there on."
                )
        if subject.kind == "recording" and len(subjects) > 1:
            said.append(
                f"A step of “{subject.title}” is taken to last as long as its slowest "
                "worker; sending and adding up are not in it."
            )
    return said


def _conditions(subjects: Sequence[Subject]) -> dict[str, list[str]]:
    found = {"numbers of workers": [str(len(s.workers)) for s in subjects]}
    if all(subject.kind == "run" for subject in subjects):
        for name, fact in (("data sets", "data"), ("batches", "batch")):
            found[name] = [subject.facts.get(fact, "none") for subject in subjects]
    return found
