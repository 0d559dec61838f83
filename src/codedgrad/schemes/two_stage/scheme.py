"""Two stages: parts in turn, then a code over what is left. Wang et al., ICDCS 2023.

After the abstracts of arXiv 2205.07939; how it is done in detail is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from codedgrad.codes.arguments import one_of, whole
from codedgrad.core.history import History
from codedgrad.core.plan import Rule, Traits
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.options import in_all, rule_named, title
from codedgrad.schemes.stop_rules import Within
from codedgrad.schemes.two_stage.choose_staging import Planner
from codedgrad.schemes.two_stage.first_stage import Staging
from codedgrad.schemes.two_stage.plan import StagedPlan

_CODES = ("fractional", "cyclic")
_RESTS = ("parts", "whole")
_STARTS = ("fastest", "numbered")
_LARGEST = 2  # tolerance that is planned, where none is given
_LONGEST = 2.0**23  # seconds; simulated times are exact up to here
_PIECES = 2


@dataclass(frozen=True)
class TwoStage:
    """Stage 1 without a code; what is not done at the checkpoint is coded.

    Attributes:
        name: As on the command line, with its options.
        workers: How many workers it needs.
        parts: How many parts a step has.
        copies: How many workers may be asked for a part.
        rule: What ends a step: decodable, a count, or within a budget.
        planner: How steps are planned.
        rest: How late workers deliver what they still do.
        checkpoints: How often what is left is coded as planned.
        helpers: The most that help in stage 2; None: all that are free.
    """

    name: str
    workers: int
    parts: int
    copies: int
    rule: Rule
    planner: Planner
    rest: str
    checkpoints: int
    helpers: int | None

    @cached_property
    def holders(self) -> tuple[tuple[int, ...], ...]:
        """Who may be asked for a part, by part; its own worker first, if not all."""
        n, k = self.workers, self.parts
        if self.copies == n:
            return (tuple(range(n)),) * k
        size, more = divmod(k, n)
        own = [w for w in range(n) for _ in range(size + (w < more))]
        return tuple(tuple((w - j) % n for j in range(self.copies)) for w in own)

    @cached_property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts of every worker, and those of the next ones on a ring."""
        if self.copies == self.workers:
            return (tuple(range(self.parts)),) * self.workers
        held: list[list[int]] = [[] for _ in range(self.workers)]
        for part, holders in enumerate(self.holders):
            for worker in holders:
                held[worker].append(part)
        return tuple(map(tuple, held))

    @property
    def load(self) -> int:
        """Parts that a worker is given in stage 1."""
        return -(-self.parts // (self.planner.first or self.workers))

    @property
    def exact(self) -> bool:
        """Whether it never gives a sum with a residual."""
        return math.isinf(self.rule.budget)

    @property
    def tolerance(self) -> int | None:
        """Late workers survived exactly; None where a residual is accepted."""
        return self.copies - 1 if self.exact else None

    @cached_property
    def staging(self) -> Staging:
        """What its plans have in common."""
        return Staging(
            holders=self.holders,
            everywhere=self.copies == self.workers,
            reuse=self.planner.reuse,
            code=self.planner.code,
            rest=self.rest,
            checkpoints=self.checkpoints,
            helpers=self.helpers,
            rule=self.rule,
        )

    @property
    def traits(self) -> Traits:
        """A worker begins with fewer parts than are placed with it."""
        return Traits(load=self.load, rule=str(self.rule), budget=self.rule.budget)

    def plan(self, step: int, history: History) -> StagedPlan:
        """Return the plan of a step, from the times of those before."""
        opening = history.follow(self.planner).opening(step, history.alive)
        return StagedPlan(self.staging, opening)

    def __str__(self) -> str:
        return self.name


def two_stage(
    workers: int,
    first: int | None = None,
    window: float | None = None,
    tolerance: int | None = None,
    *,
    reuse: bool = True,
    code: str = "fractional",
    copies: int | str | None = None,
    checkpoints: int = 1,
    give_up: float | None = None,
    price: float = 0.0,
    rest: str = "parts",
    start: str = "fastest",
    helpers: int | None = None,
    rule: str = "decodable",
    pieces: int = _PIECES,
    parts: int | None = None,
) -> TwoStage:
    """Compute without a code for WINDOW seconds; code only what is not done by then.

    What is left is coded over workers that are free. FIRST, WINDOW and TOLERANCE are
    planned from the times of past steps where they are not given.

    Source: Wang et al., ICDCS 2023, arXiv 2205.07939.

    Args:
        workers: Number of workers.
        first: How many start at once; the others wait for stage 2.
        window: Seconds until the checkpoint.
        tolerance: Late helpers survived in stage 2.
        reuse: Whether those who have finished help in stage 2.
        code: `fractional` (the first answer of every group) or `cyclic` (any helpers
            may be late).
        copies: Workers that may be asked for a part: a number, or `all`; by default
            tolerance + 2.
        checkpoints: How often what is left is coded as planned; what is lost or silent
            is taken care of anyway.
        give_up: Seconds after which a step ends with what there is.
        price: Seconds that a part of work is worth, when steps are planned.
        rest: What late workers still do comes as `parts`, each by itself, or as a
            `whole`, which counts when all of them are in.
        start: `fastest`, or `numbered`: those of the lowest numbers start.
        helpers: The most workers that help in stage 2.
        rule: `decodable`, or `threshold` (a cyclic code counts, as the papers do).
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    n = whole("two_stage", "workers", workers, least=1)
    code = one_of("two_stage", "code", code, _CODES)
    rest = one_of("two_stage", "rest", rest, _RESTS)
    start = one_of("two_stage", "start", start, _STARTS)
    _switch("reuse", reuse)
    first = _number("first", first, 1, n)
    tolerance = _number("tolerance", tolerance, 0, max(0, n - 1))
    held = _copies(copies, tolerance, n)
    window, give_up = _seconds("window", window), _seconds("give_up", give_up)
    inner = rule_named(rule)
    total, said = in_all("two_stage", n, pieces, parts, usual=_PIECES)
    planner = Planner(
        workers=n,
        parts=total,
        first=first,
        window=window,
        tolerance=tolerance,
        most=_LARGEST if tolerance is None else tolerance,
        reuse=reuse,
        code=code,
        price=_price(price),
        by_number=start == "numbered",
    )
    name = title(
        "two_stage",
        first=first,
        window=window,
        tolerance=tolerance,
        reuse=None if reuse else False,
        code=None if code == "fractional" else code,
        copies=copies,
        checkpoints=None if checkpoints == 1 else checkpoints,
        give_up=give_up,
        price=None if price == 0 else price,
        rest=None if rest == "parts" else rest,
        start=None if start == "fastest" else start,
        helpers=helpers,
        rule=rule,
        **said,
    )
    return TwoStage(
        name=name,
        workers=n,
        parts=total,
        copies=held,
        rule=inner if give_up is None else Within(give_up, inner),
        planner=planner,
        rest=rest,
        checkpoints=whole("two_stage", "checkpoints", checkpoints, least=1),
        helpers=_number("helpers", helpers, 1, n),
    )


def _number(name: str, value: object, least: int, most: int) -> int | None:
    return None if value is None else whole("two_stage", name, value, least, most)


def _copies(copies: object, tolerance: int | None, workers: int) -> int:
    if copies == "all":
        return workers
    if copies is None:
        return min(workers, (_LARGEST if tolerance is None else tolerance) + 2)
    if isinstance(copies, str):
        problem = f"two_stage: copies = {copies!r}"
        raise InvalidScheme(problem, f"a whole number from 1 to {workers}, or all")
    return whole("two_stage", "copies", copies, least=1, most=workers)


def _seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    advice = f"seconds above 0, up to {_LONGEST:.7g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidScheme(f"two_stage: {name} = {value!r}", advice)
    if not 0 < value <= _LONGEST:
        raise InvalidScheme(f"two_stage: {name} = {value:g}", advice)
    return float(value)


def _price(value: object) -> float:
    advice = "seconds for a part of work, 0 or more"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidScheme(f"two_stage: price = {value!r}", advice)
    if not 0 <= value < math.inf:
        raise InvalidScheme(f"two_stage: price = {value:g}", advice)
    return float(value)


def _switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        problem = f"two_stage: {name} = {value!r}"
        raise InvalidScheme(problem, "true or false")
