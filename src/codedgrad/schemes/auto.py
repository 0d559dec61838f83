"""Lists of parts that are planned again inside the step. The default."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from codedgrad.codes.arguments import whole
from codedgrad.core.events import Event
from codedgrad.core.history import History
from codedgrad.core.plan import Ask, Decision, Fail, Plan
from codedgrad.core.state import State
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.coded import in_all, title
from codedgrad.schemes.handing import Layout
from codedgrad.schemes.opaque import OpaquePlan
from codedgrad.schemes.opaque_arms import Arms
from codedgrad.schemes.pacing import Paces
from codedgrad.schemes.replanning import LivePlan

__all__ = ["Auto", "auto"]

_PIECES = 8
_SHARE = 0.5


@dataclass(frozen=True)
class Auto:
    """Lists of parts that are planned again inside the step.

    Attributes:
        name: As on the command line, with its options.
        layout: Which parts each worker may be asked for.
        early: Whether a ring is looked at before anybody runs dry.
        share: Of the time, that grows with the load, until that is known; only where
            workers give one answer a call.
    """

    name: str
    layout: Layout
    early: bool
    share: float

    @property
    def workers(self) -> int:
        """How many workers it needs."""
        return self.layout.workers

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.layout.parts

    @property
    def load(self) -> int:
        """Parts that a worker does where all are alike, of the more that it may."""
        return max(map(len, self.layout.blocks))

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts each worker may be asked for."""
        return self.layout.placement

    @cached_property
    def arms(self) -> Arms:
        """What is chosen from where workers give one answer a call."""
        layout = self.layout
        holders = tuple(tuple(layout.holders(part)) for part in range(self.parts))
        return Arms(layout.workers, self.parts, layout.copies, holders, self.share)

    @property
    def exact(self) -> bool:
        """It never gives a sum with a residual."""
        return True

    @property
    def tolerance(self) -> int:
        """Late workers survived exactly: all but one of those who hold a part."""
        return self.layout.copies - 1

    def plan(self, step: int, history: History) -> AutoPlan:
        """Return the plan of a step, from the times of those before."""
        return AutoPlan(self, step, history)

    def __str__(self) -> str:
        return self.name


class AutoPlan:
    """The plan of a step: as much as the engine can do with.

    Where workers report progress and take more while they work, lists are planned again
    in the step; see `replanning`. Elsewhere a worker gives one answer a call, and it is
    chosen before the step what it is asked for; see `opaque`.

    Args:
        scheme: Whose.
        step: Which.
        history: Of the steps before.
    """

    def __init__(self, scheme: Auto, step: int, history: History) -> None:
        self._scheme = scheme
        self._step = step
        self._history = history
        self._plan: Plan | None = None

    def first(self, state: State) -> Ask | Fail:
        """Choose the mode, and begin."""
        self._plan = self._chosen(state)
        return self._plan.first(state)

    def judge(self, state: State, event: Event) -> Decision:
        """Return what the plan of that mode does."""
        assert self._plan is not None  # it has begun
        return self._plan.judge(state, event)

    def _chosen(self, state: State) -> Plan:
        layout, engine = self._scheme.layout, state.capabilities
        if engine.progress and engine.extend and engine.rows_per_worker > 1:
            paces = self._history.follow(Paces(layout.pieces))
            return LivePlan(layout, paces.forecast(), self._scheme.early)
        arms = self._scheme.arms
        choice = self._history.follow(arms).choice(self._step, state.alive)
        return OpaquePlan(arms, choice)


def auto(
    workers: int,
    pieces: int = _PIECES,
    *,
    copies: int | str = "all",
    early: bool = True,
    share: float = _SHARE,
    parts: int | None = None,
) -> Auto:
    """Plan ordered lists of parts again inside the step, whenever that ends it sooner.

    Args:
        workers: Number of workers.
        pieces: Parts for each worker at the uncoded load.
        copies: Workers that may be asked for a part, and so need its data: a number,
            or `all`.
        early: Whether lists are looked at before anybody runs dry, where not everybody
            may be asked for everything.
        share: Of the time, that grows with the load, until steps have shown it. Only
            where workers give one answer a call.
        parts: Parts in all; None: `pieces` for each worker.
    """
    n = whole("auto", "workers", workers, least=1)
    total, said = in_all("auto", n, pieces, parts, usual=_PIECES)
    if isinstance(copies, str) and copies != "all":
        raise InvalidScheme(f"auto: copies is {copies}", f"1 to {n}, or all")
    held = n if copies == "all" else whole("auto", "copies", copies, least=1)
    if held > n:
        raise InvalidScheme(f"auto: {held} copies for {n} workers", f"at most {n}")
    if not isinstance(early, bool):
        raise InvalidScheme(f"auto: early is {early}", "true or false")
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise InvalidScheme(f"auto: share is {share}", "a number from 0 to 1")
    if not 0 <= share <= 1:
        raise InvalidScheme(f"auto: share is {share}", "a number from 0 to 1")
    name = title(
        "auto",
        **said,
        copies=None if copies == "all" else held,
        early=None if early else False,
        share=None if share == _SHARE else share,
    )
    return Auto(name, Layout(n, total, held), early, float(share))
