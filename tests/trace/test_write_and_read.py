"""A trace on disk: killed runs, torn and broken files, going on."""

import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from codedgrad.core import (
    Capabilities,
    Combine,
    Coordinator,
    Event,
    GiveUp,
    Patience,
    Scheme,
    StepStarted,
)
from codedgrad.delays import ShiftedExponential
from codedgrad.errors import InvalidTrace
from codedgrad.schemes import cyclic, fractional, uncoded
from codedgrad.sim import Machine, run_events
from codedgrad.testing import Everything
from codedgrad.trace import Entry, Header, Recorder, Trace, read, replay
from codedgrad.trace.format import VERSION

from ..event_streams import streams

LAW = ShiftedExponential(floor=0.1, mean=1.0)


def header_of(scheme: Scheme, patience: Patience | None = None) -> Header:
    return Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        driver="simulator",
        seed=3,
        patience=patience or Patience(),
    )


def record(path: Path, scheme: Scheme, steps: int) -> list[Entry]:
    """Record a simulated run; return what should be in the file."""
    times = LAW.sample(np.random.default_rng(3), steps, scheme.workers)
    machine, entries = Machine(drain=False), list[Entry]()
    header = header_of(scheme, machine.patience(times, scheme))
    with Recorder(path, header) as recorder:

        def watch(event: Event, commands: list) -> None:
            entries.append(Entry(event, tuple(commands)))
            recorder(event, commands)

        run_events(scheme, times, machine, watch=watch)
    return entries


