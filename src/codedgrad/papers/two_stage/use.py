"""How well workers and the link are used, and how much of it is of use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from codedgrad.papers.drawing import Axis, Bars, Group
from codedgrad.papers.measuring import Measured
from codedgrad.papers.paper import Column, Effort, Exhibit, Table, listed
from codedgrad.papers.two_stage.lab import (
    ABSTRACT,
    AT_ONCE,
    FEW,
    FEW_COPIES,
    FRESH,
    HELD,
    LAW,
    OFTEN,
    ONE_STAGE,
    PLANNED,
    RE_USED,
    WORKERS,
    law,
    over,
    schemes,
)
from codedgrad.schemes import build
from codedgrad.sim import Machine, Network, Result, compare
from codedgrad.uplink import Link

MESSAGE, SLOT = 0.2, 0.1  # seconds that a message takes, and those of a slot
_TWO = (FRESH, RE_USED, PLANNED)


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """What came of a scheme.

    Attributes:
        ideal: Late workers stop at once, and messages take no time.
        drained: Late workers finish the part in hand.
        linked: Messages go through a link in slots.
    """

    ideal: Result
    drained: Result
    linked: Result

    @property
    def busy(self) -> Measured:
        """Share of the workers' time spent on parts, in percent."""
        share = over(self.ideal.busy, self.ideal.seconds)
        scale = 100 / WORKERS
        return Measured(scale * share.value, scale * share.error)

    @property
    def wasted(self) -> float:
        """Share of the parts computed that are copies the sum did not need, percent."""
        return 100 * (1 - 1 / self.ideal.summary()["work"])

    @property
    def messages(self) -> float:
        """Messages heard in a step."""
        return self.ideal.summary()["messages"]

    @property
    def carried(self) -> float:
        """Share of the link's time that messages heard took, in percent."""
        time = float(self.linked.seconds.sum())
        return 100 * MESSAGE * float(self.linked.messages.sum()) / time


def use(effort: Effort) -> Exhibit:
    """Return how busy workers and the link are, and how much of it is wasted."""
    steps = effort.some(600, 70)
    found = _found(effort, steps)
    return Exhibit(
        "use",
        "Use of the workers and of the link",
        f"{LAW}, drawn anew for stage 2; p = {OFTEN:g}. Busy: of the workers' time; "
        "work: parts computed, over those there are; wasted: of those computed, copies "
        "that the sum did not need; late workers stop at once (drain: finish the part "
        f"in hand). Link: one for all, fair, a message takes {MESSAGE:g} s, slots of "
        f"{SLOT:g} s; in use: by messages heard. Rule decodable; {steps} steps, seed "
        f"{effort.seed}; schemes as in accuracy. {HELD[:-1]}, unless said otherwise.",
        f"better resource utilisation than others. {ABSTRACT}",
        "what utilisation is: that is not said. A worker that computes what nobody "
        "needs is busy, too.",
        (
            _idle(found),
            _wasted(found),
            _link(found),
            _draining(found),
            _copies(found),
        ),
        _table(found),
        _bars(found),
    )


def _found(effort: Effort, steps: int) -> dict[str, _Use]:
    each = schemes() | {FEW: build(FEW_COPIES, WORKERS)}
    link = Link("fair", slot=SLOT, seconds=MESSAGE)
    slotted = Machine(drain=False, network=Network(link=link))

    def run(machine: Machine, share: float) -> list[Result]:
        total = steps * len(each)
        return compare(
            list(each.values()),
            law(),
            steps=steps,
            seed=effort.seed,
            machine=machine,
            advanced=lambda done: effort.advance(share * done / total),
        )

    runs = run(AT_ONCE, 0.2), run(Machine(), 0.2), run(slotted, 0.6)
    return {n: _Use(*of) for n, *of in zip(each, *runs, strict=True)}


