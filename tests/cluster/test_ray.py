"""The engine on a real Ray: its duties, what it moves, and what it asks Ray for."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from codedgrad.core import Assign, Scheme
from codedgrad.delays import Times
from codedgrad.engines import Ray, train
from codedgrad.engines.host.wire import Left, Said, decode_gives
from codedgrad.engines.host.worker_handle import WorkerHandle
from codedgrad.engines.ray.cluster import Cluster
from codedgrad.engines.remote.agent import Gives, _decode_down
from codedgrad.errors import EngineFailed, InvalidOptions
from codedgrad.schemes import fractional, uncoded
from codedgrad.testing import check_engine

HANG = 60.0  # seconds; only a hang takes so long
SIZE = 20_000  # numbers: too long to travel with a call
STEPS = 8

pytestmark = pytest.mark.usefixtures("ray_cluster")


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    return float(part), 1.0, x - part


def late(seconds: Mapping[int, float], workers: int) -> Times:
    """Let some workers take so many seconds longer in every step."""
    fixed = np.zeros((1, workers))
    fixed[0, list(seconds)] = list(seconds.values())
    return Times(fixed=fixed, unit=np.zeros_like(fixed))


class Moves:
    """Notes whose sums are fetched, and how steps follow each other at an actor."""

    def __init__(self, engine: Ray, patch: pytest.MonkeyPatch) -> None:
        self.fetched: list[int] = []
        self.steps: dict[int, list[int]] = {}  # by worker, those it was given parts of
        self.open_at_once = 0
        self._given: dict[int, list[int]] = {}  # by worker, the step of every segment
        self._left: dict[int, int] = {}  # by worker, how many it has let go
        fetch, send, take = engine._reach.fetch, engine._reach.send, engine._take

        def fetching(agent: int, key: int, rows: tuple[int, ...]) -> None:
            self.fetched.append(agent)
            fetch(agent, key, rows)

        def sending(agent: int, frame: bytes) -> None:
            self._note_orders(agent, frame)
            send(agent, frame)

        def taking(handle: WorkerHandle, said: Said) -> None:
            if isinstance(said, Left):
                self._left[handle.worker] = said.taken
            take(handle, said)

        patch.setattr(engine._reach, "fetch", fetching)
        patch.setattr(engine._reach, "send", sending)
        patch.setattr(engine, "_take", taking)

    def _note_orders(self, worker: int, frame: bytes) -> None:
        down = _decode_down(frame)
        orders = decode_gives(down.frame) if isinstance(down, Gives) else []
        given = self._given.setdefault(worker, [])
        given += [g.order.step for g in orders if isinstance(g.order, Assign)]
        open_ = set(given[self._left.get(worker, 0) :])
        self.open_at_once = max(self.open_at_once, len(open_))
        self.steps[worker] = sorted(set(given))


def moved(
    scheme: Scheme, patch: pytest.MonkeyPatch, delays: Times | None = None
) -> tuple[Ray, Moves]:
    engine = Ray(share_memory=False)
    moves = Moves(engine, patch)
    run = train(
        gradient, np.zeros(SIZE), scheme, steps=STEPS, engine=engine, delays=delays
    )
    expected = np.zeros(SIZE)
    for _ in range(STEPS):
        expected -= 0.1 * (expected - np.arange(scheme.parts).mean())
    np.testing.assert_allclose(run.parameters, expected, rtol=1e-12)
    return engine, moves


def until(what: Callable[[], bool]) -> bool:
    """Look until it is so; return whether it is before a hang is called one."""
    deadline = time.monotonic() + HANG
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.timeout(300)
@pytest.mark.parametrize("near", [True, False], ids=["near", "far"])
def test_ray_does_what_drivers_and_schemes_rely_on(near: bool) -> None:
    check_engine(lambda: Ray(open_segments=20, share_memory=near))


# -- what moves ------------------------------------------------------------------------


def test_late_sums_are_not_fetched_and_their_actors_have_one_step_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers 1 and 2 are in the midst of a step when several others are over."""
    delays = late({0: 0.02, 1: 0.1, 2: 0.1}, workers=3)
    engine, moves = moved(fractional(3, 2), monkeypatch, delays)
    assert moves.fetched == [0] * STEPS
    assert engine.fetched == STEPS
    assert moves.open_at_once == 1
    assert moves.steps[0] == [*range(STEPS)]
    assert all(1 < len(moves.steps[worker]) < STEPS for worker in (1, 2))