def ends(trace: Trace) -> list[int]:
    return [
        command.step
        for entry in trace.entries
        for command in entry.commands
        if isinstance(command, Combine | GiveUp)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


# -- there and back --------------------------------------------------------------------


@pytest.mark.parametrize(
    "scheme", [uncoded(3), cyclic(5, 2, pieces=2), Everything(4)], ids=lambda s: s.name
)
def test_a_run_comes_back_as_it_was(scheme: Scheme, path: Path) -> None:
    entries = record(path, scheme, steps=4)
    trace = read(str(path))
    assert trace.entries == tuple(entries)
    assert trace.tail == ()
    assert trace.header.scheme == scheme.name
    assert ends(trace) == [0, 1, 2, 3]
    assert replay(trace, scheme) is None


def test_the_header_comes_back_with_all_it_holds(path: Path) -> None:
    header = Header(
        scheme="cyclic(tolerance=2)",
        workers=5,
        parts=10,
        driver="local",
        seed=2**60,
        capabilities=Capabilities(progress=False, rows_per_worker=3),
        patience=Patience(least=1.5, factor=2.0, first=9.0),
        note='"quoted"\nand so on: λ',
    )
    Recorder(path, header).close()
    assert read(path) == Trace(header, (), ())


@settings(max_examples=60)
@given(streams(workers=4))
@pytest.mark.hypothesis
def test_any_stream_of_events_comes_back_exactly(stream: list[Event]) -> None:
    for scheme in (fractional(4, 1), Everything(4, each=1)):
        coordinator, entries = Coordinator(scheme), list[Entry]()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.jsonl"
            with Recorder(path, header_of(scheme)) as recorder:
                for event in stream:
                    commands = coordinator.handle(event)
                    entries.append(Entry(event, tuple(commands)))
                    recorder(event, commands)
            trace = read(path)
        assert [*trace.entries, *trace.tail] == entries
        assert all(not entry.ends_step for entry in trace.tail)
        last = trace.entries[-1:]
        assert all(entry.ends_step or entry.compares for entry in last)
        assert replay(trace, scheme) is None


def test_numbers_come_back_to_the_last_bit(path: Path) -> None:
    rng = np.random.default_rng(0)
    values = [*(rng.standard_normal(50) * 10.0 ** rng.integers(-300, 300, 50)), 5e-324]
    weights = tuple((i, float(value)) for i, value in enumerate(values))
    with Recorder(path, header_of(uncoded(1))) as recorder:
        recorder(StepStarted(0, 0.1 + 0.2), [Combine(0, weights, 1 / 3)])
    (entry,) = read(path).entries
    assert entry == Entry(StepStarted(0, 0.1 + 0.2), (Combine(0, weights, 1 / 3),))


# -- whole steps -----------------------------------------------------------------------


def test_a_step_is_written_when_it_has_ended_and_not_before(path: Path) -> None:
    scheme = fractional(2, 1)
    sizes: list[int] = []
    with Recorder(path, header_of(scheme)) as recorder:

        def watch(event: Event, commands: list) -> None:
            before = path.stat().st_size
            recorder(event, commands)
            if path.stat().st_size > before:
                sizes.append(path.stat().st_size)
                assert isinstance(commands[-1], Combine)

        times = LAW.sample(np.random.default_rng(0), 3, 2)
        run_events(scheme, times, Machine(), watch=watch)
    assert len(sizes) == 3
    assert sizes[-1] <= path.stat().st_size


def test_an_open_step_is_kept_apart_when_a_run_is_closed(path: Path) -> None:
    coordinator = Coordinator(uncoded(2))
    with Recorder(path, header_of(uncoded(2))) as recorder:
        event = StepStarted(0, 0.0)
        recorder(event, commands := coordinator.handle(event))
    trace = read(path)
    assert trace.entries == ()
    assert trace.tail == (Entry(event, tuple(commands)),)
    assert replay(trace, uncoded(2)) is None


def test_a_file_cut_at_any_byte_reads_back_to_its_last_whole_step(path: Path) -> None:
    entries = record(path, fractional(2, 1), steps=3)
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    whole = 0  # entries up to the last whole step, after so many lines
    expected = [(len(lines[0]), 0)]
    for number, line in enumerate(lines[1:], start=1):
        commands = json.loads(line)["commands"]
        if any(command["type"] in ("Combine", "GiveUp") for command in commands):
            whole = number
        expected.append((expected[-1][0] + len(line), whole))
    assert whole == len(entries)
    torn_headers = 0
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        if cut < len(lines[0]) - 1:
            torn_headers += 1
            with pytest.raises(InvalidTrace):
                read(path)
            continue
        trace = read(path)
        here = max((w for end, w in expected if end <= cut), default=0)
        assert trace.entries == tuple(entries[:here]), cut
        seen = sum(end <= cut for end, _ in expected[1:])
        assert trace.tail == tuple(entries[here:seen]), cut
    assert torn_headers == len(lines[0]) - 1


def test_an_empty_file_is_no_trace_yet(path: Path) -> None:
    path.write_bytes(b"")
    header = header_of(uncoded(2))
    Recorder(path, header).close()
    assert read(path).header == header


def test_a_compressed_trace_reads_back(path: Path) -> None:
    record(path, fractional(2, 1), steps=3)
    packed = path.with_name("run.jsonl.gz")
    data = gzip.compress(path.read_bytes())
    packed.write_bytes(data)
    assert read(packed) == read(path)
    for torn in (data[:-20], data[:1], b"my thesis"):
        packed.write_bytes(torn)
        with pytest.raises(InvalidTrace, match="cannot be decompressed"):
            read(packed)


def test_a_compressed_file_that_fills_the_memory_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = path.with_name("run.jsonl.gz")
    packed.write_bytes(gzip.compress(bytes(3 << 20)))
    monkeypatch.setattr(sys.modules["codedgrad.trace.read"], "_LARGEST", 2 << 20)
    with pytest.raises(InvalidTrace, match="holds more than 2 MB"):
        read(packed)


def test_where_problems_may_be_noted_a_trace_ends_before_them(path: Path) -> None:
    entries = record(path, fractional(2, 1), steps=3)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-2] = b"my thesis\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(InvalidTrace, match="is not an event"):
        read(path)
    problems: list[InvalidTrace] = []
    trace = read(path, problems)
    assert trace.entries == tuple(entries[: len(trace.entries)])
    assert ends(trace) == [0, 1]
    assert len(problems) == 1