def _table(found: dict[str, _Use]) -> Table:
    columns = (
        Column("scheme"),
        Column("mean step", "s", ".2f"),
        Column("busy", "%", ".0f"),
        Column("work", "ratio", ".2f"),
        Column("wasted", "%", ".0f"),
        Column("heard", "a step", ".1f"),
        Column("link in use", "%", ".0f"),
        Column("with link", "s", ".2f"),
        Column("drain", "s", ".2f"),
    )
    rows = tuple(
        (
            label,
            float(of.ideal.seconds.mean()),
            of.busy.value,
            of.ideal.summary()["work"],
            of.wasted,
            of.messages,
            of.carried,
            float(of.linked.seconds.mean()),
            float(of.drained.seconds.mean()),
        )
        for label, of in found.items()
    )
    return Table(columns, rows)


def _bars(found: dict[str, _Use]) -> tuple[Bars, ...]:
    labels, every = tuple(found), found.values()
    shares = (
        Group("workers busy", tuple(of.busy.value for of in every)),
        Group("parts wasted", tuple(of.wasted for of in every)),
        Group("link in use", tuple(of.carried for of in every)),
    )
    messages = Group("messages heard", tuple(of.messages for of in every))
    return (
        Bars("shares", Axis("share", "%"), labels, shares),
        Bars("messages", Axis("messages", "a step"), labels, (messages,)),
    )


def _idle(found: dict[str, _Use]) -> str:
    two, one = ({n: found[n].busy for n in of} for of in (_TWO, ONE_STAGE))
    best = max(one, key=lambda label: one[label].value)
    ahead = [n for n in two if _is_more(two[n], one[best])]
    verdict = "no two stages can be told to keep"
    if ahead:
        verdict = f"{listed(ahead)} {'keeps' if len(ahead) == 1 else 'keep'}"
    said = listed([f"{_rounded(two[n])} ({n})" for n in two])
    return (
        f"{verdict} workers busier than {best} does ({_rounded(one[best])}): {said}; "
        f"uncoded {_rounded(found['uncoded'].busy)}."
    )


def _is_more(one: Measured, other: Measured) -> bool:
    """Whether one is larger by more than two standard errors of both."""
    return one.value - other.value > 2 * math.hypot(one.error, other.error)


def _rounded(share: Measured) -> str:
    return f"{share.value:.0f} ±{share.error:.0f} %"


def _wasted(found: dict[str, _Use]) -> str:
    two, one = ([found[n].wasted for n in of] for of in (_TWO, ONE_STAGE))
    verb = "waste less than" if max(two) < min(one) else "do not always waste less than"
    return (
        f"two stages {verb} codes of one: {min(two):.0f} to {max(two):.0f} % of the "
        f"parts against {min(one):.0f} to {max(one):.0f} %."
    )


def _link(found: dict[str, _Use]) -> str:
    two, one = found[RE_USED], found[ONE_STAGE[1]]
    verb = "more" if two.messages > one.messages else "no more"
    gain = over(two.linked.seconds, one.linked.seconds)
    without = over(two.ideal.seconds, one.ideal.seconds)
    return (
        f"two stages send {verb} messages: {two.messages:.1f} a step ({RE_USED}) "
        f"against {one.messages:.1f} ({ONE_STAGE[1]}); with the link they take {gain} "
        f"of its mean step, without it {without}."
    )


def _draining(found: dict[str, _Use]) -> str:
    cost = {n: over(of.drained.seconds, of.ideal.seconds) for n, of in found.items()}
    two, one = cost[RE_USED], cost[ONE_STAGE[1]]
    verb = "costs more" if two.value > one.value else "does not cost more"
    left = over(found[RE_USED].drained.seconds, found[ONE_STAGE[1]].drained.seconds)
    faster = "is still faster" if left.is_below(1.0) else "is not faster"
    return (
        f"that late workers finish the part in hand {verb} with two stages: "
        f"{RE_USED} takes {two} of what it takes otherwise, {ONE_STAGE[1]} {one}; it "
        f"{faster} then, {left} of the other."
    )


def _copies(found: dict[str, _Use]) -> str:
    few, every = found[FEW], found[RE_USED]
    cost = over(few.ideal.seconds, every.ideal.seconds)
    verb = "costs time" if cost.is_above(1.0) else "costs no time that could be told"
    left = over(few.ideal.seconds, found[ONE_STAGE[1]].ideal.seconds)
    return (
        f"that a worker holds 3 shares of the data rather than all {verb}: {cost} of "
        f"{RE_USED}, {left} of {ONE_STAGE[1]}, which holds 2."
    )