def test_sums_of_near_workers_are_read_where_they_are() -> None:
    engine = Ray()
    train(gradient, np.zeros(SIZE), uncoded(3), steps=STEPS, engine=engine)
    assert (engine.read, engine.fetched) == (3 * STEPS, 0)


# -- what Ray is asked for -------------------------------------------------------------


def test_workers_are_given_what_was_asked_for_and_the_connection_stays(
    ray_cluster: Cluster,
) -> None:
    ray = ray_cluster.ray
    assert until(lambda: free(ray, "CPU") == total(ray, "CPU"))
    before = free(ray, "memory")
    seen = list[bool]()

    def evaluate(x: np.ndarray) -> float:
        taken = {"CPU": 2 * 1.5, "memory": 2 * 5e7}
        has = {"CPU": total(ray, "CPU"), "memory": before}
        for name, amount in taken.items():
            seen.append(until(lambda n=name, a=amount: free(ray, n) == has[n] - a))
        return 0.0

    asked = {"CPU": 1.5, "memory": 5e7}
    engine = Ray(resources_per_worker=asked)
    train(gradient, np.zeros(3), uncoded(2), steps=1, engine=engine, evaluate=evaluate)
    assert seen == [True, True]
    assert ray.is_initialized()
    assert until(lambda: free(ray, "CPU") == total(ray, "CPU"))


def free(ray: Any, name: str) -> float:
    return float(ray.available_resources().get(name, 0.0))


def total(ray: Any, name: str) -> float:
    return float(ray.cluster_resources()[name])


@pytest.mark.parametrize(
    ("resources", "workers", "said"),
    [
        (None, 7, "7 workers with 1 CPU each are wanted, .* has room for 6 "),
        ({"CPU": 4}, 2, "2 workers with 4 CPU each are wanted, .* has room for 1 "),
        ({"CPU": 0, "unicorn": 1}, 1, "0 CPU, 1 unicorn each .* has room for 0 "),
    ],
    ids=["workers", "CPUs", "unicorns"],
)
def test_too_little_room_is_said_at_once_and_the_connection_stays(
    ray_cluster: Cluster, resources: dict[str, float] | None, workers: int, said: str
) -> None:
    engine = Ray(resources_per_worker=resources)
    advice = "; try fewer workers, or less resources_per_worker$"
    with pytest.raises(EngineFailed, match=said + ".*" + advice):
        train(gradient, np.zeros(3), uncoded(workers), steps=1, engine=engine)
    assert ray_cluster.ray.is_initialized()


def test_an_address_of_another_cluster_than_the_connections_is_warned_of(
    ray_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    there = ray_cluster.ray.get_runtime_context().gcs_address
    for address in (None, "auto", there):
        Cluster(address, 1.0, None).close()
    assert caplog.messages == []
    Cluster("head:6379", 1.0, None).close()
    assert caplog.messages == [
        f"the script is connected to the Ray cluster at {there}, which is used; "
        "address='head:6379' is not"
    ]
    assert ray_cluster.ray.is_initialized()


@pytest.mark.parametrize("amount", [-1, float("nan")])
def test_less_than_nothing_is_refused(amount: float) -> None:
    with pytest.raises(InvalidOptions, match="resources_per_worker: CPU is"):
        Ray(resources_per_worker={"CPU": amount})
