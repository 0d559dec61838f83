"""What messages cost: a link that is slow, and one that is shared fairly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from codedgrad.core import Scheme
from codedgrad.papers.drawing import Axis, Bars, Curve, FigurePanel, Group
from codedgrad.papers.measuring import Floats
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table
from codedgrad.papers.two_stage.lab import (
    ABSTRACT,
    FRESH,
    LAW,
    OFTEN,
    ONE_STAGE,
    RE_USED,
    UNCODED,
    WORKERS,
    law,
    over,
    schemes,
)
from codedgrad.schemes import fractional
from codedgrad.sim import Machine, Network, compare
from codedgrad.uplink import Link

Found: TypeAlias = dict[str, Floats]
"""Seconds of every step, (1, steps), by the label of the scheme."""

_FRACTIONAL = ONE_STAGE[1]


def _seconds(
    of: dict[str, Scheme], network: Network | None, steps: int, effort: Effort
) -> Found:
    machine = Machine(drain=False, network=network)
    results = compare(
        list(of.values()), law(), steps=steps, seed=effort.seed, machine=machine
    )
    return {label: r.seconds for label, r in zip(of, results, strict=True)}


# -- a slow link -----------------------------------------------------------------------

_LENGTHS = (0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0)  # seconds that a message takes
_LONGEST = _LENGTHS[-1]


def messages(effort: Effort) -> Exhibit:
    """Return the mean step by how long a message keeps the link."""
    steps = effort.some(800, 60)
    of = schemes(UNCODED, _FRACTIONAL, FRESH, RE_USED)
    found: dict[float, Found] = {}
    for length in _LENGTHS:
        found[length] = _seconds(of, Network(port=length), steps, effort)
        effort.advance(1 / len(_LENGTHS))
    return Exhibit(
        "messages",
        "Where it does not pay: messages that take long",
        f"{LAW}, drawn anew for stage 2; p = {OFTEN:g}. The root takes one message at "
        "a time, in the order in which they come, each for as long as said; a part "
        f"takes about 1 s. Rule decodable; late workers stop at once. {steps} steps a "
        f"point, seed {effort.seed}.",
        f"computation and transmission delay are both modelled. {ABSTRACT}",
        "all of it.",
        (_slow(found), _waited(found)),
        _lengths_table(found),
        (_lengths_panel(found),),
    )


def _lengths_table(found: dict[float, Found]) -> Table:
    labels = tuple(found[0.0])
    columns = [Column("message [s]"), *(Column(n, "s", ".2f") for n in labels)]
    columns.append(Column("re-use / fractional", "ratio", ".2f"))
    columns.append(Column("standard error", "ratio", is_shown=False))
    rows: list[tuple[Cell, ...]] = []
    for length, of in found.items():
        ratio = over(of[RE_USED], of[_FRACTIONAL])
        means = [float(of[label].mean()) for label in labels]
        rows.append((f"{length:g}", *means, ratio.value, ratio.error))
    return Table(tuple(columns), tuple(rows))


def _lengths_panel(found: dict[float, Found]) -> FigurePanel:
    curves = tuple(
        Curve(label, _LENGTHS, [float(of[label].mean()) for of in found.values()])
        for label in found[0.0]
    )
    x = Axis("a message keeps the link for", "s")
    most = max(max(curve.y) for curve in curves)
    y = Axis("mean step", "s", limits=(0.0, 1.08 * most))
    return FigurePanel("one link for all messages", x, y, curves)


def _slow(found: dict[float, Found]) -> str:
    ratios = {x: over(of[RE_USED], of[_FRACTIONAL]) for x, of in found.items()}
    paid = [x for x, ratio in ratios.items() if ratio.is_below(1.0)]
    until = f"with messages of up to {max(paid):g} s" if paid else "nowhere"
    last = ratios[_LONGEST]
    verdict = "does not pay" if last.is_above(1.0) else "is no slower"
    return (
        f"{RE_USED} is faster than {_FRACTIONAL} {until}, {ratios[0.0]} of its mean "
        f"step where they take no time; at {_LONGEST:g} s it {verdict}, {last}: the "
        "second stage sends more of them."
    )


def _waited(found: dict[float, Found]) -> str:
    first, last = found[0.0], found[_LONGEST]
    early, late = (over(of[RE_USED], of[UNCODED]) for of in (first, last))
    verb = "loses" if late.is_above(1.0) else "does not lose"
    return (
        f"against {UNCODED} it {verb} at {_LONGEST:g} s, {late} of its mean step "
        f"({early} where messages take no time)."
    )


# -- a fair link -----------------------------------------------------------------------

_SLOT = 0.1
_ALONE = tuple(np.geomspace(0.8, 0.1, WORKERS).round(3).tolist())
_POLICIES = {"fair": "fair", "max rate": "max_rate", "round robin": "round_robin"}


def fairness(effort: Effort) -> Exhibit:
    """Return the mean step by policy of the link, where a code needs only some."""
    steps = effort.some(800, 40)
    of = schemes(UNCODED, _FRACTIONAL)
    of |= {"fractional, s = 3": fractional(WORKERS, 3)} | schemes(RE_USED)
    found: dict[str, Found] = {}
    for name, policy in _POLICIES.items():
        link = Link(policy, slot=_SLOT, seconds=_ALONE)
        found[name] = _seconds(of, Network(link=link), steps, effort)
        effort.advance(1 / len(_POLICIES))
    return Exhibit(
        "fairness",
        "What a fair link costs, where not everybody is needed",
        f"{LAW}, drawn anew for stage 2; p = {OFTEN:g}. One link, slots of {_SLOT:g} "
        f"s; a message takes its worker {_ALONE[0]:g} to {_ALONE[-1]:g} s, the slowest "
        "to compute has the fastest link. Fair: V as large as keeps less than a "
        "message in a queue, beta 10 / lowest rate. Rule decodable; late workers stop "
        f"at once. {steps} steps, seed {effort.seed}.",
        "the uplink balances fairness of the data admitted and throughput. "
        f"{ABSTRACT} What that does to the time of a step is not said there.",
        "all of it.",
        (_cost(found, list(of)), _against(found, list(of))),
        _policy_table(found, list(of)),
        (_policy_bars(found, list(of)),),
    )


def _policy_table(found: dict[str, Found], labels: Sequence[str]) -> Table:
    columns = [Column("scheme"), *(Column(name, "s", ".2f") for name in found)]
    columns += [
        Column("fair / max rate", "ratio"),
        Column("standard error", "ratio"),
    ]
    rows: list[tuple[Cell, ...]] = []
    for label in labels:
        ratio = over(found["fair"][label], found["max rate"][label])
        means = [float(of[label].mean()) for of in found.values()]
        rows.append((label, *means, ratio.value, ratio.error))
    return Table(tuple(columns), tuple(rows))


def _policy_bars(found: dict[str, Found], labels: Sequence[str]) -> Bars:
    groups = tuple(
        Group(name, tuple(float(of[label].mean()) for label in labels))
        for name, of in found.items()
    )
    return Bars("by policy of the link", Axis("mean step", "s"), tuple(labels), groups)


def _cost(found: dict[str, Found], labels: Sequence[str]) -> str:
    ratios = {n: over(found["fair"][n], found["max rate"][n]) for n in labels}
    dearer = [n for n, ratio in ratios.items() if ratio.is_above(1.0)]
    verdict = "costs time" if dearer else "costs no time that could be told"
    said = ", ".join(f"{ratio} ({n})" for n, ratio in ratios.items())
    return f"a fair link {verdict}: of the mean step with max rate, {said}."


def _against(found: dict[str, Found], labels: Sequence[str]) -> str:
    best = {n: _quickest({p: float(found[p][n].mean()) for p in found}) for n in labels}
    said = ", ".join(f"{best[n]} for {n}" for n in labels)
    alike = len(set(best.values())) == 1
    moral = "it is the same for all" if alike else "it hangs on the scheme"
    return f"the quickest policy is {said}: {moral}."


def _quickest(means: dict[str, float]) -> str:
    """Return the policy of the least mean; `any` where all are within 1 %."""
    if max(means.values()) < 1.01 * min(means.values()):
        return "any"
    return min(means, key=means.__getitem__)
