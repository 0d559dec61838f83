"""The fault simulator: nothing breaks what is right, and what is wrong is caught."""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from codedgrad import schemes
from codedgrad.codes import decode
from codedgrad.core import (
    Assign,
    Capabilities,
    Combine,
    Command,
    Cut,
    Decision,
    Event,
    Finish,
    GiveUp,
    History,
    Ledger,
    MessageArrived,
    MessagesCompared,
    Scheme,
    Segment,
    Session,
    State,
    StepStarted,
    TimerFired,
    Upload,
    WakeAt,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.errors import Violation
from codedgrad.schemes import CodedScheme
from codedgrad.schemes.code_plan import CodePlan
from codedgrad.testing import (
    EXAMPLES,
    Everything,
    Invariants,
    Schedule,
    SimulatedFault,
    attack,
    draw,
    run,
    shrink,
)
from codedgrad.testing.faulty_simulator import KINDS, Troubled
from codedgrad.trace import (
    Entry,
    Header,
    Reporter,
    Trace,
    ended_steps,
    read,
    replay,
    reports,
)

SCHEMES = [
    *EXAMPLES,
    Everything(4),
    Everything(5, each=2, copies=5),
    Everything(3, each=4, copies=2),
]


@pytest.mark.hypothesis  # so that a soak runs it
@pytest.mark.timeout(3600)
def test_no_schedule_of_faults_breaks_a_rule(
    schedules: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = 0 if schedules <= 2000 else int(np.random.SeedSequence().entropy % 2**32)
    print(f"{schedules} schedules, seed {seed}")
    failure = attack(SCHEMES, schedules, seed)
    if failure is not None:
        failure.save(tmp_path / "failure.jsonl")
        pytest.fail(f"seed {seed}: {failure}\ntrace in {tmp_path / 'failure.jsonl'}")


# -- what is wrong is caught -----------------------------------------------------------


class OneShort(CodedScheme):
    """Deliberately broken: calls a step exact with one worker too many late.

    Only wrong when somebody was lost before: calm runs are right.
    """

    def plan(self, step: int, history: History) -> CodePlan:
        plan = super().plan(step, history)
        judge = plan.judge

        def hasty(state: State, event: Event) -> Decision:
            if isinstance(event, WorkersLost) and state.heard:
                owner = {i: m.worker for i, m in state.messages.items()}
                decoding = decode(self.code, [owner[i] for i in state.heard])
                ids = {owner[i]: i for i in state.heard}
                weights = tuple((ids[w], a) for w, a in decoding.weights)
                return Finish(weights, 0.0)
            return judge(state, event)

        plan.judge = hasty
        return plan


def test_a_deliberately_broken_scheme_is_caught_and_shrunk_to_its_cause(
    tmp_path: Path,
) -> None:
    plain = schemes.cyclic(5, 1)
    broken = OneShort(plain.name, plain.code, plain.rule)
    failure = attack([broken], 500, seed=1)
    assert failure is not None
    assert isinstance(failure.error, Violation)
    assert failure.error.rule == "every part is in the sum exactly once"
    assert [fault.kind for fault in failure.schedule.faults] == ["lose"]
    assert failure.schedule.steps <= 2
    assert failure.schedule.latency == 0.0
    failure.save(tmp_path / "small.jsonl")
    trace = read(tmp_path / "small.jsonl")
    assert len(trace.entries) <= 40
    assert "lose" in trace.header.note
    assert replay(trace, broken) is None  # the bug report shows the bug
    difference = replay(trace, plain)  # and a mended scheme decides otherwise
    assert difference is not None
    assert isinstance(difference.event, WorkersLost)


def test_the_same_schedule_gives_the_same_run() -> None:
    rng = np.random.default_rng(4)
    for scheme in SCHEMES:
        schedule = draw(scheme, rng)
        runs: list[list[Entry]] = [[], []]
        for entries in runs:
            simulator = Troubled(
                schedule,
                scheme,
                lambda event, commands, e=entries: e.append(
                    Entry(event, tuple(commands))
                ),
            )
            for _ in range(schedule.steps):
                simulator.next_step()
        assert runs[0] == runs[1]


# -- the invariants themselves ---------------------------------------------------------

SCHEME = schemes.uncoded(2)
SEGMENTS = [Segment(0, 0, (0,), (1.0,)), Segment(2, 1, (1,), (1.0,))]
START = (
    StepStarted(0, 0.0),
    [Assign(0, SEGMENTS[0], 1), Assign(0, SEGMENTS[1], 3)],
)
HEARD = [
    (MessageArrived(0, 0, 1, ((0, 1),), 1.0), []),
    (MessageArrived(0, 1, 3, ((2, 1),), 2.0), []),
]


@pytest.mark.parametrize(
    ("script", "rule"),
    [
        ([(TimerFired(3.0), [Combine(0, ((1, 1.0),), 0.0)])], "exactly once"),
        ([(TimerFired(3.0), [Combine(0, ((1, 1.0), (3, 1.1)), 0.0)])], "exactly once"),
        ([(TimerFired(3.0), [Combine(0, ((5, 1.0),), 0.0)])], "only heard messages"),
        (
            [(TimerFired(3.0), [Combine(0, ((1, 1.0), (3, 1.0)), 1.0)])],
            "the residual stated",
        ),
        ([(TimerFired(3.0), [GiveUp(0, ""), GiveUp(0, "")])], "only the open step"),
        ([(TimerFired(3.0), [GiveUp(1, "")])], "only the open step"),
        (
            [(WorkersLost((1,), 3.0), [Cut(0, 1, 2, 0)])],
            "no command goes to a lost worker",
        ),
        ([(TimerFired(3.0), [Cut(0, 1, 0, 0)])], "segments of their worker"),
        ([(TimerFired(3.0), [Upload(0, 1, 4, (0,))])], "segments of their worker"),
        ([(TimerFired(3.0), [Upload(0, 0, 3, (0,))])], "every number is used once"),
        (
            [(TimerFired(3.0), [Assign(0, Segment(4, 0, (1,), (1.0,)), None)])],
            "segments fit the placement",
        ),
        (
            [(StepStarted(1, 3.0), [Assign(1, Segment(0, 0, (0,), (1.0,)), None)])],
            "a step is closed before the next",
        ),
        (
            [(MessagesCompared(0, (), 3.0), [WakeAt(0, 9.0)])],
            "comparing decides nothing",
        ),
    ],
)
def test_every_invariant_can_be_violated(
    script: list[tuple[Event, list[object]]], rule: str
) -> None:
    invariants = Invariants(SCHEME)
    for event, commands in [START, *HEARD]:
        invariants(event, commands)
    ((event, commands),) = script
    with pytest.raises(Violation, match=rule):
        invariants(event, commands)


def test_nobody_is_believed_alone_unless_all_who_could_contradict_were_asked() -> None:
    scheme = schemes.fractional(2, 1)
    asked = [
        Assign(0, Segment(2 * w, w, (0, 1), (1.0, 1.0)), 2 * w + 1) for w in (0, 1)
    ]
    event = MessageArrived(0, 0, 1, ((0, 2),), 1.0, finite=False)
    end = Combine(0, ((1, 1.0),), 0.0)
    invariants = Invariants(scheme)
    invariants(StepStarted(0, 0.0), asked[:1])
    with pytest.raises(Violation, match="nobody is believed alone"):
        invariants(event, [end])
    invariants = Invariants(scheme)
    invariants(StepStarted(0, 0.0), asked)
    invariants(event, [end])  # worker 1 was asked, and may have been lost since
    invariants = Invariants(scheme, Capabilities(rows_per_worker=0))
    invariants(StepStarted(0, 0.0), asked[:1])
    invariants(event, [end])  # it could not be asked


# -- every situation occurs ------------------------------------------------------------


class Situations:
    """Notes which situations a run goes through."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.segments: dict[int, Segment] = {}
        self.keeps: dict[int, int] = {}
        self.uploads: dict[int, tuple[int, float]] = {}
        self.joined: set[int] = set()
        self.owners: Counter[int] = Counter()

    def __call__(self, event: Event, commands: list[object]) -> None:
        if isinstance(event, StepStarted) and commands:
            self.segments, self.keeps, self.uploads = {}, {}, {}
            self.joined, self.owners = set(), Counter()
        if isinstance(event, MessageArrived) and event.message in self.uploads:
            del self.uploads[event.message]
            self.seen["one message of several segments"] += len(event.cuts) > 1
            for id_, done in event.cuts:
                if id_ in self.segments:
                    size = len(self.segments[id_].parts)
                    self.seen["prefix"] += 0 < done < size
                    keep = self.keeps.get(id_, size)
                    self.seen["cut that lost the race"] += 0 < keep < done
        if isinstance(event, WorkersLost):
            waiting = any(
                worker in event.workers for worker, _ in self.uploads.values()
            )
            self.seen["loss between finish and upload"] += waiting
            self.seen["loss of several at once"] += len(event.workers) > 1
        if isinstance(event, WorkersJoined):
            self.joined.update(event.workers)
            self.seen["join of several at once"] += len(event.workers) > 1
        self.seen["comparison"] += isinstance(event, MessagesCompared)
        for command in commands:
            self.seen[type(command).__name__] += 1
            match command:
                case Assign(_, segment):
                    self.segments[segment.id] = segment
                    self.owners[segment.worker] += 1
                    several = self.owners[segment.worker] > 1
                    self.seen["several segments on a worker"] += several
                    self.seen["join mid-step"] += segment.worker in self.joined
                case Cut(_, _, id_, keep):
                    self.keeps[id_] = min(keep, self.keeps.get(id_, keep))
                case Upload(_, worker, message):
                    late = [w for w, at in self.uploads.values() if at < event.at]
                    self.seen["silent uploader"] += bool(late)
                    self.uploads[message] = worker, event.at
                case GiveUp(_, reason):
                    self.seen[reason.partition(" ")[0]] += 1


def test_the_schedules_lead_a_scheme_through_every_situation() -> None:
    rng = np.random.default_rng(0)
    situations = Situations()
    for number in range(400):
        scheme = SCHEMES[-3 + number % 3]
        schedule = draw(scheme, rng)
        simulator = Troubled(schedule, scheme, situations)
        for _ in range(schedule.steps):
            simulator.next_step()
    wanted = {
        "prefix", "cut that lost the race", "several segments on a worker",
        "one message of several segments", "loss between finish and upload",
        "silent uploader", "join mid-step", "superseded", "cancelled", "comparison",
        "loss of several at once", "join of several at once",
        "Assign", "Cut", "Upload", "Drop", "WakeAt", "Combine", "GiveUp",
    }  # fmt: skip
    assert {name for name in wanted if situations.seen[name] == 0} == set()


class Opinions:
    """Notes what becomes of messages that are not finite."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.simulator: Troubled | None = None
        self.step = -1

    def __call__(self, event: Event, commands: list[object]) -> None:
        assert self.simulator is not None
        coordinator = self.simulator.coordinator
        state = coordinator.state
        if state is None and coordinator.history.records:
            state = coordinator.history.records[-1].state
        if state is None:
            return
        if state.step != self.step:
            self.step, self.doubted, self.marks = state.step, set[int](), 0
            self.diverged = False
            self.asked: dict[int, Assign] = {}
        before, after = self.doubted, set(state.doubted)
        aside = set() if state.aside is None else set(state.aside.segments)
        asked = [c for c in commands if isinstance(c, Assign) and c.segment.id in aside]
        heard = before & set(state.heard)
        new = isinstance(event, MessageArrived) and not event.finite
        opinion = isinstance(event, MessageArrived) and event.message in self.asked
        marked, self.marks = (
            len(state.contradicted) > self.marks,
            len(state.contradicted),
        )
        self.seen["evidence contradicts at once"] += marked and new and not opinion
        self.seen["evidence contradicts later"] += marked and not new and not opinion
        self.seen["an asked replica contradicts"] += marked and opinion
        self.seen["agreement"] += bool(heard) and new and opinion
        self.seen["agreement unasked"] += bool(heard) and new and not opinion
        self.seen["the sender is asked itself"] += any(
            c.segment.worker == state.messages[id_].worker
            and set(c.segment.parts) == set(state.row(id_))
            for c in asked
            for id_ in after
        )
        self.seen["pieces are asked for"] += len(asked) > 1
        if isinstance(event, WorkersLost):
            giver = any(c.segment.worker in event.workers for c in self.asked.values())
            self.seen["who was asked is lost"] += giver and bool(before)
        if new and not opinion and event.message in state.heard:
            first = not self.diverged and event.message not in before
            self.seen["nobody can be asked"] += first and not heard
        self.diverged = state.diverged
        ends = any(isinstance(c, Combine | GiveUp) for c in commands)
        self.seen["who was asked is slow"] += ends and bool(before & after)
        self.asked.update({c.segment.id + 1: c for c in asked})
        self.doubted = after


def test_the_schedules_lead_through_everything_that_becomes_of_doubts() -> None:
    rng = np.random.default_rng(6)
    opinions = Opinions()
    for number in range(500):
        scheme = SCHEMES[number % len(SCHEMES)]
        schedule = draw(scheme, rng)
        kind = ("nan", "diverge")[number % 2]
        step, worker = rng.integers(schedule.steps), rng.integers(scheme.workers)
        trouble = SimulatedFault(kind, int(step), int(worker))
        schedule = structs.replace(schedule, faults=(*schedule.faults, trouble))
        if (
            isinstance(scheme, CodedScheme) and number % 3 == 0
        ):  # an engine without room
            most = max(Counter(scheme.code.owner).values())
            engine = Capabilities(rows_per_worker=most)
            schedule = structs.replace(schedule, capabilities=engine)
        opinions.simulator = Troubled(schedule, scheme, opinions)
        opinions.step = -1
        for _ in range(schedule.steps):
            opinions.simulator.next_step()
    wanted = {
        "evidence contradicts at once", "evidence contradicts later",
        "an asked replica contradicts", "agreement", "agreement unasked",
        "the sender is asked itself", "pieces are asked for", "who was asked is lost",
        "nobody can be asked", "who was asked is slow",
    }  # fmt: skip
    assert {name for name in wanted if opinions.seen[name] == 0} == set()


def reported(
    schedule: Schedule, scheme: Scheme
) -> tuple[list[Entry], list[tuple[object, ...]]]:
    """Run a schedule; return its trace, and every step as reported when it ended."""
    report, entries = Reporter(scheme.workers, scheme.parts), list[Entry]()
    live = list[tuple[object, ...]]()

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))
        history = simulator.coordinator.history
        for end in commands:
            if isinstance(end, Combine | GiveUp):
                record = history.records[-1]
                told = dataclasses.replace(report(record, end), waiting=None)
                live.append((told, record.contradicted, record.diverged))

    simulator = Troubled(schedule, scheme, watch)
    for _ in range(schedule.steps):
        simulator.next_step()
    return entries, live


