"""Actors and their workers killed and stopped at a step; training none the worse.

An actor is a process of Ray's and the agent of a host, whose workers are others. Every
run is made once, and looked at by several tests. How long Ray takes to start an actor
again is nobody's business here: steps are taken until that has happened.
"""

import os
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import (
    Command,
    Event,
    MessageArrived,
    Patience,
    Progressed,
    Scheme,
    StepStarted,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.engines import Driver, FaultPlan, Ray, train
from codedgrad.jobs import Descent, NumpyJob, single_process
from codedgrad.schemes import auto, coded_reduce, cyclic, fractional, uncoded
from codedgrad.trace import Entry, Trace, replay

HANG = 200.0  # seconds; only a hang takes so long
HANGS = Patience(least=HANG, first=HANG)
SIZE = 20_000  # numbers: too long to travel with a call
MOST = 20_000  # steps
SLOW = 0.01  # seconds a step

pytestmark = [
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.timeout(600),  # where the machine is busy otherwise
]

SLOPES = np.random.default_rng(0).uniform(0.5, 1.5, (7, SIZE))


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    """Return that of other data in every part and step."""
    gap = SLOPES[(part + 3 * step) % 7] * x - SLOPES[part % 7]
    return float(np.square(gap).sum()) / 2, 1.0 + part % 2, gap


def stat(pid: int) -> list[str]:
    """Return what the system says of a process, from its state on; or nothing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def state(pid: int) -> str:
    """Return how a process is: R, S, T...; empty if there is none."""
    found, *_ = stat(pid) or ("X",)
    return "" if found in "ZX" else found


def processes(engine: Ray, number: int) -> list[int]:
    """Return the processes of a host: its agent, the nursery, the workers."""
    host = engine._far[number]
    workers = [engine.pids[worker] for worker in host.workers]
    return [host.link.said.pid, int(stat(workers[0])[1]), *workers]


class Run:
    """Steps on Ray, one by one.

    Args:
        scheme: Who computes what.
        worker: Of the host that something happens to; workers of others are slower,
            so that those of this one are heard.
        each: Workers of a host.
        root_is_agent: Whether the root has a host of its own.

    Attributes:
        entries: What happened, and what it led to.
        heard: By step, whose messages were there in time.
        parameters: Where they have led.
        host: The number of that host.
        victims: Its workers.
    """

    def __init__(
        self, scheme: Scheme, worker: int, each: int, root_is_agent: bool = False
    ) -> None:
        self.scheme, self.worker = scheme, worker
        self.entries: list[Entry] = []
        self.heard: list[tuple[int, ...]] = []
        self._acts: list[tuple[Callable[[Event], bool], Callable[[], None]]] = []
        self._descent = Descent(np.zeros(SIZE), MOST, rate=0.1)
        self.engine = Ray(workers_per_host=each, root_is_agent=root_is_agent)
        job = NumpyJob(gradient, SIZE)
        self._driver = Driver(
            self.engine, scheme, job.layout, patience=HANGS, watch=self._watch
        )
        hosts = scheme.workers // each
        fixed = np.full((1, scheme.workers), SLOW)
        fixed[0, worker % hosts :: hosts] = 0.0
        self.engine.start(
            lambda: job,
            job.layout,
            scheme.workers,
            parts=scheme.parts,
            delays=Times(fixed=fixed, unit=np.zeros_like(fixed)),
        )
        self.victims = tuple(range(worker % hosts, scheme.workers, hosts))
        far = self.engine._far.items()
        [self.host] = [n for n, host in far if tuple(host.workers) == self.victims]

    def _watch(self, event: Event, commands: list[Command]) -> None:
        self.entries.append(Entry(event, tuple(commands)))
        for when, act in list(self._acts):
            if when(event):
                self._acts.remove((when, act))
                act()

    def on(self, when: Callable[[Event], bool], act: Callable[[], None]) -> None:
        """Do something once, when something has happened and no answer is given yet."""
        self._acts.append((when, act))

    def step(self) -> tuple[int, ...]:
        sum_ = self._driver.step(self._descent.parameters)
        self._descent.take(sum_.vector, self.engine.now())
        self.heard.append(sum_.report.heard)
        return sum_.report.heard

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def until(self, what: Callable[[], bool]) -> None:
        """Take steps until something is so, and one at least."""
        deadline = time.monotonic() + HANG
        self.step()
        while not what():
            assert time.monotonic() < deadline, self.heard[-3:]
            self.step()

    def close(self) -> "Run":
        self.parameters = self._descent.parameters
        self.engine.close()
        return self

    @property
    def trace(self) -> Trace:
        return Trace(self._driver.header(), tuple(self.entries))

    def events(self, kind: type[Event]) -> list[Event]:
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]


# -- actors killed ---------------------------------------------------------------------

KILLED = 4  # the step


class Killed(Run):
    """A run in which an actor is killed, and which ends when its next life is heard.

    Attributes:
        before: The processes of its host, and then of the next life.
        after: Likewise.
        moved: Sums fetched by the root, and carried between hosts, before that step.
    """

    def __init__(
        self,
        scheme: Scheme,
        worker: int,
        when: Callable[[Event], bool],
        each: int = 2,
        root_is_agent: bool = False,
    ) -> None:
        super().__init__(scheme, worker, each, root_is_agent)
        self.before = processes(self.engine, self.host)
        self.signalled = 0
        self.moved = -1, -1
        self.on(begins(KILLED), self._count)
        self.on(when, self._kill)
        try:
            self.until(lambda: self.signalled > 0)
            self.until(lambda: bool(self.events(WorkersJoined)))
            self.until(lambda: worker in self.heard[-1])
            self.steps(3)
            self.after = processes(self.engine, self.host)
            self.lives = self.engine.lives
        finally:
            self.close()

    def _count(self) -> None:
        self.moved = self.engine.fetched, self.engine.carried

    def _kill(self) -> None:
        assert all(map(state, self.before))
        os.kill(self.before[0], signal.SIGKILL)
        self.signalled += 1


def begins(step: int) -> Callable[[Event], bool]:
    """When a step has begun and nobody was told yet."""
    return lambda event: isinstance(event, StepStarted) and event.step == step


def has_gathered(event: Event) -> bool:
    """Whether a leaf's message has come to the inner worker above it."""
    is_message = isinstance(event, MessageArrived) and event.step == KILLED
    return is_message and event.worker in (2, 3)


KILLS = {
    "one a host": lambda: Killed(uncoded(4), 1, begins(KILLED), each=1),
    "uncoded": lambda: Killed(uncoded(4), 1, begins(KILLED)),
    "beside the root's": lambda: Killed(
        uncoded(4), 1, begins(KILLED), root_is_agent=True
    ),
    "fractional": lambda: Killed(fractional(4, 1), 2, begins(KILLED)),
    "coded_reduce": lambda: Killed(coded_reduce(6, 2, 0), 0, has_gathered),
}


MOVED = [
    ("one a host", 4, 0),
    ("uncoded", 4, 0),
    ("beside the root's", 2, 0),
    ("coded_reduce", 2, 2),
]


@cache
def killed(name: str) -> Killed:
    return KILLS[name]()


@pytest.mark.parametrize("name", KILLS)
def test_an_actor_that_is_killed_is_lost_and_comes_back_as_another(name: str) -> None:
    run = killed(name)
    assert run.signalled == 1
    assert not {*run.before} & {*run.after}
    assert not any(map(state, run.before))  # neither the actor nor what is below it
    lives = [1 + (w in run.victims) for w in range(run.scheme.workers)]
    assert list(run.lives) == lives


@pytest.mark.parametrize("name", KILLS)
def test_the_loss_of_a_host_is_one_event_and_so_is_its_return(name: str) -> None:
    run = killed(name)
    [lost] = run.events(WorkersLost)
    [joined] = run.events(WorkersJoined)
    assert lost.workers == run.victims
    assert sorted(joined.workers) == [*run.victims]
    assert joined.host == run.host
    assert lost.at < joined.at


@pytest.mark.parametrize("name", KILLS)
def test_no_step_is_lost_with_an_actor_and_the_next_one_is_heard(name: str) -> None:
    run = killed(name)
    started = [e.event.step for e in run.entries if isinstance(e.event, StepStarted)]
    assert started == [*range(len(run.heard))]
    assert run.worker in run.heard[-4]
    assert replay(run.trace, run.scheme) is None


@pytest.mark.parametrize("name", KILLS)
def test_the_parameters_are_those_of_a_single_process(name: str) -> None:
    run = killed(name)
    steps, parts = len(run.heard), run.scheme.parts
    alone = single_process(gradient, np.zeros(SIZE), parts, steps=steps)
    np.testing.assert_allclose(run.parameters, alone.parameters, rtol=1e-10)
    if name != "coded_reduce":  # to the last bit, whoever was heard
        calm = train(gradient, np.zeros(SIZE), run.scheme, steps=steps, engine="here")
        assert run.parameters.tobytes() == calm.parameters.tobytes()


def test_a_step_goes_on_without_an_actor_that_it_can_do_without() -> None:
    run = killed("fractional")
    events = [entry.event for entry in run.entries]
    lost = events.index(run.events(WorkersLost)[0])
    joined = events.index(run.events(WorkersJoined)[0])
    begun = [e for e in events[lost:joined] if isinstance(e, StepStarted)]
    assert len(begun) > 3


def test_what_was_gathered_is_sent_once_more_to_the_next_life() -> None:
    run = killed("coded_reduce")
    events = [entry.event for entry in run.entries]
    joined = events.index(run.events(WorkersJoined)[0])
    again = {
        event.worker
        for event in events[joined:]
        if isinstance(event, MessageArrived) and event.step == KILLED
    }
    assert {0, 2, 3} <= again


@pytest.mark.parametrize(("name", "fetched", "carried"), MOVED)
def test_the_root_fetches_what_it_adds_up_and_nothing_else(
    name: str, fetched: int, carried: int
) -> None:
    """In a tree that is a message of each of its children, by then with all below."""
    assert killed(name).moved == (fetched * KILLED, carried * KILLED)


# -- actors stopped --------------------------------------------------------------------

STOPPED = 4  # the step
STEPS = 8  # that are taken meanwhile


class Stopped(Run):
    """A run in which an actor, or one worker alone, is stopped for some steps."""

    def __init__(
        self,
        scheme: Scheme,
        worker: int,
        when: Callable[[Event], bool],
        is_worker: bool = False,
    ) -> None:
        super().__init__(scheme, worker, each=2)
        if is_worker:
            self.victims = (worker,)
        before = processes(self.engine, self.host)
        pid = self.engine.pids[worker] if is_worker else before[0]
        self.on(when, lambda: os.kill(pid, signal.SIGSTOP))
        self.states = list[str]()
        try:
            self.steps(STOPPED)
            for _ in range(STEPS):
                self.step()
                self.states.append(state(pid))
            os.kill(pid, signal.SIGCONT)
            self.until(lambda: worker in self.heard[-1])
            self.steps(3)
            self.same = processes(self.engine, self.host) == before
            self.lives = self.engine.lives
        finally:
            os.kill(pid, signal.SIGCONT)
            self.close()


def has_finished(worker: int) -> Callable[[Event], bool]:
    """When a worker has finished a sum that is to be fetched, or is on its way."""
    return lambda event: (
        isinstance(event, Progressed)
        and (event.step, event.worker) == (STOPPED, worker)
        and event.closed
    )


STOPS = {
    "fractional": lambda: Stopped(fractional(4, 1), 2, has_finished(2)),
    "cyclic": lambda: Stopped(cyclic(6, 2), 2, begins(STOPPED)),
    "auto": lambda: Stopped(auto(4), 1, begins(STOPPED)),
    "a worker": lambda: Stopped(fractional(4, 1), 2, begins(STOPPED), is_worker=True),
}


@cache
def stopped(name: str) -> Stopped:
    return STOPS[name]()


@pytest.mark.parametrize("name", STOPS)
def test_steps_go_on_while_it_is_stopped(name: str) -> None:
    run = stopped(name)
    assert run.states == ["T"] * STEPS
    assert any(run.worker in heard for heard in run.heard[:STOPPED])
    during = run.heard[STOPPED + 1 : STOPPED + STEPS]
    assert not any({*run.victims} & {*heard} for heard in during)


@pytest.mark.parametrize("name", STOPS)
def test_what_goes_on_is_used_again_and_is_no_new_process(name: str) -> None:
    run = stopped(name)
    assert run.worker in run.heard[-4]
    assert run.same
    assert set(run.lives) == {1}
    assert not run.events(WorkersLost)


@pytest.mark.parametrize("name", STOPS)
def test_a_process_that_was_stopped_changes_no_sum(name: str) -> None:
    run = stopped(name)
    parts, steps = run.scheme.parts, len(run.heard)
    alone = single_process(gradient, np.zeros(SIZE), parts, steps=steps)
    np.testing.assert_allclose(run.parameters, alone.parameters, rtol=1e-10)
    assert replay(run.trace, run.scheme) is None


# -- workers killed and stopped --------------------------------------------------------


def test_workers_that_are_killed_and_stopped_change_no_bit() -> None:
    """Two by the root and two by themselves; their actors live on."""
    faults = FaultPlan().kill(1, 2).kill(0, 4, after=1)
    faults.stop(2, 6, 0.2).stop(1, 8, 0.2, after=1)
    scheme, pids = uncoded(3, pieces=2), set[tuple[int, ...]]()
    engine = Ray(workers_per_host=2, root_is_agent=False)

    def evaluate(x: np.ndarray) -> float:
        pids.add(tuple(host.link.said.pid for host in engine._far.values()))
        return 0.0

    start = np.zeros(SIZE)
    run = train(
        gradient, start, scheme, steps=10, engine=engine, faults=faults,
        patience=HANGS, evaluate=evaluate,
    )  # fmt: skip
    assert faults.all_fired, faults.fired
    assert engine.lives == (2, 2, 1)
    [agents] = pids
    assert len(agents) == 2
    calm = train(gradient, start, scheme, steps=10, engine="here")
    assert run.parameters.tobytes() == calm.parameters.tobytes()


# -- a user's loop ---------------------------------------------------------------------


class Oops(Exception):
    pass


def test_an_exception_in_the_users_loop_leaves_no_actor_and_no_worker() -> None:
    engine, pids = Ray(workers_per_host=1, root_is_agent=False), list[int]()

    def fail(x: np.ndarray) -> float:
        for number in engine._far:
            pids.extend(processes(engine, number))
        raise Oops

    with pytest.raises(Oops):
        train(
            gradient, np.zeros(SIZE), uncoded(2), steps=3, engine=engine, evaluate=fail
        )
    assert len(set(pids)) == 2 * 3
    deadline = time.monotonic() + HANG
    while any(map(state, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
