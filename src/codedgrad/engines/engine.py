"""What an engine is: it carries out, and says what happened. It decides nothing.

An engine's duties, checked by `testing.check_engine`:

1. `now` never goes back, and events are stamped with it when they are handed out.
2. Orders reach a worker, and its reports the driver, in the order they were given.
3. `WorkersLost` is the last word of a life: whatever it had sent comes before,
   and nothing of it after. Only then is there a `WorkersJoined` of the same number.
4. Every order of a step is carried out on the parameters published for that step,
   however slow its worker is.
5. The sum of a message that was handed out does not change until its step is over;
   what `compare` compares are the sums that `combine` adds up, and it changes none.
6. After `close` nothing is left: no process, no memory. It may be called twice.
7. A message that gathers holds its own sums and the weighted messages of others, each
   once, and goes where its order says; asked for again, it is the same.
8. A worker that finishes a part after its step has ended says how long the part took:
   `WorkerFreed`. Not where parts are interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from codedgrad.core import Capabilities, Event, Order
from codedgrad.delays import Times
from codedgrad.engines.faults import FaultPlan
from codedgrad.jobs import VectorLayout, WorkerJob

MakeJob = Callable[[], WorkerJob]
"""Makes a job; called once in every worker."""


class Engine(Protocol):
    """Runs a job on workers."""

    @property
    def name(self) -> str:
        """As in traces."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def start(
        self,
        make: MakeJob,
        layout: VectorLayout,
        workers: int,
        *,
        faults: FaultPlan | None = None,
        delays: Times | None = None,
        parts: int = 1,
        root: WorkerJob | None = None,
    ) -> None:
        """Start the workers and wait until they are ready.

        Args:
            make: Makes the job in every worker.
            layout: How long its vectors are.
            workers: How many.
            faults: What to do to them on purpose.
            delays: What every part is to take longer.
            parts: How many parts a step has, which `delays` need.
            root: The root's own job, if it has made one. Workers must have made the
                same (`Fingerprinted`), and messages say what a part of it holds
                (`DescribesParts`); nothing is computed with it.
        """
        ...

    def now(self) -> float:
        """Return the seconds since some moment; never goes back."""
        ...

    def publish(
        self,
        step: int,
        parameters: NDArray[Any],
        changed: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Let all orders from now on be about a new step, and these parameters.

        Args:
            step: Its number.
            parameters: (layout.parameters,). They stay as they are until `finish`.
            changed: The (first, last + 1) numbers of stretches that may differ from
                what was published before, ascending; None: all may. Engines need not
                move anything else.
        """
        ...

    def give(self, order: Order) -> None:
        """Give an order to its worker; never waits for it."""
        ...

    def next_event(self, timeout: float) -> Event | None:
        """Return what happened next; None if nothing does for `timeout` seconds.

        With a timeout of 0 or less, None means that nothing is waiting: a driver lets a
        due timer fire only after that.
        """
        ...

    def finish(self, step: int) -> None:
        """Let all workers drop what they have in hand of a step."""
        ...

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        """Return the weighted sum of messages, (layout.row,); valid until the next.

        Behind what jobs write are four numbers by which the driver checks it; see
        `sum_checks`.
        """
        ...

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        """Return the inner products of messages' gradients.

        They are (one, other, product) of every pair, a message and itself too, with
        one <= other; over the first `layout.gradient` numbers. Asked for after
        `combine`, of messages that were handed out in the same step; what that has
        returned stays valid.

        Args:
            messages: 16 at most, none twice.
        """
        ...

    def close(self) -> None:
        """End everything."""
        ...


@runtime_checkable
class CountsThreads(Protocol):
    """An engine that knows how many threads its workers compute with."""

    @property
    def threads(self) -> Sequence[int]:
        """Of every worker, by number; bits are promised for equal numbers."""
        ...


@runtime_checkable
class Attends(Protocol):
    """An engine whose launcher runs the whole script in every process."""

    def attend(self) -> None:
        """Serve the root and then end the process, unless this is the root's."""
        ...


@runtime_checkable
class KnowsCores(Protocol):
    """An engine whose workers are all on one machine."""

    @property
    def cores(self) -> int:
        """Cores that the workers may use, all of them together."""
        ...