def test_a_trace_tells_what_became_of_doubts_without_saying_so() -> None:
    """What is rebuilt is what was: the report made live is the one of the trace."""
    rng = np.random.default_rng(7)
    doubts = 0
    for number in range(300):
        scheme = EXAMPLES[number % len(EXAMPLES)]
        schedule = draw(scheme, rng)
        kinds = ("nan", "nan", "diverge", "lose", "mute")
        trouble = tuple(
            SimulatedFault(
                str(rng.choice(kinds)), int(rng.integers(schedule.steps)),
                int(rng.integers(scheme.workers)), float(rng.exponential(1.0)), 2.0,
            )
            for _ in range(3)
        )  # fmt: skip
        # who supersedes a step does not wait for its report
        calm = [fault for fault in schedule.faults if fault.kind != "supersede"]
        schedule = structs.replace(schedule, faults=(*calm, *trouble))
        entries, live = reported(schedule, scheme)
        header = Header(
            scheme=scheme.name,
            workers=scheme.workers,
            parts=scheme.parts,
            capabilities=schedule.capabilities,
        )
        trace = Trace(header, tuple(entries))
        marks = [(r.contradicted, r.diverged) for r, _ in ended_steps(trace)]
        told = [dataclasses.replace(r, waiting=None) for r in reports(trace).steps]
        rebuilt = [(r, *m) for r, m in zip(told, marks, strict=True)]
        assert rebuilt == live
        doubts += sum(bool(m[0]) or m[1] for m in marks)
    assert doubts > 100