def test_a_trace_is_not_written_over(path: Path) -> None:
    record(path, fractional(2, 1), steps=1)
    before = path.read_bytes()
    with pytest.raises(InvalidTrace, match="is there already; take another name"):
        Recorder(path, read(path).header)
    assert path.read_bytes() == before


def test_a_file_of_something_else_is_left_alone(path: Path) -> None:
    path.write_bytes(b"my thesis\n")
    with pytest.raises(InvalidTrace):
        Recorder(path, header_of(uncoded(2)))
    assert path.read_bytes() == b"my thesis\n"


def test_what_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    header = header_of(uncoded(2))
    with pytest.raises(InvalidTrace, match="cannot be written: No such file"):
        Recorder(tmp_path / "nowhere" / "run.jsonl", header)
    with pytest.raises(InvalidTrace):
        Recorder(tmp_path, header)


def test_a_recorder_may_be_closed_twice(path: Path) -> None:
    recorder = Recorder(path, header_of(uncoded(2)))
    recorder.close()
    recorder.close()
    assert read(path).entries == ()


# -- killed ----------------------------------------------------------------------------

CHILD = """
import sys
import numpy as np
from codedgrad.delays import ShiftedExponential
from codedgrad.sim import Machine, Simulator
from codedgrad.testing import Everything
from codedgrad.trace import Header, Recorder

scheme = Everything(12, each=8)
machine = Machine()
times = ShiftedExponential(0.1, 1.0).sample(np.random.default_rng(int(sys.argv[2])),
                                            20_000, 12)
patience = machine.patience(times, scheme)
header = Header(scheme=scheme.name, workers=12, parts=scheme.parts,
                capabilities=machine.capabilities, patience=patience)
recorder = Recorder(sys.argv[1], header)
simulator = Simulator(scheme, capabilities=machine.capabilities, patience=patience,
                      watch=recorder)
input()  # until it is its turn
for step in simulator.run(times):
    print(step.step, flush=True)
"""


def test_a_run_killed_at_any_moment_reads_back_and_replays(tmp_path: Path) -> None:
    rng = np.random.default_rng()
    moments = sorted(int(k) for k in rng.integers(1, 40, 3))
    print(f"killed after steps {moments}")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / f"{i}.jsonl"), str(i)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for i in range(len(moments))
    ]
    try:
        for child, moment in zip(children, moments, strict=True):
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(b"go\n")
            child.stdin.flush()
            for expected in range(moment):
                assert int(child.stdout.readline()) == expected
            child.send_signal(signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
    finally:
        for child in children:
            child.kill()
            with child:  # waits for it and closes its pipes
                pass
    for i, moment in enumerate(moments):
        path = tmp_path / f"{i}.jsonl"
        trace = read(path)
        steps = ends(trace)
        assert steps == list(range(len(steps)))
        assert len(steps) >= moment
        assert replay(trace, Everything(12, each=8)) is None


# -- files that are no traces ----------------------------------------------------------

HEADER = b'{"scheme":"uncoded","workers":1,"parts":1,"kind":"codedgrad trace"'


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


def refusal(path: Path, content: bytes) -> str:
    """Return the one sentence that a file of this content is refused with."""
    path.write_bytes(content)
    with pytest.raises(InvalidTrace) as caught:
        read(path)
    assert isinstance(caught.value, ValueError)
    assert caught.value.path == path
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n", b"\n", b"[]\n", b"{}\n", b"1\n", b"null\n", b"\x00\x01\x02\xff\n",
        b"\xff\xfe{\x00", b"PAR1\x15\x04", b"\x93NUMPY\x01\x00", b"{" * 5000,
        HEADER + b',"x":' + b"[" * 200_000, b'{"scheme":"\xff","workers":1,"parts":1}',
        b'{"scheme":"a","workers":"1","parts":1}', b'{"workers":1,"parts":1}',
        b'{"scheme":"a","workers":0,"parts":1}',
        b'{"scheme":"a","workers":1,"parts":0}',
        b'{"scheme":"a","workers":1,"parts":1,"patience":{"least":null}}',
        b"step,worker0,worker1\n0,1.5,2.5\n",
    ],
    ids=range(19),
)  # fmt: skip
def test_what_is_not_a_trace_is_refused_in_a_sentence(
    path: Path, content: bytes
) -> None:
    assert "is not a trace" in refusal(path, content)


