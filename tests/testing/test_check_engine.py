"""The conformance suite of engines: ours passes, broken ones do not."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from codedgrad.core import (
    Event,
    MessageArrived,
    Order,
    Patience,
    Progressed,
    Upload,
    WorkerFreed,
    WorkersLost,
)
from codedgrad.engines import Here, Local
from codedgrad.engines.fleet import fleet as fleet_module
from codedgrad.engines.here import Desk
from codedgrad.engines.host.rows import Rows
from codedgrad.errors import Violation
from codedgrad.testing import check_engine

suite: Any = importlib.import_module(check_engine.__module__)  # not the function


def test_the_local_engine_passes() -> None:
    check_engine(lambda: Local(open_segments=20))


class Backwards(Local):
    """Stamps events with a clock that runs down."""

    def next_event(self, timeout: float) -> Event | None:
        event = super().next_event(timeout)
        return event and msgspec.structs.replace(event, at=-event.at)


class OutOfOrder(Local):
    """Hands a message out before what was reported ahead of it."""

    def next_event(self, timeout: float) -> Event | None:
        first, *others = *self._pending, None
        if isinstance(first, Progressed) and isinstance(others[0], MessageArrived):
            self._pending[0], self._pending[1] = self._pending[1], self._pending[0]
        return super().next_event(timeout)


class Undead(Local):
    """Lets a worker that is lost speak once more."""

    def next_event(self, timeout: float) -> Event | None:
        event = super().next_event(timeout)
        if isinstance(event, WorkersLost):
            worker = event.workers[0]
            self._pending.append(MessageArrived(0, worker, 1, ((0, 1),), 0.0))
        return event


class Torn(Local):
    """Writes all parameters to one place, whoever reads there."""

    def publish(self, step: int, parameters: NDArray[Any], changed: Any = None) -> None:
        for handle in self._handles:
            handle.version = -1
        super().publish(step, parameters)


class Mute(Local):
    """Does not say how long late workers took."""

    def next_event(self, timeout: float) -> Event | None:
        event = super().next_event(timeout)
        while isinstance(event, WorkerFreed):
            event = super().next_event(0.0)
        return event


class Lingering(Local):
    """Leaves its workers behind."""

    def close(self) -> None:
        LEFT_BEHIND.append(super().close)


LEFT_BEHIND: list[Callable[[], None]] = []


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    while LEFT_BEHIND:
        LEFT_BEHIND.pop()()


class Wrong(Local):
    """Adds up, but forgets the last."""

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        return super().combine(weights[:-1])


class Fickle(Local):
    """Adds up something else every time."""

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        total = super().combine(weights)
        total += np.random.default_rng().random()
        return total


class Unlike(Here):
    """Compares whole messages, and not only their gradients."""

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        return self._open.rows.compare(messages, self._open.rows._total.size)


class Spoiling(Here):
    """Loses the sum when it compares."""

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        self.combine([])
        return super().compare(messages)


class Silent(Here):
    """Says that there is nothing to compare."""

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        return ()


class Alone(Here):
    """Sends a worker's own sum, whatever it is to gather."""

    def give(self, order: Order) -> None:
        if isinstance(order, Upload):
            order = msgspec.structs.replace(order, gathered=())
        super().give(order)


class Plain(Here):
    """Gathers without the weights."""

    def give(self, order: Order) -> None:
        if isinstance(order, Upload):
            plain = tuple((message, 1.0) for message, _ in order.gathered)
            order = msgspec.structs.replace(order, gathered=plain)
        super().give(order)


class First(Here):
    """Gathers the first of several messages."""

    def give(self, order: Order) -> None:
        if isinstance(order, Upload):
            order = msgspec.structs.replace(order, gathered=order.gathered[:1])
        super().give(order)


class Again(Here):
    """Gathers once more when it sends once more."""

    def give(self, order: Order) -> None:
        desk: Desk = self._open
        desk._full.clear()
        super().give(order)


class Forgetful(Local):
    """Lets those who come back gather nothing."""

    def give(self, order: Order) -> None:
        if isinstance(order, Upload) and self._handles[order.worker].life > 1:
            order = msgspec.structs.replace(order, gathered=())
        super().give(order)


class Waiting(Local):
    """Hands out nothing while anybody is busy."""

    def next_event(self, timeout: float) -> Event | None:
        until = self.now() + timeout
        while any(w.in_hand is not None for w in self._handles) and self.now() < until:
            self._poll(until - self.now())
        return super().next_event(timeout)


@pytest.mark.parametrize(
    ("broken", "check", "rule"),
    [
        (Backwards, suite._check_sums, "time does not go back"),
        (OutOfOrder, suite._check_sums, "in order|comes after"),
        (Undead, suite._check_losses, "a loss is the last word of a life"),
        (Torn, suite._check_lagging, "carried out on the parameters of its step"),
        (Wrong, suite._check_sums, "the sum is that of the part gradients"),
        (Fickle, suite._check_sums, "what was handed out does not change"),
        (Lingering, suite._check_close, "no process is left"),
        (Waiting, suite._check_lagging, "can do without"),
        (Mute, suite._check_freed, "finishes a part of a step that has ended says so"),
    ],
)
def test_a_broken_engine_is_found_out(
    broken: type[Local],
    check: Callable[[type[Local]], None],
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suite, "_PATIENCE", Patience(least=3.0, first=3.0))
    monkeypatch.setattr(suite, "_GONE", 0.5)
    with pytest.raises(Violation, match=rule):
        check(broken)


@pytest.mark.quick("Unlike-*")
@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Unlike, "are the gradients that are added up"),
        (Silent, "are the gradients that are added up"),
        (Spoiling, "does not change: by comparing"),
    ],
)
def test_an_engine_that_compares_badly_is_found_out(
    broken: type[Here], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "_check_gone", lambda log: None)  # this process stays
    suite._check_sums(Here)
    with pytest.raises(Violation, match=rule):
        suite._check_sums(broken)


GATHERS = "a message that gathers holds its own sums and the weighted ones of others"


@pytest.mark.parametrize("broken", [Alone, Plain, First, Again])
def test_an_engine_that_gathers_badly_is_found_out(
    broken: type[Here], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "_check_gone", lambda log: None)  # this process stays
    suite._check_gathering(Here, survives_loss=False)
    with pytest.raises(Violation, match=GATHERS):
        suite._check_gathering(broken, survives_loss=False)


def test_an_engine_whose_workers_gather_badly_when_they_are_back_is_found_out() -> None:
    suite._check_gathering(Forgetful, survives_loss=False)
    with pytest.raises(Violation, match=GATHERS):
        suite._check_gathering(Forgetful, survives_loss=True)


def test_an_engine_that_overwrites_rows_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OneRow(Rows):
        def give(self, segment: Any, message: int | None = None, to: int = -1) -> int:
            super().give(segment, message, to)
            first = self._row[segment.id] = segment.worker * self._places
            return int(first)

    monkeypatch.setattr(fleet_module, "Rows", OneRow)
    with pytest.raises(Violation, match="the sum is that of the part gradients"):
        suite._check_sums(lambda: Local(open_segments=20))