def test_a_worker_alone_is_never_believed_where_others_can_be_asked() -> None:
    scheme = schemes.fractional(4, 1)
    for seed in range(20):
        fault = SimulatedFault("nan", step=0, worker=seed % 4)
        schedule = Schedule(seed=seed, steps=1, faults=(fault,))
        assert run(schedule, scheme) is None
        simulator = Troubled(schedule, scheme, lambda event, commands: None)
        step = simulator.next_step()
        record = simulator.coordinator.history.records[-1]
        weighed = {record.state.messages[m].worker for m, _ in step.weights}
        assert step.combined
        assert seed % 4 not in weighed
        assert not record.diverged


@pytest.mark.parametrize(
    ("seed", "latency", "progress"),
    [(830224615, 0.0, False), (809231177, 0.5, True), (112209654, 0.0, True)],
)
def test_a_worker_called_silent_while_its_sum_is_doubted_is_believed_again(
    seed: int, latency: float, progress: bool
) -> None:
    faults = (
        SimulatedFault("diverge", step=1, worker=2),
        SimulatedFault("fail", step=1, worker=1),
    )
    engine = Capabilities(progress=progress, orders_during_part=False)
    schedule = Schedule(seed, 2, faults, latency, engine)
    assert run(schedule, Everything(3, each=4, copies=2)) is None


