"""Going back: a trace is cut where a run goes on from an earlier step."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from codedgrad.core import (
    Assign,
    Combine,
    Command,
    Coordinator,
    Event,
    MessageArrived,
    Scheme,
    StepStarted,
    WorkerLost,
)
from codedgrad.errors import InvalidTrace
from codedgrad.schemes import cyclic, fractional, uncoded
from codedgrad.trace import Entry, Header, Recorder, Trace, read, replay, write

SCHEME = cyclic(4, 1)
STEPS = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def header_of(scheme: Scheme, **others: object) -> Header:
    name, workers, parts = scheme.name, scheme.workers, scheme.parts
    return Header(scheme=name, workers=workers, parts=parts, **others)


class Played:
    """A run of `cyclic(4, 1)`: the last worker is late, and heard of after the step."""

    def __init__(self, path: Path) -> None:
        self.entries: list[Entry] = []
        self._coordinator = Coordinator(SCHEME)
        self._recorder = Recorder(path, header_of(SCHEME))
        self._now = 0.0

    def feed(self, event: Event) -> list[Command]:
        self._now += 1.0
        event = msgspec.structs.replace(event, at=self._now)
        commands = self._coordinator.handle(event)
        self._recorder(event, commands)
        self.entries.append(Entry(event, tuple(commands)))
        return commands

    def step(self, step: int) -> None:
        given = [c for c in self.feed(StepStarted(step, 0.0)) if isinstance(c, Assign)]
        for asked in given:
            segment, cuts = asked.segment, ((asked.segment.id, 2),)
            self.feed(MessageArrived(step, segment.worker, asked.message, cuts, 0.0))

    def close(self) -> list[Entry]:
        self._recorder.close()
        return self.entries


def record(path: Path, more: int = 0) -> list[Entry]:
    """Record some whole steps; `more` events of one that is open when it is closed."""
    played = Played(path)
    for step in range(STEPS):
        played.step(step)
    for event in (StepStarted(STEPS, 0.0), WorkerLost(2, 0.0))[:more]:
        played.feed(event)
    return played.close()


def replayed(entries: Sequence[Entry]) -> Coordinator:
    coordinator = Coordinator(SCHEME)
    for entry in entries:
        coordinator.handle(entry.event)
    return coordinator


def starts(entries: Sequence[Entry]) -> dict[int, int]:
    """Return where every step starts."""
    return {
        entry.event.step: number
        for number, entry in enumerate(entries)
        if isinstance(entry.event, StepStarted)
    }


def test_only_what_came_before_a_step_is_kept(path: Path) -> None:
    entries = record(path)
    data = path.read_bytes()
    between = [
        entry
        for entry, following in pairwise(entries)
        if not entry.ends_step and isinstance(following.event, StepStarted)
    ]
    assert between  # some message came after its step had ended
    for step, number in starts(entries).items():
        path.write_bytes(data)
        with Recorder(path, read(path).header, append=True, before=step) as recorder:
            for entry in entries[number:]:
                recorder(entry.event, entry.commands)
        assert path.read_bytes() == data, step


def test_before_a_step_that_never_started_all_whole_steps_are_kept(path: Path) -> None:
    entries = record(path, more=1)
    Recorder(path, read(path).header, append=True, before=STEPS + 3).close()
    trace = read(path)
    assert trace.entries == tuple(entries[:-2])  # not the late one, nor the open step
    assert trace.tail == ()


def test_before_the_first_step_only_what_came_first_is_kept(path: Path) -> None:
    scheme = uncoded(2)
    coordinator = Coordinator(scheme)
    with Recorder(path, header_of(scheme)) as recorder:
        for event in (WorkerLost(1, 0.0), StepStarted(0, 1.0), StepStarted(1, 2.0)):
            recorder(event, coordinator.handle(event))
    Recorder(path, header_of(scheme), append=True, before=0).close()
    trace = read(path)
    assert trace.entries == ()
    assert [entry.event for entry in trace.tail] == [WorkerLost(1, 0.0)]


@pytest.mark.parametrize("more", range(3))
def test_what_is_read_before_a_step_is_what_is_kept_of_the_file(
    path: Path, more: int
) -> None:
    """Else a run that goes on decides by other events than those in its trace."""
    record(path, more)
    data, whole = path.read_bytes(), read(path)
    for step in range(STEPS + 2):
        path.write_bytes(data)
        Recorder(path, whole.header, append=True, before=step).close()
        kept = read(path)
        assert (*kept.entries, *kept.tail) == whole.before(step), step
        assert replay(kept, SCHEME) is None


def test_a_run_that_goes_back_is_one_run(path: Path) -> None:
    record(path, more=2)
    trace = read(path)
    for step in (STEPS, 2):
        past = trace.before(step)
        coordinator = replayed(past)
        with Recorder(path, trace.header, append=True, before=step) as recorder:
            now = past[-1].event.at
            for event in (StepStarted(step, now), StepStarted(step + 1, now + 1)):
                recorder(event, coordinator.handle(event))
        again = read(path)
        assert list(starts([*again.entries, *again.tail])) == [*range(step + 2)]
        assert replay(again, SCHEME) is None


def test_a_trace_that_is_torn_in_its_first_line_begins_anew(path: Path) -> None:
    record(path)
    header = read(path).header
    path.write_bytes(path.read_bytes().splitlines()[0])  # all but the end of the line
    Recorder(path, header, append=True, before=3).close()
    assert read(path) == Trace(header, ())


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ({"driver": "here"}, "driver"),
        ({"seed": 4}, "seed"),
        ({"seed": 4, "note": "second"}, "seed, note"),
    ],
)
def test_what_is_different_about_another_run_is_named(
    path: Path, others: dict, named: str
) -> None:
    Recorder(path, header_of(uncoded(2))).close()
    before = path.read_bytes()
    with pytest.raises(InvalidTrace, match=f"trace of another run.*: {named}$"):
        Recorder(path, header_of(uncoded(2), **others), append=True, before=0)
    assert path.read_bytes() == before


def test_what_an_interrupt_comes_in_between_is_not_written_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = fractional(2, 1)
    coordinator = Coordinator(scheme)
    whole = os.write

    def interrupted(file: int, data: bytes) -> int:
        whole(file, data)
        raise KeyboardInterrupt

    recorder = Recorder(path, header_of(scheme))
    event: Event = StepStarted(0, 0.0)
    recorder(event, coordinator.handle(event))
    monkeypatch.setattr(write.os, "write", interrupted)
    event = MessageArrived(0, 0, 1, ((0, 2),), 1.0)
    with pytest.raises(KeyboardInterrupt):
        recorder(event, coordinator.handle(event))
    monkeypatch.undo()
    recorder.close()
    trace = read(path)
    assert isinstance(trace.entries[-1].commands[-1], Combine)
    assert (len(trace.entries), trace.tail) == (2, ())
