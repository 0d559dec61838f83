"""One worker as the root sees it: orders that wait, lives and pauses between them."""

import signal

import pytest

from codedgrad.core import Assign, Drop, Order, Segment, Upload
from codedgrad.engines.fleet.worker_handle import WorkerHandle
from codedgrad.engines.host.host import Gives
from codedgrad.engines.host.host import Order as HostOrder
from codedgrad.engines.host.nursery_messages import Signal, Spawn
from codedgrad.engines.host.wire import Give, decode_gives


class Worker:
    """The host of a handle: what has reached it, for which life."""

    def __init__(self) -> None:
        self.versions: dict[int, int] = {}  # by step
        self.told: list[HostOrder] = []
        self.handle = WorkerHandle(3, self)
        self.handle.begin([], at=0.0)

    def take(self, order: HostOrder) -> None:
        self.told.append(order)

    def version(self, step: int) -> int:
        return self.versions.get(step, 0)

    def gives(self) -> list[Give]:
        """Return what has been given to the life that is there, and forget it."""
        frames = [order.frame for order in self.told if isinstance(order, Gives)]
        lives = {order.life for order in self.told if isinstance(order, Gives)}
        assert lives <= {self.handle.life}
        self.told.clear()
        return [give for frame in frames for give in decode_gives(frame)]

    def received(self) -> list[Order]:
        return [give.order for give in self.gives()]


@pytest.fixture
def worker() -> Worker:
    return Worker()


def assign(step: int, id_: int = 0) -> Assign:
    return Assign(step, Segment(id_, 3, (0,), (1.0,)), message=id_ + 1)


def give(handle: WorkerHandle, *orders: Order) -> None:
    for order in orders:
        handle.give(Give(order, row=0))


def test_orders_reach_an_idle_worker_at_once(worker: Worker) -> None:
    give(worker.handle, assign(0), assign(0, 2))
    assert worker.received() == [assign(0), assign(0, 2)]


def test_orders_of_a_new_step_wait_until_the_worker_has_let_go(worker: Worker) -> None:
    handle = worker.handle
    give(handle, assign(0))
    handle.drop(0)
    give(handle, assign(1), Upload(1, 3, 5, (0,)))
    assert worker.received() == [assign(0), Drop(0, 3)]
    handle.left(1)
    assert worker.received() == [assign(1), Upload(1, 3, 5, (0,))]


def test_letting_go_before_the_last_order_does_not_count(worker: Worker) -> None:
    handle = worker.handle
    give(handle, assign(0))
    give(handle, assign(0, 2))  # on its way while the worker says it has nothing
    handle.left(1)
    give(handle, assign(1))
    assert worker.received() == [assign(0), assign(0, 2)]
    handle.left(2)
    assert worker.received() == [assign(1)]


def test_orders_stay_in_order_while_some_wait(worker: Worker) -> None:
    handle = worker.handle
    give(handle, assign(0))
    give(handle, assign(1), assign(1, 2))
    handle.left(1)
    give(handle, assign(1, 4))
    assert worker.received() == [assign(0), assign(1), assign(1, 2), assign(1, 4)]


def test_a_step_that_ended_while_its_orders_waited_is_never_seen(
    worker: Worker,
) -> None:
    handle = worker.handle
    give(handle, assign(0))
    handle.drop(0)
    for step in (1, 2):
        give(handle, assign(step))
        handle.drop(step)
    give(handle, assign(3))
    handle.left(1)
    assert worker.received() == [assign(0), Drop(0, 3), assign(3)]


def test_an_idle_worker_is_not_told_to_drop_anything(worker: Worker) -> None:
    handle = worker.handle
    give(handle, assign(0))
    handle.left(1)
    handle.drop(0)
    assert worker.received() == [assign(0)]


def test_parameters_are_asked_for_when_the_worker_has_time_and_not_before(
    worker: Worker,
) -> None:
    handle = worker.handle
    worker.versions = {0: 4, 1: 99}
    give(handle, assign(0))
    give(handle, assign(1))  # waits
    assert (handle.in_hand, handle.version) == (0, 4)
    worker.versions[1] = 5  # the host's memory has had other versions meanwhile
    handle.left(1)
    assert (handle.in_hand, handle.version) == (1, 5)
    assert [give.version for give in worker.gives()] == [4, 5]
    handle.left(2)
    assert handle.in_hand is None


def test_a_new_life_has_nothing_in_hand_and_nothing_waiting(worker: Worker) -> None:
    handle = worker.handle
    give(handle, assign(0))
    give(handle, assign(1))
    handle.end(at=1.0)
    worker.told.clear()
    handle.begin([], at=1.0)
    assert worker.told == [Spawn(3, 2, [])]
    handle.left(0)
    give(handle, assign(2))
    assert handle.life == 2
    assert worker.received() == [assign(2)]


def test_orders_for_nobody_are_harmless(worker: Worker) -> None:
    worker.handle.end(at=1.0)
    give(worker.handle, assign(0))
    worker.handle.drop(0)


def test_a_signal_is_for_the_life_that_is_there(worker: Worker) -> None:
    handle = worker.handle
    handle.pid = 4711
    handle.signal(signal.SIGSTOP)
    handle.end(at=1.0)
    handle.signal(signal.SIGKILL)  # to nobody
    assert worker.told[1:] == [Signal(3, 1, signal.SIGSTOP, 4711)]


def live(handle: WorkerHandle, seconds: float) -> float:
    """Let a life last so long; return the pause after it."""
    handle.begin([], at=100.0)
    handle.end(at=100.0 + seconds)
    return handle.back_off


def test_pauses_between_short_lives_double_up_to_half_a_minute(worker: Worker) -> None:
    handle = WorkerHandle(0, worker)
    pauses = [live(handle, 0.5) for _ in range(12)]
    doubled = [0.1 * 2**i for i in range(9)]  # to 25.6
    assert pauses == pytest.approx([0.0, *doubled, 30.0, 30.0])


def test_after_a_long_life_there_is_no_pause(worker: Worker) -> None:
    handle = WorkerHandle(0, worker)
    for _ in range(5):
        live(handle, 0.5)
    assert live(handle, 11.0) == 0.0
    assert live(handle, 0.5) == pytest.approx(0.1)