class Finished:
    """Looks at the moments at which every part is finished and every segment closed."""

    def __init__(self) -> None:
        self.simulator: Troubled | None = None
        self.covered = self.planned = self.silent = 0

    def __call__(self, event: Event, commands: list[object]) -> None:
        assert self.simulator is not None
        coordinator = self.simulator.coordinator
        state, plan = coordinator.state, coordinator._plan
        if state is None or state.missing:
            return
        new = {c.segment.id for c in commands if isinstance(c, Assign)}
        before = [
            known
            for id_, known in state.segments.items()
            if not known.gone and id_ not in new
        ]
        if all(known.closed for known in before):
            on_its_way = any(m.pending for m in state.messages.values())
            waits_for = bool(plan._silent or plan._dropped)
            assert on_its_way or new or waits_for, (event, commands)
            self.covered += on_its_way
            self.planned += bool(new)
            self.silent += waits_for


def test_when_everything_is_finished_and_closed_there_is_a_cover_or_a_new_plan() -> (
    None
):
    rng = np.random.default_rng(2)
    finished = Finished()
    for number in range(400):
        scheme = SCHEMES[-3 + number % 3]
        schedule = draw(scheme, rng)
        finished.simulator = Troubled(schedule, scheme, finished)
        for _ in range(schedule.steps):
            finished.simulator.next_step()
    assert finished.covered > 100
    assert finished.planned > 0


