"""How long a step takes, among workers of equal and of unequal speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from codedgrad.core import Scheme
from codedgrad.papers.drawing import Axis, Bars, Group
from codedgrad.papers.gc_dc.lab import (
    BOUND,
    FINEST,
    KNOWN,
    MODEL,
    USUAL,
    WORDS,
    ClusterLab,
    largest,
    moving,
)
from codedgrad.papers.gc_dc.settings import CLUSTERS, WORKERS, A, B, Spells, Unequal
from codedgrad.papers.measuring import Measured, mean, ratio
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table
from codedgrad.schemes import clustered, cyclic, fractional

Found: TypeAlias = tuple[Measured, dict[str, Measured]]
"""The mean step of GC, in seconds, and those of schemes over it."""

_RULES = ("threshold", "decodable")
_SEEN = {"GC-DC, who was late": "late", "GC-DC, learnt": "hidden"}
_LAST = "GC-DC, imperfect"


def _table(found: dict[str, Found], schemes: Sequence[str]) -> Table:
    """Return ratios for people, and seconds and errors besides in the file."""
    columns, rows = [Column("scheme")], []
    for case in found:
        columns += [
            Column(case, "GC = 1"),
            Column(f"{case}: mean step", "s", is_shown=False),
            Column(f"{case}: standard error", "GC = 1", is_shown=False),
        ]
    for name in schemes:
        cells: list[Cell] = [name]
        for gc, of in found.values():
            each = of.get(name)
            known = each and (each.value, gc.value * each.value, each.error)
            cells += known or (None, None, None)
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))


# -- workers of equal speed ------------------------------------------------------------


def completion(effort: Effort) -> Exhibit:
    """Return the mean step in both settings and by both stop rules."""
    runs, seen = effort.some(240, 24), effort.some(12, 4)
    lab = ClusterLab(effort, runs, seen, effort.some(300, 100), 1 / 8)
    found = {
        f"{setting} {rule}": _completion(lab, setting, rule)
        for setting in (A, B)
        for rule in _RULES
    }
    schemes = ("GC", "GC-SC", *_SEEN, *reversed(KNOWN), FINEST, BOUND)
    counted = [found[f"{setting} threshold"][1] for setting in (A, B)]
    in_a = {rule: found[f"{A} {rule}"][1] for rule in _RULES}
    return Exhibit(
        "completion",
        "Mean time of a step, workers of equal speed",
        f"{USUAL}, storage by cluster; A: r = {A.r} parts a worker, fast to slow "
        f"{A.enter:g}, slow to fast {A.leave:g} a step; B: r = {B.r}, both "
        f"{B.enter:g}. {MODEL} Rules: threshold counts, as the papers do; decodable "
        f"ends as soon as the sum is there. {lab}, late and learnt by events, in "
        f"{seen} of them; {largest([of for _, of in found.values()])}.",
        "GC-DC takes less time a step than GC, with no more messages; its abstract "
        "gives no number.",
        f"the settings, all numbers, and the filter. {WORDS}",
        (_ordered(counted), _dearer(counted), _against_repetition(in_a)),
        _table(found, schemes),
        tuple(_bars(str(setting), schemes, found) for setting in (A, B)),
    )


def _completion(lab: ClusterLab, setting: Spells, rule: str) -> Found:
    r, s, delays = setting.r, setting.r - 1, setting.delays
    known: dict[str, Scheme] = {}
    if WORKERS % r == 0:
        known[FINEST] = fractional(WORKERS, s, rule=rule)
    known["GC-SC"] = clustered(WORKERS, CLUSTERS, s, rule=rule)
    known |= {name: moving(r, state, rule) for name, state in KNOWN.items()}
    seen: dict[str, Scheme] = {n: moving(r, state, rule) for n, state in _SEEN.items()}
    gc, of = lab.ratios(cyclic(WORKERS, s, rule=rule), known, seen, delays)
    of["GC"] = Measured(1.0)
    if rule == "threshold":
        of[BOUND] = ratio(lab.bound(delays, r), gc)
    return mean(gc), of


def _bars(setting: str, schemes: Sequence[str], found: dict[str, Found]) -> Bars:
    none = Measured(float("nan"), 0.0)
    groups = []
    for rule in _RULES:
        gc, of = found[f"{setting} {rule}"]
        each = [of.get(name, none) for name in schemes]
        values = tuple(gc.value * one.value for one in each)
        errors = tuple(gc.value * one.error for one in each)
        groups.append(Group(f"rule {rule}", values, errors))
    x = Axis("mean step", "s")
    return Bars(f"setting {setting}", x, tuple(schemes), tuple(groups))


def _ordered(counted: Sequence[dict[str, Measured]]) -> str:
    chain = (BOUND, *KNOWN, "GC-SC", "GC")
    values = [[of[name].value for name in chain] for of in counted]
    holds = all(each == sorted(each) for each in values)
    verdict = "holds in A and B" if holds else "does not hold here"
    saved = [100 * (1 - of[_LAST].value) for of in counted]
    return (
        f"the order {' < '.join(chain)} {verdict} (rule threshold); GC-DC with "
        f"imperfect knowledge takes {saved[0]:.0f} % (A) and {saved[1]:.0f} % (B) less "
        "time than GC."
    )


def _dearer(counted: Sequence[dict[str, Measured]]) -> str:
    said = []
    for name in _SEEN:
        lost = [of[name].value / of[_LAST].value for of in counted]
        said.append(f"{name.removeprefix('GC-DC, ')} {lost[0]:.2f} and {lost[1]:.2f}")
    return (
        "a root sees times and not states: of the step with imperfect knowledge, in A "
        f"and B, {'; '.join(said)} times as long."
    )


def _against_repetition(by_rule: dict[str, dict[str, Measured]]) -> str:
    said = []
    for rule, of in by_rule.items():
        fine, known = of[FINEST].value, of["GC-DC, perfect"].value
        verb = "is faster" if fine < known else "is not faster"
        said.append(f"{verb} by rule {rule} ({fine:.2f} and {known:.2f} of GC)")
    return (
        f"in A {FINEST}, static and of the same load, against GC-DC in {CLUSTERS} "
        f"clusters with perfect knowledge: it {', and '.join(said)}."
    )


# -- workers of unequal speed ----------------------------------------------------------


def speeds(effort: Effort) -> Exhibit:
    """Return the mean step among workers of unequal speed."""
    runs, seen = effort.some(300, 60), effort.some(16, 4)
    lab = ClusterLab(effort, runs, seen, effort.some(60, 60), 1 / 6)
    found = {
        "no spells, r=2": _speeds(lab, 2, Unequal()),
        "A's, r=2": _speeds(lab, 2, Unequal(A.enter, A.leave)),
        "B's, r=3": _speeds(lab, 3, Unequal(B.enter, B.leave)),
    }
    first, *schemes = found["no spells, r=2"][1]
    groups = tuple(
        Group(
            f"spells: {case}" if case[0] != "n" else case,
            tuple(of[name].value for name in schemes),
            tuple(of[name].error for name in schemes),
        )
        for case, (_, of) in found.items()
    )
    heading = "rates from 1 to 20 parts a second"
    return Exhibit(
        "speeds",
        "Mean time of a step, workers of unequal speed",
        f"{USUAL}, rule threshold; rates uniform from 1 to 20 parts a second, drawn "
        f"once a run, a tenth of it in a slow spell; late workers stop at once. {lab}; "
        f"mean speeds and learnt by events, in {lab.seen} of them; "
        f"{largest([of for _, of in found.values()])}.",
        "GC-DC beats GC among heterogeneous workers, too; the law of their speeds and "
        "how they are spread could not be read.",
        "the law of speeds, and tiers: one worker of every class of speed in every "
        "cluster. States: only who is in a slow spell counts.",
        (
            _tiers([of for _, of in found.values()]),
            _for_good(found["no spells, r=2"][1]),
        ),
        _table(found, (first, *schemes)),
        (Bars(heading, Axis("mean step", "GC = 1"), tuple(schemes), groups),),
    )


def _speeds(lab: ClusterLab, r: int, law: Unequal) -> Found:
    static = clustered(WORKERS, CLUSTERS, r - 1, rule="threshold")
    known: dict[str, Scheme] = {"GC-SC": static}
    for spread, words in (("exact", "states"), ("tiers", "tiers")):
        for name, state in KNOWN.items():
            known[f"{name}, {words}"] = moving(r, state, spread=spread)
    measured = {"GC-DC, mean speeds": "speed", "GC-DC, learnt": "hidden"}
    seen: dict[str, Scheme] = {n: moving(r, state) for n, state in measured.items()}
    base = cyclic(WORKERS, r - 1, rule="threshold")
    gc, of = lab.ratios(base, known, seen, law)
    return mean(gc), {"GC": Measured(1.0), **of}


def _tiers(found: Sequence[dict[str, Measured]]) -> str:
    tiers = [of[f"{_LAST}, tiers"].value for of in found]
    static, states = (
        [of[name].value for of in found] for name in ("GC-SC", f"{_LAST}, states")
    )
    beaten = all(t < s for t, s in zip(tiers, static, strict=True))
    better = all(t < s for t, s in zip(tiers, states, strict=True))
    shown = ", ".join(f"{t / s:.2f}" for t, s in zip(tiers, static, strict=True))
    return (
        f"tiers {'beat' if beaten else 'do not always beat'} static clusters ({shown} "
        f"of GC-SC, imperfect) and are {'' if better else 'not '}better than states in "
        "all three."
    )


def _for_good(of: dict[str, Measured]) -> str:
    static = of["GC-SC"].value
    states, speeds = of[f"{_LAST}, states"].value, of["GC-DC, mean speeds"].value
    return (
        "where speeds differ for good and nobody has a spell, states take "
        f"{states / static:.2f} of the time of GC-SC: they tell nothing; speeds that "
        f"are measured take {speeds / static:.2f}."
    )
