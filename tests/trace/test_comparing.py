"""What compares messages belongs to the step that has ended, in files and tables."""

import json
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import (
    Combine,
    Command,
    Coordinator,
    Event,
    MessagesCompared,
    StepStarted,
)
from codedgrad.delays import ShiftedExponential, draw
from codedgrad.schemes import cyclic
from codedgrad.sim import Machine, train
from codedgrad.sim.recording import header_of
from codedgrad.testing import Comparing
from codedgrad.trace import (
    Entry,
    Header,
    Recorder,
    RunRecorder,
    Trace,
    arrivals,
    ended_steps,
    read,
    replay,
    reports,
)
from codedgrad.trace.segments import read_segments
from codedgrad.view import read_subject
from codedgrad.view.timeline import timeline

SCHEME = Comparing(cyclic(4, 1))
LAW = ShiftedExponential(floor=0.1, mean=1.0)
STEPS = 4


def header() -> Header:
    return header_of(SCHEME, draw(LAW, steps=STEPS, workers=4, seed=0), Machine())


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    return 0.0, 1.0, np.cos(np.arange(3.0) * part + step) / 3


def simulate() -> list[Entry]:
    entries: list[Entry] = []

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))

    train(gradient, np.zeros(3), SCHEME, LAW, steps=STEPS, watch=watch)
    return entries


def record(path: Path) -> list[Entry]:
    entries = simulate()
    with Recorder(path, header()) as recorder:
        for entry in entries:
            recorder(entry.event, entry.commands)
    return entries


def compared(entries: tuple[Entry, ...] | list[Entry]) -> list[int]:
    return [e.event.step for e in entries if isinstance(e.event, MessagesCompared)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_it_stays_in_the_file_of_its_step(tmp_path: Path) -> None:
    entries = simulate()
    recorder = RunRecorder(tmp_path, header(), size=1, kept=10**6)  # a file a step
    for entry in entries:
        recorder(entry.event, entry.commands)
    recorder.close()
    assert len(list(tmp_path.iterdir())) == STEPS
    trace = read_segments(tmp_path)
    assert trace is not None
    assert compared(trace.entries) == list(range(STEPS))
    assert trace.entries == tuple(entries)


def test_a_run_comes_back_as_it_was_and_replays(path: Path) -> None:
    entries = record(path)
    assert compared(entries) == list(range(STEPS))
    trace = read(path)
    assert trace.entries == tuple(entries)
    assert trace.tail == ()


def test_what_nobody_asked_for_is_on_no_line(path: Path) -> None:
    with Recorder(path, header()) as recorder:
        recorder(StepStarted(0, 0.0), [Combine(0, (), 4.0)])
    assert b"compare" not in path.read_bytes()


def test_products_come_back_to_the_last_bit(path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(3) * [1e-300, 1.0, 1e300]
    products = tuple((n, n + 1, float(value)) for n, value in enumerate(values))
    event = MessagesCompared(0, products, 0.1 + 0.2)
    with Recorder(path, header()) as recorder:
        recorder(event, [])
    assert read(path).entries == (Entry(event, ()),)


def test_it_is_written_at_once_unless_a_later_step_has_begun(path: Path) -> None:
    late = MessagesCompared(0, (), 2.0)
    with Recorder(path, header()) as recorder:
        recorder(StepStarted(0, 0.0), [Combine(0, (), 4.0, compare=True)])
        recorder(MessagesCompared(0, ((1, 1, 2.0),), 1.0), [])
        assert compared(read(path).entries) == [0]
        size = path.stat().st_size
        recorder(StepStarted(1, 2.0), [])
        recorder(late, [])
        assert path.stat().st_size == size
    trace = read(path)
    assert len(trace.entries) == 2
    assert trace.tail[-1] == Entry(late, ())


@pytest.mark.long
def test_a_file_cut_at_any_byte_reads_back(path: Path) -> None:
    """The comparison of the last step is there, or torn off; its step is there."""
    entries = record(path)
    data, lines = path.read_bytes(), path.read_bytes().splitlines(keepends=True)
    ends = [len(lines[0])]
    for line in lines[1:]:
        ends.append(ends[-1] + len(line))
    for cut in range(len(lines[0]), len(data) + 1):
        path.write_bytes(data[:cut])
        here = sum(end <= cut for end in ends[1:])  # whole lines
        whole = max(
            (n for n in range(here + 1) if n and _closes(entries[n - 1])), default=0
        )
        trace = read(path)
        assert trace.entries == tuple(entries[:whole]), cut
        assert trace.tail == tuple(entries[whole:here]), cut


def _closes(entry: Entry) -> bool:
    return entry.ends_step or isinstance(entry.event, MessagesCompared)


def test_what_came_before_a_step_has_its_predecessors_comparison(path: Path) -> None:
    record(path)
    trace = read(path)
    for step in range(1, STEPS):
        assert compared(trace.before(step)) == list(range(step))


def test_a_replay_decides_and_learns_the_same(path: Path) -> None:
    entries = record(path)
    assert replay(read(path), SCHEME) is None
    fresh = Coordinator(SCHEME, header().capabilities, header().patience)
    for entry in entries:
        fresh.handle(entry.event)
    assert [bool(record.products) for record in fresh.history.records] == [True] * STEPS
    assert not fresh.ignored["repeated"]


def test_tables_and_reports_are_the_same_with_and_without(path: Path) -> None:
    entries = record(path)
    plain = [entry for entry in entries if not entry.compares]
    told, other = read(path), Trace(header(), tuple(plain))
    assert reports(told) == reports(other)
    assert list(arrivals(told)) == list(arrivals(other))
    events = {e.event.step: e.event for e in entries if e.compares}
    records = [record for record, _ in list(ended_steps(told))]
    assert [r.products for r in records] == [events[r.step].products for r in records]
    assert all(not record.products for record, _ in list(ended_steps(other)))


def test_those_who_look_at_runs_take_it(path: Path) -> None:
    record(path)
    subject = read_subject(path)
    assert len(subject.reports) == STEPS
    told = timeline([subject])
    assert sum(each.get("cat") == "step" for each in told) == STEPS


def test_a_line_without_numbers_is_refused_as_any_other(path: Path) -> None:
    record(path)
    lines = path.read_bytes().splitlines()
    number = next(i for i, line in enumerate(lines) if b"MessagesCompared" in line)
    spoilt = json.loads(lines[number])
    spoilt["event"]["products"][0][2] = None
    lines[number] = json.dumps(spoilt).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(ValueError, match=f"line {number + 1} is not an event"):
        read(path)