@pytest.mark.parametrize(
    ("worker", "hosts", "lost"),
    [
        (3, 0, (3,)),
        (3, 2, (1, 3)),
        (4, 3, (1, 4)),
        (4, 5, (4,)),
        (2, 1, (0, 1, 2, 3, 4)),
    ],
)
def test_a_loss_and_a_join_may_be_of_all_workers_on_a_host(
    worker: int, hosts: int, lost: tuple[int, ...]
) -> None:
    faults = (
        SimulatedFault("lose", 0, worker, when=0.01, hosts=hosts),
        SimulatedFault("join", 0, worker, when=0.02, hosts=hosts),
    )
    schedule = Schedule(seed=3, steps=1, faults=faults)
    assert run(schedule, schemes.uncoded(5)) is None
    events: list[Event] = []
    simulator = Troubled(
        schedule, schemes.uncoded(5), lambda event, commands: events.append(event)
    )
    assert simulator.next_step().combined
    assert [e for e in events if isinstance(e, WorkersLost)] == [
        WorkersLost(lost, 0.01)
    ]
    assert [e for e in events if isinstance(e, WorkersJoined)] == [
        WorkersJoined(lost, 0.02)
    ]


def test_a_host_that_is_lost_is_away_for_steps_and_comes_back_together() -> None:
    fault = SimulatedFault("lose", 0, 1, when=0.01, size=3.0, hosts=2)
    scheme = schemes.fractional(4, 1)
    schedule = Schedule(seed=3, steps=4, faults=(fault,))
    assert run(schedule, scheme) is None
    simulator = Troubled(schedule, scheme, lambda event, commands: None)
    alive = []
    for _ in range(4):
        simulator.next_step()
        alive.append(simulator.coordinator.alive)
    away = (True, False, True, False)
    assert alive == [away, away, away, (True,) * 4]


