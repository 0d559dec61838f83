"""What a checkpoint keeps of the workers is what the coordinator knew."""

import random
import zlib

import msgspec
import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Command,
    Coordinator,
    Event,
    GiveUp,
    MessageArrived,
    Patience,
    Scheme,
    StepStarted,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.errors import InvalidTrace
from codedgrad.schemes import build
from codedgrad.sim import Simulator
from codedgrad.trace import Entry, Header, relearn
from codedgrad.trace import recent as module
from codedgrad.trace.format import VERSION, encode
from codedgrad.trace.recent import Recent
from codedgrad.trace.write import Steps

WORKERS = 6
SCHEMES = (
    "uncoded", "ignore(5)", "fractional(1)", "cyclic(2)", "clustered(2, 1)",
    "dynamic(3, 1)", "dynamic(3, 1, state=speed)", "dynamic(3, 1, state=late)",
    "heterogeneous(budget=3)", "stochastic(2, straggle=0.1, budget=3)",
    "bernoulli(2, budget=3)", "two_stage", "coded_reduce(2, 1)",
    "auto", "auto(copies=3)", "auto(pieces=3)",
)  # fmt: skip
PATIENCE = Patience(least=60.0, first=60.0)


def header_of(scheme: Scheme) -> Header:
    return Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        patience=PATIENCE,
    )


def simulated(scheme: Scheme, steps: int, seed: int = 0) -> list[Entry]:
    """Return the trace of a run in which worker 1 is slow."""
    rng = np.random.default_rng(seed)
    unit = 0.05 + rng.exponential(0.3, (steps, scheme.workers))
    unit[:, 1] *= 4.0
    entries: list[Entry] = []

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))

    simulator = Simulator(scheme, patience=PATIENCE, watch=watch)
    for _ in simulator.run(Times(fixed=np.zeros(unit.shape), unit=unit)):
        pass
    return entries


def start_of(entries: list[Entry], step: int) -> int:
    for number, entry in enumerate(entries):
        if entry.event == StepStarted(step, entry.event.at):
            return number
    return len(entries)


def gone_on(scheme: Scheme, packed: dict, step: int) -> Coordinator:
    header = header_of(scheme)
    history, _ = relearn(packed, step, header, scheme, PATIENCE)
    return Coordinator(scheme, header.capabilities, PATIENCE, history)


@pytest.mark.parametrize("text", SCHEMES)
@pytest.mark.parametrize("kept", [1, 8, 60])
def test_whoever_goes_on_decides_as_if_nothing_had_happened(
    text: str, kept: int
) -> None:
    """Exactly so where the run is no longer than what a checkpoint keeps."""
    scheme = build(text, WORKERS)
    entries = simulated(scheme, kept + 4)
    here = start_of(entries, kept)
    packed = Recent(header_of(scheme), entries[:here]).packed()
    coordinator = gone_on(scheme, packed, kept)
    for entry in entries[here:]:
        assert tuple(coordinator.handle(entry.event)) == entry.commands


@pytest.mark.long
def test_many_short_lives_keep_no_more_than_one_long_one() -> None:
    scheme = build("auto", WORKERS)
    entries = simulated(scheme, 200)
    header, past = header_of(scheme), ()
    sizes = []
    for step in range(0, 200, 9):
        lines = Recent(header, past)
        for chunk in chunks(
            entries[start_of(entries, step) : start_of(entries, step + 9)]
        ):
            lines.add(chunk)
        packed = lines.packed()
        sizes.append(len(packed["lines"]))
        _, past = relearn(packed, step + 9, header, scheme, PATIENCE)
    whole = Recent(header, entries).packed()
    assert sizes[-1] == pytest.approx(len(whole["lines"]), rel=0.1)
    assert max(sizes) < 1.2 * sizes[-1]


def chunks(entries: list[Entry]) -> list:
    return list(Recent(header_of(build("auto", WORKERS)), entries)._chunks)


def test_large_steps_are_kept_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheme = build("auto", WORKERS)
    entries = simulated(scheme, 20)
    monkeypatch.setattr(module, "_SIZE", 30_000)
    packed = Recent(header_of(scheme), entries).packed()
    assert len(zlib.decompress(bytes(packed["lines"]))) <= 30_000
    history, kept = relearn(packed, 20, header_of(scheme), scheme, PATIENCE)
    assert 1 <= len(history.records) < 10
    assert history.records[-1].step == 19
    assert kept


def test_steps_that_are_taken_again_are_not_learnt() -> None:
    scheme = build("auto", WORKERS)
    packed = Recent(header_of(scheme), simulated(scheme, 9)).packed()
    history, _ = relearn(packed, 6, header_of(scheme), scheme, PATIENCE)
    assert [record.step for record in history.records] == [*range(6)]