def test_an_empty_file_is_said_to_be_empty(path: Path) -> None:
    assert refusal(path, b"").endswith("is empty")


def test_another_kind_and_another_version_are_named(path: Path) -> None:
    other = HEADER.replace(b"codedgrad trace", b"shopping list") + b"}\n"
    assert "says it is a 'shopping list'" in refusal(path, other)
    for version, other in ((VERSION + 1, "a newer"), (VERSION - 1, "an older")):
        content = HEADER + b',"version":%d}\n' % version
        assert refusal(path, content) == (
            f"{path}: has version {version} of the trace format, and this codedgrad "
            f"reads version {VERSION}; read it with {other} codedgrad"
        )
    path.write_bytes(HEADER + b',"version":%d}\n' % VERSION)
    assert read(path).entries == ()


def test_a_trace_in_which_workers_were_lost_one_by_one_is_refused_by_its_version(
    path: Path,
) -> None:
    """Not by the first line in which a worker is lost."""
    lost = b'{"event":{"type":"WorkerLost","worker":1,"at":0.5},"commands":[]}\n'
    said = refusal(path, HEADER + b',"version":1}\n' + lost)
    assert "has version 1 of the trace format" in said
    assert "WorkerLost" not in said


def test_fields_that_a_later_minor_version_adds_are_passed_over(path: Path) -> None:
    path.write_bytes(HEADER + b',"colour":"blue"}\n')
    assert read(path).header.workers == 1


def test_missing_files_and_folders_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="cannot be read: No such file"):
        read(tmp_path / "missing.jsonl")
    with pytest.raises(InvalidTrace, match="cannot be read: Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{}", b"null", b'{"event":{"type":"StepStarted","step":0}}', b"\xff\xff",
        b'{"event":{"type":"System","step":0,"at":0.0},"commands":[]}',
        b'{"event":{"type":"TimerFired","at":null},"commands":[]}',
        b'{"event":{"type":"TimerFired","at":1.0},"commands":[{"type":"Eval"}]}',
        b"[" * 100_000,
    ],
    ids=range(9),
)  # fmt: skip
def test_a_broken_line_in_the_middle_is_named(path: Path, line: bytes) -> None:
    record(path, fractional(2, 1), steps=2)
    lines = path.read_bytes().splitlines()
    for number in (2, 5, len(lines)):  # from 1, as editors count
        broken = [*lines]
        broken[number - 1] = line
        text = refusal(path, b"\n".join(broken) + b"\n")
        assert f"line {number} is not an event" in text


def test_a_line_in_the_middle_that_is_cut_off_is_not_taken_for_a_torn_end(
    path: Path,
) -> None:
    record(path, fractional(2, 1), steps=2)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:20] + b"\n"
    assert "line 4 is not an event" in refusal(path, b"".join(lines))


def test_nothing_in_a_file_is_executed(path: Path, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    pickled = pickle.dumps(Trap(trap))
    assert "is not a trace" in refusal(path, pickled)
    text = json.dumps({"py/reduce": ["os.mkdir", [str(trap)]]}).encode()
    assert "is not a trace" in refusal(path, text)
    note = f"__import__('os').mkdir({str(trap)!r})"
    header = Header(scheme=note, workers=1, parts=1, note=note)
    path.unlink()
    Recorder(path, header).close()
    assert read(path).header == header
    assert not trap.exists()
