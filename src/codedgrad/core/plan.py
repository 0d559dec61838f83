"""What a scheme is, what a plan may answer, and what an engine may be able to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from codedgrad.core.commands import Order
from codedgrad.core.events import Event

if TYPE_CHECKING:  # both know plans only by this module
    from codedgrad.core.history import History
    from codedgrad.core.state import State

__all__ = [
    "Ask",
    "Capabilities",
    "Decision",
    "Fail",
    "Finish",
    "Plan",
    "Scheme",
    "Wait",
]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before the next event, or before `until` seconds."""

    until: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Give these orders, then wait for the next event or until `until` seconds."""

    orders: tuple[Order, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Finish:
    """Enough is heard: the gradient is the weighted sum of these messages.

    With `compare`, drivers that have gradients report the inner products of the first
    16 of them, before the next step: `products` of the step's record.
    """

    weights: tuple[tuple[int, float], ...]
    residual: float
    compare: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """The step cannot be finished, and this is why."""

    reason: str


Decision: TypeAlias = Wait | Ask | Finish | Fail


class Plan(Protocol):
    """How one step goes. Deterministic: no clock, no randomness.

    It reads the state, never writes it; it may hold state of its own. Every answer but
    the last names the moment until which it is ready to wait, later than now, so that
    every step ends.
    """

    def first(self, state: State) -> Ask | Fail:
        """Return the orders that open the step."""
        ...

    def judge(self, state: State, event: Event) -> Decision:
        """Return what to do now that `event` is in `state`."""
        ...


class Scheme(Protocol):
    """How steps are planned and ended. It never moves data.

    Attributes:
        name: As on the command line, with its options.
        workers: How many workers it needs, $n$.
        parts: How many parts a step has, $k$.
        placement: The parts each worker may be asked for; fixed for a run.
        tolerance: Late workers survived exactly, whoever they are; None if nothing
            is promised.
        exact: Whether it never gives a sum with a residual.
    """

    @property
    def name(self) -> str:
        """As on the command line, with its options."""
        ...

    @property
    def workers(self) -> int:
        """How many workers it needs."""
        ...

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        ...

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts each worker may be asked for."""
        ...

    @property
    def tolerance(self) -> int | None:
        """Late workers survived exactly, or None."""
        ...

    @property
    def exact(self) -> bool:
        """Whether it never gives a sum with a residual."""
        ...

    def plan(self, step: int, history: History) -> Plan:
        """Return the plan of a step, from what is known of the steps before."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; a plan that needs more must do without.

    Attributes:
        progress: Workers report every part they merge.
        extend: A worker takes further segments before it has closed those it has.
        orders_during_part: Orders are looked at during a part, not only between two.
        interrupts_part: A part that nobody needs any more is abandoned half-way.
        rows_per_worker: Sums a worker can hold at once.
    """

    progress: bool = True
    extend: bool = True
    orders_during_part: bool = True
    interrupts_part: bool = True
    rows_per_worker: int = 1_000_000