def test_who_was_lost_before_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, entries = build("fractional(2)", WORKERS), list[Entry]()
    coordinator = Coordinator(scheme, patience=PATIENCE)

    def feed(event: Event) -> list[Command]:
        commands = coordinator.handle(event)
        entries.append(Entry(event, tuple(commands)))
        return commands

    for step in range(30):
        at = 10.0 * step
        if step in (5, 25):
            feed((WorkersLost if step == 5 else WorkersJoined)((4,), at))
        for order in feed(StepStarted(step, at)):
            if isinstance(order, Assign):
                segment = order.segment
                cuts = ((segment.id, len(segment.parts)),)
                feed(MessageArrived(step, segment.worker, order.message, cuts, at + 1))
    monkeypatch.setattr(module, "_STEPS", 10)
    packed = Recent(header_of(scheme), entries).packed()
    history, _ = relearn(packed, 30, header_of(scheme), scheme, PATIENCE)
    assert [record.alive[4] for record in history.records] == [False] * 5 + [True] * 5


def test_the_lines_that_say_which_workers_were_lost_before_are_in_order_of_time() -> (
    None
):
    """Also where a later event names a worker that was lost before."""
    entries = [
        Entry(WorkersLost((1, 4), 1.0), ()),
        Entry(WorkersLost((2,), 2.0), ()),
        Entry(WorkersJoined((4,), 3.0), ()),
        Entry(WorkersLost((0, 1), 4.0), ()),
        Entry(StepStarted(0, 5.0), (GiveUp(0, "superseded"),)),
        Entry(StepStarted(1, 6.0), (GiveUp(1, "superseded"),)),
    ]
    steps = Steps()
    chunks = [steps.add(entry.event, entry.commands) for entry in entries]
    last = chunks[-1]
    assert last is not None
    lost = [msgspec.json.decode(line, type=Entry) for line in last.preface.splitlines()]
    assert [entry.event for entry in lost] == [
        WorkersLost((1,), 1.0), WorkersLost((2,), 2.0), WorkersLost((0,), 4.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workers": 5}, "are of another life: its workers was 6"),
        ({"scheme": "uncoded"}, "are of another life: its scheme was auto"),
        ({"parts": 7}, "are of another life: its parts was 48"),
    ],
)
def test_what_is_of_others_is_not_learnt(changes: dict, said: str) -> None:
    scheme = build("auto", WORKERS)
    packed = Recent(header_of(scheme), simulated(scheme, 3)).packed()
    header = Header(
        **{"scheme": "auto", "workers": WORKERS, "parts": scheme.parts} | changes
    )
    with pytest.raises(InvalidTrace, match=said):
        relearn(packed, 3, header, scheme, PATIENCE)


def test_what_is_of_another_version_is_not_learnt() -> None:
    scheme = build("auto", WORKERS)
    packed = Recent(header_of(scheme), simulated(scheme, 3)).packed()
    older = msgspec.structs.replace(header_of(scheme), version=VERSION - 1)
    packed["header"] = encode(older).decode()
    said = f"the trace of the last steps: has version {VERSION - 1} of the trace format"
    with pytest.raises(InvalidTrace, match=said):
        relearn(packed, 3, header_of(scheme), scheme, PATIENCE)


def test_what_is_damaged_is_refused_in_a_sentence() -> None:
    """Whatever is flipped in it: nothing else than a refusal, or what was there."""
    scheme = build("auto", WORKERS)
    header = header_of(scheme)
    packed = Recent(header, simulated(scheme, 4)).packed()
    lines = zlib.decompress(bytes(packed["lines"]))
    rng = random.Random(5)
    refused = 0
    for _ in range(300):
        data = bytearray(lines)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(b'0123456789",[]{}x')
        damaged = zlib.compress(bytes(data))
        try:
            relearn(
                packed | {"lines": np.frombuffer(damaged, np.uint8)},
                4, header, scheme, PATIENCE,
            )  # fmt: skip
        except InvalidTrace:
            refused += 1
    assert refused > 100
    for wrong in ({}, {"header": packed["header"]}, packed | {"lines": b"my thesis"}):
        with pytest.raises(InvalidTrace, match="the last steps: contradict themselves"):
            relearn(wrong, 4, header, scheme, PATIENCE)
    bomb = zlib.compress(bytes(100 << 20))
    with pytest.raises(InvalidTrace, match="are more than 16 MB"):
        relearn(packed | {"lines": bomb}, 4, header, scheme, PATIENCE)
