"""Codes for workers of unequal reliability (OSGC). Song, Choi, arXiv 2510.22539."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codedgrad.codes.arguments import probabilities, whole
from codedgrad.core.history import History
from codedgrad.core.plan import Rule, Traits
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.code_plan import CodePlan
from codedgrad.schemes.fixed_code import CodedScheme
from codedgrad.schemes.heterogeneous.reliability_layout import LEARNT, Design
from codedgrad.schemes.options import in_all, stopping, title
from codedgrad.schemes.stop_rules import Decodable, First


@dataclass(frozen=True)
class Heterogeneous:
    """A code for the reliabilities as they are learnt, allocated anew when they change.

    Attributes:
        name: As on the command line, with its options.
        rule: When a step ends.
        design: What is allocated, and how.
    """

    name: str
    rule: Rule
    design: Design
    exact = False  # a residual is accepted
    tolerance = None  # for the same reason

    @property
    def workers(self) -> int:
        """How many workers it needs."""
        return self.design.workers

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.design.parts

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """All parts for everybody: borders may move anywhere in time."""
        return (tuple(range(self.parts)),) * self.workers

    @property
    def traits(self) -> Traits:
        """A worker computes fewer parts than are placed with it."""
        return Traits(
            load=self.design.load, rule=str(self.rule), budget=self.rule.budget
        )

    def plan(self, step: int, history: History) -> CodePlan:
        """Return the plan of a step, with parts allocated by what is known."""
        code = history.follow(self.design).code
        return CodePlan(code, self.rule, compare=self.design.learns_correlation)

    def __str__(self) -> str:
        return self.name


def heterogeneous(
    workers: int,
    *,
    budget: float | None = None,
    count: int | None = None,
    straggle: float | Sequence[float] | None = None,
    allocation: str = "interval",
    decoding: str = "fixed",
    correlation: float | str | None = None,
    cap: float = 2.0,
    forget: float = 0.99,
    seed: int = 0,
    pieces: int = 1,
    parts: int | None = None,
) -> Heterogeneous | CodedScheme:
    """Parts go to who is reliable; right on average at a deadline; approximate.

    Source: OSGC. Song, Choi, arXiv 2510.22539.

    Args:
        workers: Number of workers.
        budget: Seconds after which a step ends.
        count: Answers after which it ends.
        straggle: Probability to be late, one for all or `[one, per, worker]`; learnt
            if it is not given.
        allocation: `interval`, or the paper's `common` and `chain`.
        decoding: `fixed` (unbiased), `normalised`, `optimal`, `gram` or `debiased`.
        correlation: Of the gradients of two parts, to weigh by; or `learnt`.
        cap: No worker's share is more than so many times the mean; inf: any share.
        forget: What is left of the evidence of lateness after a step.
        seed: Of patterns of late workers, where there are too many to try.
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    total, said = in_all("heterogeneous", workers, pieces, parts)
    _check(correlation, cap, forget)
    design = Design(
        workers=workers,
        parts=total,
        straggle=None if straggle is None else _each(straggle, workers),
        allocation=allocation,
        decoding=decoding,
        correlation=correlation,
        cap=float(cap),
        forget=float(forget),
        seed=whole("heterogeneous", "seed", seed, least=0),
    )
    first = design.code(design.straggle or (0.5,) * workers)  # says if it can be
    # A worker is late if it is not there at the deadline. A step that ended before,
    # where the sum happens to be exact, would call others late, and spoil the mean.
    early = Decodable() if design.is_fixed and decoding == "optimal" else None
    rule = stopping(
        "heterogeneous", first, budget, count, early or First(first.messages)
    )
    name = title(
        "heterogeneous",
        budget=budget,
        count=count,
        straggle=straggle,
        allocation=None if allocation == "interval" else allocation,
        decoding=None if decoding == "fixed" else decoding,
        correlation=correlation,
        cap=None if cap == 2.0 else cap,
        forget=None if forget == 0.99 else forget,
        seed=seed,
        **said,
    )
    if design.is_fixed:
        return CodedScheme(name, first, rule)
    return Heterogeneous(name, rule, replace(design, budget=rule.budget))


def _each(straggle: float | Sequence[float], workers: int) -> tuple[float, ...]:
    given = probabilities("heterogeneous", "straggle", straggle, workers)
    return tuple(given.tolist())


def _check(correlation: object, cap: object, forget: object) -> None:
    def number(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    if not (correlation is None or correlation == LEARNT or number(correlation)):
        problem = f"heterogeneous: correlation = {correlation!r}"
        raise InvalidScheme(problem, "a number such as 0.5, or learnt")
    if not number(cap) or not cap >= 1:  # type: ignore[operator]  # it is a number
        problem = f"heterogeneous: cap = {cap!r} leaves too little for somebody"
        raise InvalidScheme(problem, "a number from 1 up, or inf")
    if not number(forget) or not 0 < forget <= 1:  # type: ignore[operator]  # as above
        problem = f"heterogeneous: forget = {forget!r}"
        raise InvalidScheme(problem, "a number above 0, up to 1")
