"""Workers on several hosts, whose agents are processes of this machine."""

import gc
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from codedgrad.core import (
    ROOT,
    Assign,
    Command,
    Event,
    MessageArrived,
    MessageFailed,
    Progressed,
    StepStarted,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.engines import Driver, FaultPlan, train
from codedgrad.engines.host.host import Heard
from codedgrad.engines.host.wire import Sent, decode_said
from codedgrad.engines.mpi.engine import Mpi
from codedgrad.engines.ray.engine import Ray, RayLauncher
from codedgrad.engines.remote.engine import Remote
from codedgrad.engines.remote.messages import Refuse, Refused
from codedgrad.engines.remote.port import Port
from codedgrad.engines.remote.world import WorldLauncher
from codedgrad.engines.torchrun.engine import Torchrun
from codedgrad.errors import EngineFailed, InvalidOptions, JobFailed
from codedgrad.jobs import NumpyJob, VectorLayout, single_process
from codedgrad.schemes import auto, coded_reduce, fractional, uncoded
from codedgrad.trace import read, replay

_spec = importlib.util.spec_from_file_location(
    "loopback", Path(__file__).with_name("loopback.py")
)
assert _spec is not None
assert _spec.loader is not None
loopback = importlib.util.module_from_spec(_spec)
sys.modules["loopback"] = loopback
_spec.loader.exec_module(loopback)
Looped, Loopback = loopback.Looped, loopback.Loopback

SIZE = 50
HANG = 60.0  # seconds; only a hang takes so long


def gradient(x, part, step):  # type: ignore[no-untyped-def]
    return float(((x - part) ** 2).sum() / 2), 1.0, x - part


def alone(parts: int, steps: int):  # type: ignore[no-untyped-def]
    return single_process(gradient, np.zeros(SIZE), parts, steps=steps).parameters


@pytest.mark.quick("uncoded*-mixed", "auto*-apart", "coded_reduce*-together")
@pytest.mark.parametrize(
    "kind",
    [{}, {"hosts": 1}, {"hosts": 2, "at_root": True}],
    ids=["apart", "together", "mixed"],
)
@pytest.mark.parametrize(
    "scheme",
    [uncoded(3), fractional(4, 1), auto(3), coded_reduce(6, 2, 1)],
    ids=lambda scheme: scheme.name,
)
def test_training_on_hosts_is_training(scheme, kind) -> None:  # type: ignore[no-untyped-def]
    run = train(gradient, np.zeros(SIZE), scheme, steps=6, engine=Looped(**kind))
    expected = alone(scheme.parts, 6)
    np.testing.assert_allclose(run.parameters, expected, rtol=1e-12, atol=1e-13)


def test_workers_are_numbered_round_robin_and_parameters_go_to_each_host_once() -> None:
    engine = Looped(hosts=2, at_root=True)
    train(gradient, np.zeros(SIZE), uncoded(5), steps=4, engine=engine)
    assert [list(host.workers) for host in engine._hosts] == [[0, 2, 4], [1, 3]]
    assert engine.delivered == 4
    assert (engine.read, engine.fetched) == (4 * 3, 4 * 2)


@pytest.mark.parametrize(
    ("kind", "crossing"), [({}, 4), ({"hosts": 2, "at_root": True}, 2)], ids=str
)
def test_in_a_tree_sums_go_from_host_to_host_and_not_by_the_root(
    kind: dict[str, Any], crossing: int
) -> None:
    engine = Looped(**kind)
    scheme = coded_reduce(6, 2, 0)  # two children of the root, two of each of them
    edges = [(2, 0), (3, 0), (4, 1), (5, 1)]
    if kind:  # even numbers are on the root's host
        assert crossing == sum((child - parent) % 2 for child, parent in edges)
    run = train(gradient, np.zeros(SIZE), scheme, steps=5, engine=engine)
    assert engine.carried == 5 * crossing
    assert engine.fetched + engine.read == 5 * 2
    np.testing.assert_allclose(run.parameters, alone(6, 5), rtol=1e-12, atol=1e-13)


def test_sums_on_the_roots_host_wait_for_their_turn_where_a_link_is_shared() -> None:
    engine = Looped(hosts=2, at_root=True)
    run = train(
        gradient, np.zeros(SIZE), uncoded(3), steps=5, engine=engine, uplink="fair"
    )
    assert (engine.read, engine.fetched) == (5 * 2, 5)
    np.testing.assert_array_equal(run.parameters, alone(3, 5))


# -- hosts that are lost ---------------------------------------------------------------


class Steps:
    """A driver of an engine whose hosts can be lost; every sum is checked."""

    def __init__(self, scheme, engine, faults=None) -> None:  # type: ignore[no-untyped-def]
        self.events: list[Event] = []
        self.commands: list[list[Command]] = []
        self.engine, self.parts = engine, scheme.parts
        self.then: Callable[[Event], None] = lambda event: None
        job = NumpyJob(gradient, SIZE, "float64")
        self.driver = Driver(engine, scheme, job.layout, watch=self._watch)
        engine.start(
            lambda: job, job.layout, scheme.workers, parts=scheme.parts, faults=faults
        )

    def _watch(self, event: Event, commands: list[Command]) -> None:
        self.events.append(event)
        self.commands.append(commands)
        self.then(event)

    def step(self, x: float = 1.0) -> tuple[int, ...]:
        sum_ = self.driver.step(np.full(SIZE, x))
        parts = np.arange(self.parts)
        np.testing.assert_allclose(sum_.vector[:SIZE], (x - parts).sum(), atol=1e-12)
        return sum_.report.heard

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG
        while not what():
            assert time.monotonic() < deadline
            self.step()

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]