def test_a_lost_host_is_shrunk_to_a_lost_worker_where_that_is_enough() -> None:
    plain = schemes.cyclic(5, 1)
    broken = OneShort(plain.name, plain.code, plain.rule)
    host = SimulatedFault("lose", step=0, worker=1, when=0.5, hosts=3)
    failure = run(Schedule(seed=0, steps=2, faults=(host,)), broken)
    assert failure is not None
    assert "lose(workers 1 4, step 0)" in str(failure)
    small = shrink(failure)
    assert type(small.error) is Violation
    assert [(fault.kind, fault.hosts) for fault in small.schedule.faults] == [
        ("lose", 0)
    ]
    assert "lose(worker 1, step 0)" in str(small)


def test_hosts_are_drawn_without_changing_what_else_a_seed_stands_for() -> None:
    rng = np.random.default_rng(0)
    seen = Counter[int]()
    for number in range(300):
        schedule = draw(SCHEMES[number % len(SCHEMES)], rng)
        deaths = [f for f in schedule.faults if f.kind in ("lose", "join")]
        assert not any(f.hosts for f in schedule.faults if f not in deaths)
        assert len({fault.hosts for fault in deaths} - {0}) <= 1
        seen.update(fault.hosts for fault in deaths)
    assert {0, 1, 2, 3, 4} <= seen.keys()
    assert 0.4 < seen[0] / seen.total() < 0.6
    drawn = draw(schemes.uncoded(4), np.random.default_rng(327))
    assert (drawn.seed, drawn.steps, drawn.latency) == (1047099765, 2, 0.5)
    assert [structs.replace(fault, hosts=0) for fault in drawn.faults] == [
        SimulatedFault("fail", step=0, worker=0, when=0.138, size=5.0),
        SimulatedFault("join", step=1, worker=1, when=2.517, size=1.0),
        SimulatedFault("lose", step=1, worker=0, when=0.68, size=5.0),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_reaches_the_coordinator(kind: str) -> None:
    fault = SimulatedFault(kind, step=1, worker=0, when=0.05, size=2.0)
    loss = SimulatedFault("lose", step=1, worker=0, when=0.01, size=1.0)
    faults = (loss, fault) if kind == "join" else (fault,)
    scheme = (
        schemes.stochastic(4, 2, 0.2, budget=0.3) if kind == "tardy" else SCHEMES[0]
    )
    entries: dict[bool, list[Entry]] = {True: [], False: []}
    for with_fault, log in entries.items():
        chosen = faults if with_fault else faults[:-1]
        schedule = Schedule(seed=3, steps=3, faults=chosen)
        assert run(schedule, scheme) is None
        simulator = Troubled(
            schedule,
            scheme,
            lambda event, commands, e=log: e.append(Entry(event, tuple(commands))),
        )
        for _ in range(3):
            simulator.next_step()
    assert entries[True] != entries[False]


def test_a_worker_that_says_one_thing_and_does_another_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sums are real: sessions and drivers are under test, not only decisions."""

    def backwards(self: Session) -> None:
        next_(self)
        if self.task is not None:
            held = self._held[self.task.segment]
            last = len(held.parts) - 1 - held.done
            self.task = structs.replace(self.task, part=held.parts[last])

    next_ = Session._next
    monkeypatch.setattr(Session, "_next", backwards)
    failure = attack([Everything(4)], 300)
    assert failure is not None
    assert "what is combined is what was promised" in str(failure.error)


def test_a_ledger_that_forgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "lose", lambda *args: None)
    failure = attack([Everything(4)], 300)
    assert failure is not None
    assert "the ledger is right" in str(failure.error)


def test_a_failure_of_any_kind_is_written_down_with_the_event_that_caused_it(
    tmp_path: Path,
) -> None:
    class Careless(Everything):
        def plan(self, step: int, history: History) -> object:
            plan = super().plan(step, history)
            judge = plan.judge

            def careless(state: State, event: Event) -> Decision:
                if isinstance(event, WorkersJoined):
                    raise RecursionError("careless")
                return judge(state, event)

            plan.judge = careless
            return plan

    failure = attack([Careless(3)], 300)
    assert failure is not None
    assert isinstance(failure.error, RecursionError)
    assert isinstance(failure.entries[-1].event, WorkersJoined)
    failure.save(tmp_path / "careless.jsonl")
    with pytest.raises(RecursionError):
        replay(read(tmp_path / "careless.jsonl"), Careless(3))
