"""`auto` as a scheme: its options, trouble of every kind, and how close it gets."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from msgspec import structs

from codedgrad.codes.bounds.clairvoyant import clairvoyant_whole
from codedgrad.core import Capabilities, Command, Coordinator, Event
from codedgrad.delays import Times
from codedgrad.errors import CodedgradError, InvalidScheme
from codedgrad.schemes import Auto, auto, build, uncoded
from codedgrad.sim import Machine, Simulator, Step
from codedgrad.sim.arrays.codes import Outcome
from codedgrad.sim.events import run_events
from codedgrad.testing import Schedule, SimulatedFault, check_scheme, draw, run, shrink
from codedgrad.testing.faulty_simulator import Troubled
from codedgrad.trace import Entry, Header, Trace, replay

N, C, STEPS = 8, 8, 30
MACHINE = Machine(drain=False, latency=0.005)

SMALL = [
    auto(3, 1),
    auto(4, 2),
    auto(5, 3),
    auto(5, 2, copies=3),
    auto(4, 3, copies=2, early=False),
]


# -- options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("auto", "auto"),
        ("auto(8)", "auto"),
        ("auto(copies=all, early=true)", "auto"),
        ("auto(pieces=1)", "auto(pieces=1)"),
        ("auto(4)", "auto(pieces=4)"),
        ("auto(copies=3, early=false)", "auto(copies=3, early=false)"),
        ("auto(copies=6)", "auto(copies=6)"),
        ("auto(2, copies=1)", "auto(pieces=2, copies=1)"),
    ],
)
def test_a_name_makes_the_same_scheme(text: str, name: str) -> None:
    scheme = build(text, 6)
    assert isinstance(scheme, Auto)
    assert scheme.name == str(scheme) == name
    assert build(name, 6) == scheme


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("auto(copies=7)", "auto: 7 copies for 6 workers; try at most 6"),
        (
            "auto(copies=0)",
            "auto: copies = 0 is out of range; try a whole number, 1 or more",
        ),
        (
            "auto(copies=some)",
            "auto: copies is some; try 1 to 6, or all",
        ),
        (
            "auto(pieces=0)",
            "auto: pieces = 0 is out of range; try a whole number, 1 or more",
        ),
        (
            "auto(2.5)",
            "auto: pieces must be a whole number, got 2.5; "
            "try a whole number, 1 or more",
        ),
        ("auto(early=3)", "auto: early is 3; try true or false"),
        ("auto(early=no)", "auto: early is no; try true or false"),
    ],
)
def test_bad_input_is_one_sentence(text: str, why: str) -> None:
    with pytest.raises(CodedgradError) as raised:
        build(text, 6)
    assert str(raised.value) == why


def test_no_workers_are_too_few() -> None:
    with pytest.raises(CodedgradError, match="workers = 0 is out of range"):
        auto(0)


def test_all_but_one_of_those_who_hold_a_part_may_be_late() -> None:
    assert auto(6).tolerance == 5
    assert auto(6, copies=3).tolerance == 2
    assert auto(6, copies=1).tolerance == 0
    assert auto(1).tolerance == 0
    assert auto(6).exact


def test_there_are_so_many_pieces_for_each_worker() -> None:
    scheme = auto(3, 2, copies=2)
    assert (scheme.workers, scheme.parts) == (3, 6)
    assert scheme.placement == ((0, 1, 2, 3), (2, 3, 4, 5), (0, 1, 4, 5))
    assert auto(3).parts == 24


# -- trouble ---------------------------------------------------------------------------


@pytest.mark.quick("4 auto(pieces=2)", "5 auto(pieces=3)")
@pytest.mark.parametrize("scheme", SMALL, ids=lambda s: f"{s.workers} {s.name}")
def test_it_passes_the_conformance_suite(scheme: Auto) -> None:
    check_scheme(scheme, schedules=50)


@pytest.mark.quick("2")
@pytest.mark.parametrize("rows", [2, 3])
def test_it_survives_faults_where_workers_hold_few_sums(rows: int) -> None:
    """Lists are planned again in all of them: workers report their progress."""
    schemes = [*SMALL[1:], auto(2, 5)]
    rng = np.random.default_rng([rows, 1])
    for number in range(25):
        scheme = schemes[number % len(schemes)]
        drawn = draw(scheme, rng)
        engine = drawn.capabilities
        engine = Capabilities(
            orders_during_part=engine.orders_during_part,
            interrupts_part=engine.interrupts_part,
            rows_per_worker=rows,
        )
        faults = tuple(
            structs.replace(fault, kind="hang") if fault.kind == "mute" else fault
            for fault in drawn.faults
        )
        drawn = structs.replace(drawn, capabilities=engine, faults=faults)
        failure = run(drawn, scheme)
        assert failure is None, str(shrink(failure))


def test_a_doubt_that_nobody_settles_does_not_hold_up_a_step() -> None:
    """Worker 0 has no room until its sum is believed, and who is asked is mute."""
    faults = (
        SimulatedFault(kind="nan", step=1, worker=0, when=0.221, size=5.0),
        SimulatedFault(kind="mute", step=1, worker=2, when=0.087, size=2.0),
        SimulatedFault(kind="nan", step=0, worker=0, when=0.924, size=30.0),
    )
    engine = Capabilities(orders_during_part=False, rows_per_worker=2)
    schedule = Schedule(1024213676, 3, faults, capabilities=engine)
    failure = run(schedule, auto(5, 3))
    assert failure is None, str(failure)


@pytest.mark.parametrize("seed", [289, 1032, 1590])
def test_who_always_fails_is_not_asked_for_ever(seed: int) -> None:
    """It is at one part whenever the sum of another has failed."""
    latency = {289: 0.0, 1032: 0.05, 1590: 0.01}[seed]
    worker, rows = (0 if seed == 1590 else 1), (2 if seed == 289 else 8)
    engine = Capabilities(rows_per_worker=rows, interrupts_part=seed == 289)
    schedule = Schedule(seed, 2, (SimulatedFault("fail", 1, worker),), latency, engine)
    failure = run(schedule, auto(2, 2))
    assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        (780, "its list was cut, and it never says where"),
        (1286, "the same, in a first step"),
        (2502, "whoever could help was stopped before its first part"),
        (822, "all but one hang, three of them in the same part"),
        (968, "the same"),
        (946, "the same"),
        (2041, "the same, in a first step"),
    ],
)
def test_who_hangs_is_done_without(seed: int, why: str) -> None:
    rng = np.random.default_rng((78, seed))
    n, pieces = int(rng.integers(2, 5)), int(rng.integers(1, 6))
    scheme = auto(n, pieces, copies=int(rng.integers(2, n + 1)))
    rows = int(rng.choice((2, 3, 1_000_000)))
    step = int(rng.integers(2))
    hung = rng.permutation(n)[: int(rng.integers(1, scheme.layout.copies))].tolist()
    faults = tuple(
        SimulatedFault("hang", step, worker, round(float(rng.exponential(0.5)), 3))
        for worker in hung
    )
    latency, is_prompt = float(rng.choice((0.0, 0.01, 0.05))), rng.random() < 0.5
    engine = Capabilities(rows_per_worker=rows, interrupts_part=bool(is_prompt))
    failure = run(Schedule(seed, step + 1, faults, latency, engine), scheme)
    assert failure is None, f"{why}: {failure}"


def test_a_worker_asked_for_an_opinion_is_not_made_to_forget_it() -> None:
    """Or what is not finite would be believed, for nobody is left to ask."""
    engine = Capabilities(rows_per_worker=3)
    for seed in range(25):
        bad = SimulatedFault("nan", 1, seed % 3)
        schedule = Schedule(seed, 2, (bad,), 0.01, engine)
        simulator = Troubled(schedule, auto(3, 2), lambda event, commands: None)
        assert all(simulator.next_step().combined for _ in range(2))
        assert not simulator.coordinator.history.records[-1].diverged, seed


@pytest.mark.parametrize(
    ("engine", "needs"),
    [
        (Capabilities(progress=False), "reports of progress, which this engine"),
        (Capabilities(rows_per_worker=1), "workers that hold 2 sums at once"),
    ],
)
def test_an_engine_that_cannot_do_enough_is_refused_with_what_to_use_there(
    engine: Capabilities, needs: str
) -> None:
    with pytest.raises(InvalidScheme, match=f"^auto.* needs {needs}.*; try two_stage"):
        Coordinator(auto(3, 2), engine)


def test_two_sums_a_worker_are_enough() -> None:
    simulator = Simulator(auto(3, 2), capabilities=Capabilities(rows_per_worker=2))
    assert simulator.step([0.0] * 3, [1.0] * 3).combined


# -- how close it gets -----------------------------------------------------------------


def calm(rng: np.random.Generator, steps: int, n: int) -> np.ndarray:
    return 1.0 + 0.02 * np.abs(rng.standard_normal((steps, n)))


def exponential(rng: np.random.Generator, steps: int, n: int) -> np.ndarray:
    return 0.5 + rng.exponential(0.5, (steps, n))


def sticky(rng: np.random.Generator, steps: int, n: int) -> np.ndarray:
    """Ten times as long, a tenth of the time, for ten steps on average."""
    x, slow = calm(rng, steps, n), rng.random(n) < 0.1
    for row in x:
        row[slow] *= 10.0
        drawn = rng.random(n)
        slow = np.where(slow, drawn >= 0.1, drawn < 0.1 * 0.1 / 0.9)
    return x


def classes(rng: np.random.Generator, steps: int, n: int) -> np.ndarray:
    return calm(rng, steps, n) * np.array([1.0, 1.5, 2.0, 3.0])[np.arange(n) % 4]


def spikes(rng: np.random.Generator, steps: int, n: int) -> np.ndarray:
    x, hit = calm(rng, steps, n), rng.random((steps, n)) < 0.03
    return x * np.where(hit, rng.uniform(3, 20, (steps, n)), 1.0)


REGIMES: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "calm": calm,
    "exponential": exponential,
    "sticky": sticky,
    "classes": classes,
    "spikes": spikes,
    "pauses": calm,
    "dead": calm,
}


@cache
def times(name: str, share: float, n: int = N, steps: int = STEPS) -> Times:
    rng = np.random.default_rng(1)
    x = REGIMES[name](rng, steps, n)
    fixed, unit = (1.0 - share) * x, share * x
    if name == "pauses":  # at the start of a step, whatever the load
        hit = rng.random(x.shape) < 0.03
        fixed = fixed + np.where(hit, rng.uniform(0.5, 5.0, x.shape), 0.0)
    if name == "dead":
        unit[steps // 3 :, 5 % n] = np.inf
    return Times(fixed, unit)


@cache
def outcome(name: str, share: float) -> Outcome:
    return run_events(auto(N, C), times(name, share), MACHINE)


def bound(seconds: Times, parts: int) -> float:
    """Return what whole parts take for whoever knows all times, in all steps."""
    return float(clairvoyant_whole(seconds.fixed, seconds.part(parts), parts).sum())


@pytest.mark.parametrize("name", REGIMES)
@pytest.mark.parametrize("share", [1.0, 0.1])
def test_it_is_close_to_whoever_knows_all_times(name: str, share: float) -> None:
    """A first step of which nothing is known, and a round trip of 1 %, included."""
    found = outcome(name, share)
    ratio = found.seconds.sum() / bound(times(name, share), N * C)
    surprising = name == "exponential" and share < 1.0
    assert 1.0 <= ratio <= (1.045 if surprising else 1.02)
    assert (found.residual == 0.0).all()
    assert found.work.mean() <= 1.05 * N * C


@pytest.mark.parametrize("name", [name for name in REGIMES if name != "calm"])
def test_waiting_for_all_would_take_much_longer(name: str) -> None:
    """Or for ever, where somebody is dead: the regimes are what they are called."""
    seconds = times(name, 1.0)
    waiting = (seconds.fixed + seconds.unit).max(axis=1).sum()
    assert waiting >= 1.5 * bound(seconds, N * C)


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_where_all_is_calm_it_takes_no_longer_than_waiting_for_all(
    share: float,
) -> None:
    plain = run_events(uncoded(N, pieces=C), times("calm", share), MACHINE)
    assert outcome("calm", share).seconds.sum() <= 1.002 * plain.seconds.sum()
    assert outcome("calm", share).messages.mean() <= 1.01 * N


def test_sums_are_sent_about_once_by_everybody() -> None:
    """Of those who do anything: not of who is dead, or slow all the time."""
    for name in REGIMES:
        for share in (1.0, 0.1):
            assert outcome(name, share).messages.mean() <= 1.05 * N


def test_looking_early_pays_on_a_ring() -> None:
    """Help takes detours there, which take time."""
    ring = times("exponential", 1.0, n=12, steps=20)
    early, late = (
        run_events(auto(12, C, copies=3, early=early), ring, MACHINE).seconds.sum()
        for early in (True, False)
    )
    assert early <= 0.98 * late
    assert early <= 1.06 * bound(ring, 12 * C)


def test_late_workers_that_are_not_interrupted_cost_little() -> None:
    """They finish the part in hand before they take up the next step."""
    seconds = times("sticky", 1.0)
    drained = run_events(auto(N, C), seconds, Machine(drain=True, latency=0.005))
    assert drained.seconds.sum() <= 1.1 * bound(seconds, N * C)


class Hanging(Simulator):
    """A simulator in which a worker takes for ever for its third part of a step."""

    def __init__(self, scheme: Auto, hangs: int) -> None:
        super().__init__(scheme, latency=0.005)
        self._hangs = hangs
        self._begun = 0

    def step(self, *times: list[float]) -> Step:
        self._begun = 0
        return super().step(*times)

    def _begin(self, number: int, worker: object, task: object) -> None:
        if number == self._hangs:
            self._begun += 1
            self._part[number] = 1e6 if self._begun == 3 else 1.0 / C
        super()._begin(number, worker, task)


@pytest.mark.parametrize("hangs", [0, 3])
def test_who_hangs_on_the_way_is_not_waited_for(hangs: int) -> None:
    """It is there, and has shown its pace. Without it a step takes 4 / 3 s."""
    simulator = Hanging(auto(4, C), hangs)
    for _ in range(4):
        step = simulator.step([0.0] * 4, [1.0 / C] * 4)
        assert step.combined
        assert step.seconds < 3.0


# -- the same again --------------------------------------------------------------------


def recorded(scheme: Auto, seconds: Times) -> list[Entry]:
    entries: list[Entry] = []

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))

    run_events(scheme, seconds, MACHINE, watch=watch)
    return entries


@pytest.mark.parametrize("scheme", [auto(6, 4), auto(6, 4, copies=3)], ids=str)
def test_the_same_events_give_the_same_commands(scheme: Auto) -> None:
    seconds = times("exponential", 0.5, n=6, steps=8)
    entries = recorded(scheme, seconds)
    header = Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        capabilities=MACHINE.capabilities,
        patience=MACHINE.patience(seconds, scheme),
    )
    assert replay(Trace(header, tuple(entries)), scheme) is None
    assert recorded(scheme, seconds) == entries
