"""What a scheme is, what a plan may answer, and what an engine may be able to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes import Code
from codedgrad.codes.decoders import Bools, Floats
from codedgrad.codes.tree import Tree
from codedgrad.core.commands import Order
from codedgrad.core.events import Event

if TYPE_CHECKING:  # both know plans only by this module
    from codedgrad.core.history import History
    from codedgrad.core.state import State


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
    16 of them, before the next step: `products` of the step's record. A plan never sees
    a gradient, so this is how it learns whether they are alike.
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
        """Return the orders that open the step.

        They come with a moment, like every later answer: a step whose workers all stay
        silent has no other event than that timer.
        """
        ...

    def judge(self, state: State, event: Event) -> Decision:
        """Return what to do now that `event` is in `state`."""
        ...


class Tally(Protocol):
    """The count of one step."""

    def hear(self, message: int) -> bool:
        """Note a message, by its row; return whether that is enough."""
        ...


class Rule(Protocol):
    """When a step may end.

    Attributes:
        budget: Seconds after which it ends with what there is; inf: never.
    """

    @property
    def budget(self) -> float:
        """Seconds after which a step ends with what there is."""
        ...

    def start(self, code: Code) -> Tally:
        """Return a count for one step."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class KnownSteps:
    """Steps that follow a code and nothing that was seen: arrays can play them.

    Attributes:
        code: Of every step, or of every parent of a tree.
        rule: When enough was heard.
        tree: Which workers send to which; None: all of them to the root.
        seats: Returns the worker at each place of the code, (steps, workers), from
            which workers are there, (steps, workers); None: worker w is at place w.
    """

    code: Code
    rule: Rule
    tree: Tree | None = None
    seats: Callable[[Bools], NDArray[np.intp]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """What drivers, fast paths and tables have to know of a scheme besides its plans.

    The defaults are those of a scheme that runs on every engine and of which nothing
    more is known.

    Attributes:
        needs_progress: Its plans read progress reports, so the engine must send them.
        needs_rows: Sums that a worker must be able to hold at once.
        tell: Returns the scheme that knows which workers are slow in which step, and
            their mean seconds, both (steps, workers). Only a simulation can tell that;
            None: the scheme does not ask, or was told.
        load: Parts that a worker computes in a step where all are alike; None: all that
            are placed with it.
        fewest: Messages, of `load` parts each, without which no step ends; None: not
            known.
        rule: Its stop rule, in words.
        budget: Seconds after which a step ends, whatever was heard.
        steps: What its steps are known to be beforehand, if they are.
    """

    needs_progress: bool = False
    needs_rows: int = 1
    tell: Callable[[Bools, Floats], Scheme] | None = None
    load: int | None = None
    fewest: int | None = None
    rule: str = "its own"
    budget: float = math.inf
    steps: KnownSteps | None = None


class Scheme(Protocol):
    """How steps are planned and ended. It never moves data.

    Attributes:
        name: As on the command line, with its options.
        workers: How many workers it needs, $n$.
        parts: How many parts a step has, $k$.
        placement: The parts each worker may be asked for; fixed for a run.
        tolerance: Late workers survived exactly, whoever they are; None if nothing
            is promised.
        exact: Whether it never gives a sum with a residual. Not the same promise as
            `tolerance`: a scheme may survive that many exactly, and still end a step
            with a residual when more workers are late.
        traits: What drivers and tables have to know besides.
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

    @property
    def traits(self) -> Traits:
        """What drivers and tables have to know besides."""
        ...

    def plan(self, step: int, history: History) -> Plan:
        """Return the plan of a step, from what is known of the steps before."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; a plan that needs more must do without.

    Whether sums outlive their worker is not among them: an engine that still has the
    sum of a dead worker hands out the message before it hands out `WorkersLost`.

    Attributes:
        progress: Workers report every part they merge. An engine that can report does
            so whether the plan looks or not: censored observations are made of reports.
        orders_during_part: Orders are looked at during a part, not only between two.
        interrupts_part: A part that nobody needs any more is abandoned half-way.
        rows_per_worker: Sums a worker can hold at once.
    """

    progress: bool = True
    orders_during_part: bool = True
    interrupts_part: bool = True
    rows_per_worker: int = 1_000_000
