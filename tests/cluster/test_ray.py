"""The engine on a real Ray: its duties, what it moves, and what it asks Ray for."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from codedgrad.core import Assign, Scheme
from codedgrad.delays import Times
from codedgrad.engines import Engine, Ray, train
from codedgrad.engines.fleet.worker_handle import WorkerHandle
from codedgrad.engines.host.host import Gives, Order
from codedgrad.engines.host.wire import Left, Said, decode_gives
from codedgrad.engines.ray.cluster import Cluster
from codedgrad.engines.remote.far_host import FarHost
from codedgrad.errors import EngineFailed, InvalidOptions
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import coded_reduce, fractional, uncoded
from codedgrad.testing import check_engine

HANG = 200.0  # seconds; only a hang takes so long
SIZE = 20_000  # numbers: too long to travel with a call
STEPS = 8

pytestmark = [
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.timeout(600),  # where the machine is busy otherwise
]


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    return float(part), 1.0, x - part


def late(seconds: Mapping[int, float], workers: int) -> Times:
    """Let some workers take so many seconds longer in every step."""
    fixed = np.zeros((1, workers))
    fixed[0, list(seconds)] = list(seconds.values())
    return Times(fixed=fixed, unit=np.zeros_like(fixed))


class Moves:
    """Notes which hosts are asked for sums, and how steps follow each other there."""

    def __init__(self, engine: Ray, patch: pytest.MonkeyPatch) -> None:
        self.fetched: list[int] = []
        self.steps: dict[int, list[int]] = {}  # by worker, those it was given parts of
        self.open_at_once = 0
        self._given: dict[int, list[int]] = {}  # by worker, the step of every segment
        self._left: dict[int, int] = {}  # by worker, how many it has let go
        fetch, order, take = FarHost.fetch, FarHost.take, engine._take

        def fetching(host: FarHost, *what: Any) -> None:
            self.fetched += host.workers
            fetch(host, *what)

        def ordering(host: FarHost, what: Order) -> None:
            if isinstance(what, Gives):
                self._note(what)
            order(host, what)

        def taking(handle: WorkerHandle, said: Said) -> None:
            if isinstance(said, Left):
                self._left[handle.worker] = said.taken
            take(handle, said)

        patch.setattr(FarHost, "fetch", fetching)
        patch.setattr(FarHost, "take", ordering)
        patch.setattr(engine, "_take", taking)

    def _note(self, gives: Gives) -> None:
        worker, orders = gives.worker, decode_gives(gives.frame)
        given = self._given.setdefault(worker, [])
        given += [g.order.step for g in orders if isinstance(g.order, Assign)]
        open_ = set(given[self._left.get(worker, 0) :])
        self.open_at_once = max(self.open_at_once, len(open_))
        self.steps[worker] = sorted(set(given))


def trained(scheme: Scheme, engine: Engine, delays: Times | None = None) -> None:
    run = train(
        gradient, np.zeros(SIZE), scheme, steps=STEPS, engine=engine, delays=delays
    )
    expected = np.zeros(SIZE)
    for _ in range(STEPS):
        expected -= 0.1 * (expected - np.arange(scheme.parts).mean())
    np.testing.assert_allclose(run.parameters, expected, rtol=1e-12)


def until(what: Callable[[], bool]) -> bool:
    """Look until it is so; return whether it is before a hang is called one."""
    deadline = time.monotonic() + HANG
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("each", "hosts"), [(1, [1, 1, 1, 1]), (None, [4])], ids=["one", "four"]
)
def test_ray_does_what_drivers_and_schemes_rely_on(
    each: int | None, hosts: list[int]
) -> None:
    engines: list[Ray] = []

    def make() -> Ray:
        options = {"workers_per_host": each, "root_is_agent": False}
        engines.append(Ray(open_segments=20, **options))
        return engines[-1]

    check_engine(make)
    assert [len(host.workers) for host in engines[-1]._hosts] == hosts


# -- what moves ------------------------------------------------------------------------


def test_late_sums_are_not_fetched_and_their_workers_have_one_step_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers 1 and 2 are in the midst of a step when several others are over."""
    delays = late({0: 0.02, 1: 0.1, 2: 0.1}, workers=3)
    engine = Ray(workers_per_host=1, root_is_agent=False)
    moves = Moves(engine, monkeypatch)
    trained(fractional(3, 2), engine, delays)
    assert moves.fetched == [0] * STEPS
    assert engine.fetched == STEPS
    assert moves.open_at_once == 1
    assert moves.steps[0] == [*range(STEPS)]
    assert all(1 < len(moves.steps[worker]) < STEPS for worker in (1, 2))


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ({}, (2, 0, 0, 0)),
        ({"root_is_agent": False}, (0, 2, 0, 1)),
        ({"workers_per_host": 2, "root_is_agent": False}, (0, 2, 2, 3)),
        ({"workers_per_host": 3}, (1, 1, 2, 1)),
    ],
    ids=["the root's host", "another", "three others", "one of each"],
)
def test_between_workers_of_a_host_nothing_is_sent(
    options: dict[str, Any], moved: tuple[int, ...]
) -> None:
    """In a tree in which two children of the root have two children each.

    Sums of the root's own host are read where they are, others are fetched from there
    or carried from one host to another; and every other host is sent the parameters.
    """
    engine = Ray(**options)
    trained(coded_reduce(6, 2, 0), engine)
    found = engine.read, engine.fetched, engine.carried, engine.delivered
    assert found == tuple(STEPS * count for count in moved)


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


def test_a_host_has_a_process_each_and_neighbours_are_on_different_hosts() -> None:
    engine, job = Ray(workers_per_host=2), NumpyJob(gradient, 3)
    try:
        engine.start(lambda: job, job.layout, 5)
        assert [[*host.workers] for host in engine._hosts] == [[0, 3], [1, 4], [2]]
        agents = [host.link.said.pid for host in engine._far.values()]
        assert len({os.getpid(), *agents}) == 3
        assert len({*engine.pids}) == 5
    finally:
        engine.close()


def test_on_one_node_it_listens_on_the_loopback_at_the_ports_it_was_told() -> None:
    ports = range(41_000, 41_100)
    engine = Ray(ports=(ports[0], ports[-1]), root_is_agent=False, workers_per_host=1)
    job = NumpyJob(gradient, 3)
    try:
        engine.start(lambda: job, job.layout, 2)
        invitation = engine._launcher.lobby.invitation
        doors = [(invitation.addresses, invitation.port)]
        doors += [
            (host.link.said.where.addresses, host.link.said.where.port)
            for host in engine._far.values()
        ]
        assert {addresses for addresses, _ in doors} == {("127.0.0.1",)}
        assert len({port for _, port in doors} & {*ports}) == 3
        assert engine.try_pairs(HANG) == {}
    finally:
        engine.close()


@pytest.mark.parametrize("amount", [-1, float("nan")])
def test_less_than_nothing_is_refused(amount: float) -> None:
    with pytest.raises(InvalidOptions, match="resources_per_worker: CPU is"):
        Ray(resources_per_worker={"CPU": amount})


def test_less_than_one_worker_a_host_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="workers_per_host: is 0; try 1 or more"):
        Ray(workers_per_host=0)
