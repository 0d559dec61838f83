"""The uplink: who delivers how much by which policy, with batteries and without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codedgrad.papers.drawing import Axis, Bars, Group
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table
from codedgrad.papers.two_stage.uplink import CLAIM, MODEL, MOST, RATES, Delivered, run
from codedgrad.uplink.batteries import Battery
from codedgrad.uplink.bounds import jain, static_optimum, utility
from codedgrad.uplink.fair import Uplink
from codedgrad.uplink.rivals import POLICIES
from codedgrad.uplink.slots import Policy

_V, _FAIRER, _BATTERY_V = 100.0, 20.0, 5.0
_POWER, _HARVEST = 1.0, 0.3  # energy of a slot, and the most on offer in one
_RIVALS = {
    "max rate": "max_rate",
    "round robin": "round_robin",
    "longest queue": "longest_queue",
    "max weight": "max_weight",
}
_FAIR, _EVEN = "fair, beta = 1", f"fair, beta = {_FAIRER:g}"
_SAFE, _FIVE, _EMPTY = "theta as derived", "theta = 5", "theta = 0"
_ALONE = "theta = 5, not shared"


def shares(effort: Effort) -> Exhibit:
    """Return who delivers how much, by policy."""
    slots = effort.some(60_000, 6000)
    made = _policies()
    harvest = np.random.default_rng(effort.seed).uniform(0, _HARVEST, (slots, 4))
    found: dict[str, Delivered] = {}
    for name, make in made.items():
        energy = harvest.tolist() if name.startswith("theta") else None
        found[name] = run(make(), slots, energy)
        effort.advance(1 / len(made))
    best = static_optimum(RATES, MOST)
    return Exhibit(
        "shares",
        "The uplink: who delivers how much",
        f"{MODEL}; what the first one leaves of a slot is handed on. Fair: "
        f"V = {_V:g}. Rows with theta: fair with batteries, V = {_BATTERY_V:g}; a slot "
        f"costs {_POWER:g}, up to {_HARVEST:g} on offer in each; theta: the level that "
        "they are filled to; short: of slots, those in which one runs out. Waits: at "
        "the end. Jain: 1 if all deliver the same; utility with beta = 1, in nats, at "
        f"best {utility(best):.3f} without batteries. {slots} slots, seed "
        f"{effort.seed}.",
        CLAIM,
        "queues, weights, rivals and all numbers; theta = P + (V beta + 2 Amax) r / P, "
        "P the energy of a slot, r the rate, Amax what may be offered.",
        (_fairness(found), _admission(found), _batteries(found)),
        _table(found),
        _bars(found),
    )


def _policies() -> dict[str, Callable[[], Policy]]:
    def fair(beta: float) -> Policy:
        return Uplink(len(RATES), V=_V, beta=beta, most=MOST, peaks=RATES)

    def rival(name: str) -> Policy:
        make = POLICIES[name]
        return make(len(RATES), V=_V, beta=1.0, most=MOST, peaks=RATES)

    def battery(theta: float | None, shared: bool = True) -> Policy:
        cell = Battery(_POWER, _HARVEST, theta)
        return Uplink(
            len(RATES),
            V=_BATTERY_V,
            most=MOST,
            peaks=RATES,
            battery=cell,
            shared=shared,
        )

    rivals = {n: (lambda name=name: rival(name)) for n, name in _RIVALS.items()}
    return {
        _FAIR: lambda: fair(1.0),
        _EVEN: lambda: fair(_FAIRER),
        **rivals,
        _SAFE: lambda: battery(None),
        _FIVE: lambda: battery(5.0),
        _ALONE: lambda: battery(5.0, shared=False),
        _EMPTY: lambda: battery(0.0),
    }


def _table(found: dict[str, Delivered]) -> Table:
    columns = (
        Column("policy"),
        *(Column(f"rate {rate:g}", "bits", ".2f") for rate in RATES),
        Column("Jain", "", ".2f"),
        Column("utility", "", ".2f"),
        Column("waits", "bits", ".0f"),
        Column("short", "%", ".0f"),
    )
    rows: list[tuple[Cell, ...]] = []
    for name, sent in found.items():
        short = 100 * sent.short if name.startswith("theta") else None
        fair = jain(sent.rates) if any(sent.rates) else None
        rows.append((name, *sent.rates, fair, sent.utility, sent.end, short))
    return Table(columns, tuple(rows))


def _bars(found: dict[str, Delivered]) -> tuple[Bars, ...]:
    names = (_FAIR, _EVEN, *_RIVALS)
    groups = tuple(
        Group(f"worker of rate {rate:g}", tuple(found[n].rates[i] for n in names))
        for i, rate in enumerate(RATES)
    )
    fair = Group("Jain's index", tuple(jain(found[name].rates) for name in names))
    return (
        Bars("delivered", Axis("bits delivered", "a slot"), names, groups),
        Bars("fairness", Axis("Jain's index", "1 = equal"), names, (fair,)),
    )


def _fairness(found: dict[str, Delivered]) -> str:
    even, fair, greedy = (found[n] for n in (_EVEN, _FAIR, "max rate"))
    gain = jain(even.rates) - jain(greedy.rates)
    verb = "is fairer than" if gain > 0.05 else "is not fairer than"
    starved = " (its slowest worker gets nothing)" if fair.rates[0] < 0.01 else ""
    return (
        f"{_EVEN} {verb} max rate, Jain {jain(even.rates):.2f} against "
        f"{jain(greedy.rates):.2f}, for {sum(even.rates) / sum(greedy.rates):.2f} of "
        f"its throughput; {_FAIR} has Jain {jain(fair.rates):.2f}{starved} and "
        f"utility {fair.utility:.2f} against {even.utility:.2f}: beta sets what is "
        "fair."
    )


def _admission(found: dict[str, Delivered]) -> str:
    best = max(_RIVALS, key=lambda name: found[name].utility)
    fair, rival = found[_FAIR], found[best]
    verb = "more" if fair.utility > rival.utility else "no more"
    return (
        f"{_FAIR} has {verb} utility than the best rival, {best} "
        f"({fair.utility:.3f} against {rival.utility:.3f}); at the end "
        f"{fair.end:.0f} bits wait against {rival.end:.0f}: rivals admit everything."
    )


def _batteries(found: dict[str, Delivered]) -> str:
    safe, five, alone = (found[name] for name in (_SAFE, _FIVE, _ALONE))
    who = "no slot is" if safe.short == 0 else f"{100 * safe.short:.0f} % of slots are"
    return (
        f"with theta as derived {who} short of energy, utility {safe.utility:.3f}; "
        f"with theta = 5, {100 * five.short:.0f} % of slots are, which "
        f"{_costs(five, safe)} where the rest of a slot is handed on "
        f"({five.utility:.3f}) and {_costs(alone, safe)} where it is not "
        f"({alone.utility:.3f}). With theta = 0 batteries are never filled, and "
        f"{sum(found[_EMPTY].rates):.2g} bits a slot are sent."
    )


def _costs(one: Delivered, other: Delivered) -> str:
    lost = 1 - one.utility / other.utility
    return f"costs {100 * lost:.0f} % of it" if lost > 0.02 else "costs nothing"