@pytest.fixture
def started() -> Any:
    made: list[Any] = []

    def start(scheme, engine, faults=None):  # type: ignore[no-untyped-def]
        made.append(engine)
        return Steps(scheme, engine, faults)

    yield start
    for engine in made:
        engine.close()


def test_a_lost_host_is_one_event_and_so_is_its_return(started: Any) -> None:
    engine = Looped(hosts=2)
    steps = started(auto(4), engine)
    steps.step()
    engine.launcher.lose(1)
    steps.until(lambda: bool(steps.of(WorkersLost)))
    [lost] = steps.of(WorkersLost)
    assert lost.workers == (1, 3)
    assert set(steps.step()) <= {0, 2}
    first = steps.events.index(lost)
    told = [command for each in steps.commands[first:] for command in each]
    given = [command for command in told if isinstance(command, Assign)]
    assert given
    assert {order.segment.worker for order in given} <= {0, 2}
    engine.launcher.begin(1)
    steps.until(lambda: bool(steps.of(WorkersJoined)))
    [joined] = steps.of(WorkersJoined)
    assert (joined.workers, joined.host) == ((1, 3), 2)
    assert engine.lives == (1, 2, 1, 2)
    steps.until(lambda: {1, 3} & set(steps.step()) != set())


def test_what_was_heard_outlives_its_host(started: Any) -> None:
    """The step needs the sum that the host has sent before it is lost."""
    engine = Looped(hosts=3)
    steps = started(uncoded(3), engine, FaultPlan().slow(1, 1, 0.3).slow(2, 1, 0.3))
    lost: list[int] = []

    def lose(event: Event) -> None:
        if isinstance(event, MessageArrived) and event.step == 1 and not lost:
            lost.append(event.worker)
            engine.launcher.lose(event.worker)

    steps.then = lose
    steps.step()
    assert lost == []
    steps.step()
    assert len(lost) == 1
    engine.launcher.begin(lost[0])
    steps.step()
    assert engine.lives[lost[0]] == 2


def test_a_host_that_is_lost_with_its_sum_on_the_way_loses_no_step(
    started: Any,
) -> None:
    engine = Looped(hosts=3)
    steps = started(fractional(3, 2), engine)
    killed = 0

    def kill(event: Event) -> None:
        nonlocal killed
        has_closed = isinstance(event, Progressed) and event.closed
        is_there = killed < 2 and 1 in engine.launcher.agents
        if has_closed and event.worker == 1 and is_there:
            killed += 1  # its sum has been asked for, and may be half here
            engine.launcher.lose(1)

    def is_killed_and_back() -> bool:
        if 1 not in engine.launcher.agents:
            engine.launcher.begin(1)
        return killed == 2 and engine._handles[1].is_up

    steps.then = kill
    steps.until(is_killed_and_back)
    for _ in range(3):
        steps.step()


def test_a_tree_goes_on_when_a_host_in_its_middle_is_lost(started: Any) -> None:
    engine = Looped()
    steps = started(coded_reduce(6, 2, 0), engine)
    steps.step()
    engine.launcher.lose(0)  # the parent of 2 and 3
    engine.launcher.begin(0)
    for _ in range(3):
        steps.step()
    assert engine.lives[0] == 2


def test_a_sum_for_a_host_whose_loss_is_about_to_be_told_blocks_no_later_one(
    started: Any,
) -> None:
    engine = Looped()
    steps = started(coded_reduce(6, 2, 0), engine)
    steps.step()
    bring, is_lost = engine._bring, []

    def lose_and_bring(handle: Any, sent: Any, reader: int) -> None:
        if reader == 0 and not is_lost:
            is_lost.append(True)
            engine.launcher.lose(0)
            while engine._far[1].is_there:
                engine._reactor.poll(HANG)
                while engine._inbox:
                    engine._note(*engine._inbox.popleft())
            engine.launcher.begin(0)
        bring(handle, sent, reader)

    engine._bring = lose_and_bring
    for _ in range(4):
        steps.step()
    assert is_lost
    assert engine.lives == (2, 1, 1, 1, 1, 1)
    assert engine._under_way == {}


def test_a_sum_that_is_given_up_is_not_read_and_the_next_one_is(started: Any) -> None:
    """It is refused before it comes, over a connection that others use, too."""
    engine = Looped()
    steps = started(coded_reduce(6, 2, 0), engine)
    steps.step()
    sender, reader = engine._far[3], engine._far[1]
    carry, given_up = sender.carry, []

    def give_up(key: int, rows: Any, to: Any, row: int) -> None:
        if given_up:
            carry(key, rows, to, row)
            return
        given_up.append(key)
        reader.take(Refuse(key))
        while (reader.number, Refused(key)) not in engine._inbox:
            engine._reactor.poll(HANG)
        carry(key, rows, to, row)
        engine._end_transfer(key, "the test gives it up")

    sender.carry = give_up
    before = engine.carried
    steps.step()
    assert given_up
    steps.until(lambda: engine._unsure == {})
    assert engine.carried - before == 4 * (len(steps.of(StepStarted)) - 1)
    assert engine.lives == (1,) * 6
    [failed] = steps.of(MessageFailed)
    assert failed.worker == 2
    assert "from host 3 (" in failed.reason
    assert failed.reason.endswith(": the test gives it up")


def test_a_message_that_is_said_twice_travels_once(started: Any) -> None:
    engine = Looped()
    faults = FaultPlan().corrupt(2, 1, how="repeat").corrupt(0, 2, how="repeat")
    steps = started(coded_reduce(6, 2, 0), engine, faults)
    for _ in range(4):
        steps.step()
    assert faults.all_fired
    assert (engine.carried, engine.fetched) == (4 * 4, 4 * 2)


def test_sums_that_come_between_two_steps_do_not_travel(started: Any) -> None:
    engine, faults = Looped(hosts=1), FaultPlan()
    for worker in range(1, 5):
        faults.slow(worker, 1, 1.0)
    steps = started(fractional(5, 4), engine, faults)

    take, taken, late = engine._sent, set[int](), set[int]()

    def note_and_take(handle: Any, sent: Sent) -> None:
        if sent.step == 1:
            taken.add(handle.worker)
        take(handle, sent)

    def untaken() -> set[int]:
        heard = [report for _, report in engine._inbox if isinstance(report, Heard)]
        said = [(each.worker, one) for each in heard for one in decode_said(each.frame)]
        return {worker for worker, one in said if isinstance(one, Sent)}

    def hear_all(event: Event) -> None:
        """Let all others report while the root is about to end the step."""
        if isinstance(event, MessageArrived) and event.step == 1 and not late:
            while taken | untaken() != {0, 1, 2, 3, 4}:
                engine._reactor.poll(HANG)
            late.update(untaken())

    engine._sent = note_and_take
    steps.step()
    # A worker that is late with step 0 has no orders of step 1 until the root hears it.
    while {worker.state for worker in engine.workers} != {"ready"}:
        engine._reactor.poll(HANG)
    steps.then = hear_all
    [heard] = steps.step()
    assert late
    fetched = engine.fetched
    assert {worker.state for worker in engine.workers} <= {"ready", "late"}
    steps.step()
    assert engine.fetched - fetched <= 2  # of this step alone
    arrived = {e.worker for e in steps.of(MessageArrived) if e.step == 1}
    assert {heard, *late} <= arrived


def test_an_agent_that_comes_and_goes_at_once_is_waited_for(
    started: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Looped(hosts=2)
    steps = started(fractional(4, 1), engine)
    engine.launcher.lose(1)
    steps.until(lambda: bool(steps.of(WorkersLost)))
    engine.launcher.begin(1)
    while not (links := [x for host, x in engine._inbox if host == -1]):
        engine._reactor.poll(HANG)
    engine.launcher.lose(1)
    while links[0].connection.is_open:
        engine._reactor.poll(HANG)
    steps.step()
    assert "is gone again: its process has ended" in caplog.text
    engine.launcher.begin(1)
    steps.until(lambda: bool(steps.of(WorkersJoined)))
    assert engine.lives == (1, 2, 1, 2)


def test_an_agent_that_stands_still_is_done_without_and_used_again(
    started: Any,
) -> None:
    engine = Looped(hosts=2)
    steps = started(fractional(4, 1), engine)
    steps.step()
    engine.launcher.signal(1, signal.SIGSTOP)
    for _ in range(5):
        steps.step()
    assert set(steps.step()) <= {0, 2}
    engine.launcher.signal(1, signal.SIGCONT)
    steps.until(lambda: {1, 3} & set(steps.step()) != set())
    assert steps.of(WorkersLost) == []


def test_an_agent_whose_link_is_cut_calls_again(started: Any) -> None:
    engine = Looped(hosts=2)
    steps = started(fractional(4, 1), engine)
    steps.step()
    pid = engine._far[2].link.said.pid
    engine._far[2].link.connection.cut("by the test")
    steps.until(lambda: bool(steps.of(WorkersJoined)))
    assert [event.workers for event in steps.of(WorkersLost)] == [(1, 3)]
    assert engine._far[2].link.said.pid == pid  # the same process, with new workers
    assert engine.lives == (1, 2, 1, 2)
    steps.step()


def test_a_run_whose_host_was_lost_replays(tmp_path: Path) -> None:
    engine = Looped(hosts=2)
    trace = tmp_path / "trace.jsonl"
    steps = 0

    def watch(event: Event, commands: list[Command]) -> None:
        nonlocal steps
        if isinstance(event, MessageArrived):
            steps = event.step
        if steps == 2 and 1 in engine.launcher.agents:
            engine.launcher.lose(1)

    scheme = auto(4)
    run = train(
        gradient, np.zeros(SIZE), scheme, steps=8, engine=engine, trace=trace,
        watch=watch,
    )  # fmt: skip
    np.testing.assert_allclose(run.parameters, alone(scheme.parts, 8), rtol=1e-10)
    recorded = read(trace)
    lost = [e.event for e in recorded.entries if isinstance(e.event, WorkersLost)]
    assert [event.workers for event in lost] == [(1, 3)]
    assert replay(recorded, scheme) is None


def test_any_number_of_sums_that_need_not_move_may_wait_behind_one_that_does() -> None:
    """As sums of the root's own host do, where a link is shared fairly."""
    begun = []

    class Granted(Remote):
        def _begin(self, transfer: Any) -> None:
            begun.append(transfer.key)
            self._port(transfer.to).done(transfer, self.now())
            self._admit(transfer.to)  # as the end of any transfer does

    engine = Granted(WorldLauncher(lambda: pytest.fail("opened"), True))
    for key in range(2000):
        waiting = SimpleNamespace(key=key, sender=key, to=ROOT)
        engine._ports.setdefault(ROOT, Port(width=1)).put(waiting)
    engine._admit(ROOT)
    assert begun == [*range(2000)]
    engine.close()


# -- starting and ending ---------------------------------------------------------------


def test_an_agent_that_ends_before_it_calls_is_an_error_that_says_so() -> None:
    engine = Looped()
    begin = engine.launcher.begin

    def begin_but_one(number: int) -> None:
        begin(number)
        if number == 1:
            engine.launcher.agents[number].kill()

    engine.launcher.begin = begin_but_one
    job = NumpyJob(gradient, SIZE, "float64")
    with pytest.raises(EngineFailed, match=r"agent 1 has ended|lost while it was set"):
        engine.start(lambda: job, job.layout, 2)
    assert not engine._is_open


def test_a_job_that_cannot_be_made_elsewhere_is_told_with_its_traceback() -> None:
    def broken():  # type: ignore[no-untyped-def]
        raise ZeroDivisionError("of all things")

    engine = Looped()
    with pytest.raises(JobFailed, match="of all things"):
        engine.start(broken, VectorLayout(parameters=2, gradient=2), 2)
    assert not engine._is_open


def test_a_module_is_imported_once_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    module = tmp_path / "counted_module.py"
    module.write_text(f"import os\nopen({str(log)!r}, 'a').write('x')\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def heavy(x, part, step):  # type: ignore[no-untyped-def]
        import counted_module

        assert counted_module.os
        return gradient(x, part, step)

    engine = Looped(hosts=2, at_root=True)
    engine._preload.append("counted_module")
    run = train(heavy, np.zeros(SIZE), uncoded(6), steps=2, engine=engine)
    np.testing.assert_array_equal(run.parameters, alone(6, 2))
    assert log.read_text() == "xx"


def test_workers_compute_with_the_threads_that_they_are_told(tmp_path: Path) -> None:
    def threads(x, part, step):  # type: ignore[no-untyped-def]
        return 0.0, 1.0, np.full_like(x, float(os.environ["OMP_NUM_THREADS"]))

    for asked, seen in ((3, 3.0), (1, 1.0)):
        engine = Looped(hosts=2, at_root=True, threads=asked)
        run = train(threads, np.zeros(1), uncoded(2), steps=1, rate=1.0, engine=engine)
        assert run.parameters == -seen
        assert engine.threads == (asked, asked)
    with pytest.raises(InvalidOptions, match="threads: is 0; try 1 or more, or"):
        Looped(threads=0)


def test_agents_can_reach_each_other_and_it_is_said_which_cannot(started: Any) -> None:
    engine = Looped()
    started(uncoded(3), engine)
    assert engine.try_pairs(HANG) == {}
    engine.launcher.signal(2, signal.SIGSTOP)
    found = engine.try_pairs(2.0)
    engine.launcher.signal(2, signal.SIGCONT)
    assert (1, 2) not in found
    assert (3, 1) in found  # it cannot try
    assert "no answer within 2 s" in found[3, 1]


@pytest.mark.parametrize("make", [Looped, Mpi, Ray, Torchrun])
def test_an_engine_that_is_forgotten_lets_go_of_its_launcher(
    make: type[Remote], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that never started: Ray has a cluster once it is asked for machines."""
    closed: list[type] = []
    for launcher in (Loopback, WorldLauncher, RayLauncher):
        monkeypatch.setattr(launcher, "close", lambda self: closed.append(type(self)))
    engine = make()
    launcher = type(engine._launcher)
    del engine
    gc.collect()
    assert closed == [launcher]


def test_nothing_is_left_open_when_runs_are_over() -> None:
    def run() -> None:
        engine = Looped(hosts=2, at_root=True)
        train(gradient, np.zeros(SIZE), uncoded(3), steps=2, engine=engine)
        agents = engine.launcher.agents.values()
        assert all(agent.poll() is not None for agent in agents)

    run()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        run()
    gc.collect()  # the last ones to look at memory keep it
    assert len(os.listdir("/proc/self/fd")) == before
