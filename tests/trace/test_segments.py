"""The trace of a run: several lives, files of bounded size, disks that fill up."""

import errno
import gzip
import os
import threading
from pathlib import Path

import pytest

from codedgrad.core import (
    Assign,
    Command,
    Coordinator,
    Event,
    MessageArrived,
    Scheme,
    StepStarted,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.errors import LockLost
from codedgrad.schemes import cyclic
from codedgrad.trace import (
    Entry,
    Header,
    RunRecorder,
    Trace,
    ended_steps,
    lines,
    replay,
    segments,
)
from codedgrad.trace.format import VERSION
from codedgrad.trace.segments import read_segments, trouble_with

SCHEME = cyclic(4, 1)


def header_of(scheme: Scheme = SCHEME, **others: object) -> Header:
    name, workers, parts = scheme.name, scheme.workers, scheme.parts
    return Header(scheme=name, workers=workers, parts=parts, **others)


class Life:
    """A root that takes steps: the last worker is late, and heard of afterwards."""

    def __init__(self, folder: Path, number: int = 1, step: int = 0, **options) -> None:
        self.scheme = options.pop("scheme", SCHEME)
        self.entries: list[Entry] = []
        self.coordinator = Coordinator(self.scheme)
        header = header_of(self.scheme)
        self.recorder = RunRecorder(folder, header, number, **options)
        self.step = step
        self.now = 1000.0 * number

    def feed(self, event: Event) -> list[Command]:
        commands = self.coordinator.handle(event)
        self.recorder(event, commands)
        self.entries.append(Entry(event, tuple(commands)))
        return commands

    def take(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.now += 1.0
            for order in self.feed(StepStarted(self.step, self.now)):
                if isinstance(order, Assign) and order.segment.worker not in self.lost:
                    self.answer(order)
            self.step += 1

    def answer(self, order: Assign) -> None:
        segment = order.segment
        cuts = ((segment.id, len(segment.parts)),)
        self.now += 0.25
        asked = self.step, segment.worker, order.message
        self.feed(MessageArrived(*asked, cuts, self.now))

    def whole(self, steps: int) -> list[Entry]:
        """Return what happened until that many steps had ended."""
        ends = [number for number, e in enumerate(self.entries) if e.ends_step]
        return self.entries[: ends[steps - 1] + 1]

    @property
    def lost(self) -> set[int]:
        return {w for w, alive in enumerate(self.coordinator.alive) if not alive}


def steps_of(trace: Trace | None) -> list[int]:
    assert trace is not None
    return [record.step for record, _ in ended_steps(trace)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_life_reads_back(tmp_path: Path) -> None:
    life = Life(tmp_path / "trace")
    life.take(5)
    life.recorder.close()
    life.recorder.close()
    trace = read_segments(tmp_path / "trace")
    assert trace is not None
    assert [*trace.entries, *trace.tail] == life.entries
    assert trace.header == header_of()
    assert names(tmp_path / "trace") == ["0001-00000000.jsonl"]
    assert replay(trace, SCHEME) is None


def test_where_there_is_nothing_there_is_no_trace(tmp_path: Path) -> None:
    assert read_segments(tmp_path) is None
    assert read_segments(tmp_path / "nothing") is None
    (tmp_path / "0001-00000000.txt").write_text("my thesis")
    assert read_segments(tmp_path) is None


def test_what_a_life_did_after_the_checkpoint_of_the_next_is_left_out(
    tmp_path: Path,
) -> None:
    first = Life(tmp_path, 1)
    first.take(7)
    first.recorder.close()
    second = Life(tmp_path, 2, step=4)
    second.take(5)
    second.recorder.close()
    third = Life(tmp_path, 3, step=4)  # its checkpoint was no newer
    third.take(2)
    third.recorder.close()
    trace = read_segments(tmp_path)
    assert steps_of(trace) == [0, 1, 2, 3, 4, 5]
    assert trace is not None
    assert [*trace.entries, *trace.tail] == [*first.whole(4), *third.entries]


@pytest.mark.parametrize("is_written", [True, False], ids=["whole", "torn"])
def test_what_a_life_heard_after_its_checkpoint_is_left_out_before_a_step_too(
    tmp_path: Path, is_written: bool
) -> None:
    first = Life(tmp_path, 1)
    first.take(4)  # here is its checkpoint, which knows nothing of what follows
    known = first.whole(4)
    first.feed(WorkersLost((0,), at=first.now))
    if is_written:
        first.take(2)
    first.recorder.close()
    second = Life(tmp_path, 2, step=4)
    second.take(2)
    second.recorder.close()
    trace = read_segments(tmp_path)
    assert trace is not None
    assert [*trace.entries, *trace.tail] == known + second.entries
    assert replay(trace, SCHEME) is None


def test_a_trace_goes_back_as_far_as_the_workers_were_the_same(tmp_path: Path) -> None:
    for number, scheme in enumerate((cyclic(5, 1), SCHEME, SCHEME), start=1):
        life = Life(tmp_path, number, step=3 * number, scheme=scheme)
        life.take(3)
        life.recorder.close()
    trace = read_segments(tmp_path)
    assert steps_of(trace) == [6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("kept", [1, 2, 3, 100])
def test_files_are_bounded_in_size_and_number(tmp_path: Path, kept: int) -> None:
    life = Life(tmp_path, size=20_000, kept=kept)
    life.take(60)
    life.recorder.close()
    files = names(tmp_path)
    assert len(files) <= kept + 1
    assert all(name.endswith(".gz") for name in files[:-1])
    for file in tmp_path.iterdir():
        data = file.read_bytes()
        assert len(gzip.decompress(data) if file.suffix == ".gz" else data) < 25_000
    steps = steps_of(read_segments(tmp_path))
    assert steps == [*range(steps[0], 60)]
    assert (steps[0] == 0) == (kept == 100)
    assert int(files[0][5:13]) == steps[0]


def test_a_file_is_not_compressed_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(threading.Thread):
        """Runs as late as it can: when the next file has begun, and it is joined."""

        def start(self) -> None:
            pass

        def join(self, timeout: float | None = None) -> None:
            self.run()

    monkeypatch.setattr(segments.threading, "Thread", Late)
    life = Life(tmp_path, size=20_000, kept=100)
    life.take(60)
    life.recorder.close()
    assert len(names(tmp_path)) > 3
    assert steps_of(read_segments(tmp_path)) == [*range(60)]


def test_many_short_lives_are_bounded_and_compressed_too(tmp_path: Path) -> None:
    for number in range(1, 41):
        life = Life(tmp_path, number, step=2 * number, size=20_000, kept=3)
        life.take(2)
        life.recorder.close()
    files = names(tmp_path)
    assert all(name.endswith(".gz") for name in files[:-1])
    raw = [gzip.decompress((tmp_path / name).read_bytes()) for name in files[:-1]]
    assert 20_000 < sum(map(len, raw)) < 40_000
    steps = steps_of(read_segments(tmp_path))
    assert steps == [*range(steps[0], 82)]


def test_a_life_without_a_step_hides_nothing(tmp_path: Path) -> None:
    first = Life(tmp_path, 1)
    first.take(3)
    first.recorder.close()
    second = Life(tmp_path, 2, step=3, scheme=cyclic(5, 1))
    second.feed(StepStarted(3, 5000.0))
    second.recorder.close()
    assert len(names(tmp_path)) == 2
    assert steps_of(read_segments(tmp_path)) == [0, 1, 2]


def test_what_kills_have_left_is_removed(tmp_path: Path) -> None:
    life = Life(tmp_path, size=20_000, kept=9)
    life.take(30)
    life.recorder.close()
    first = tmp_path / names(tmp_path)[0]
    first.with_suffix("").write_bytes(gzip.decompress(first.read_bytes()))
    (tmp_path / f".{first.name}").write_bytes(b"half")
    whole = steps_of(read_segments(tmp_path))
    second = Life(tmp_path, 2, step=30)
    second.take(1)
    second.recorder.close()
    assert not any(name.startswith(".") for name in names(tmp_path))
    assert not first.with_suffix("").exists()
    assert steps_of(read_segments(tmp_path)) == [*whole, 30]


def test_a_file_that_begins_later_says_who_was_lost_before(tmp_path: Path) -> None:
    life = Life(tmp_path, size=20_000, kept=2)
    life.take(3)
    life.feed(WorkersLost((2,), life.now))
    life.take(60)
    life.feed(WorkersJoined((2,), life.now))
    life.take(2)
    life.recorder.close()
    trace = read_segments(tmp_path)
    assert trace is not None
    assert steps_of(trace)[0] > 5  # the loss itself is in none of these files
    alive = [record.alive[2] for record, _ in ended_steps(trace)]
    assert alive == [False] * (len(alive) - 2) + [True] * 2


@pytest.mark.parametrize("rubbish", [b"", b"my thesis", b"\x1f\x8b\0\0"])
def test_what_cannot_be_read_is_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rubbish: bytes
) -> None:
    life = Life(tmp_path, size=20_000, kept=9)
    life.take(60)
    life.recorder.close()
    whole = steps_of(read_segments(tmp_path))
    assert caplog.text == ""
    files = names(tmp_path)
    (tmp_path / files[1]).write_bytes(rubbish)
    (tmp_path / files[2]).write_bytes(rubbish)
    left = steps_of(read_segments(tmp_path))
    first, last = (int(files[number][5:13]) for number in (1, 3))
    assert left == [step for step in whole if not first <= step < last]
    [said] = [record.getMessage() for record in caplog.records]
    assert files[1] in said
    assert said.endswith("(and 1 more); what cannot be read is left out")


@pytest.mark.parametrize("damage", ["torn", "older"])
def test_a_damaged_end_does_not_hide_the_beginning(tmp_path: Path, damage: str) -> None:
    life = Life(tmp_path)
    life.take(6)
    life.recorder.close()
    [file] = tmp_path.iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    if damage == "torn":
        file.write_bytes(b"".join(lines)[:-150])
    else:  # an event that this version does not know
        lines[-3] = b'{"event":{"type":"Yodelled","at":1.0},"commands":[]}\n'
        file.write_bytes(b"".join(lines))
    steps = steps_of(read_segments(tmp_path))
    assert steps == [*range(len(steps))]
    assert len(steps) >= 4


def test_a_kill_while_a_file_is_compressed_leaves_it_whole(tmp_path: Path) -> None:
    life = Life(tmp_path, size=20_000, kept=9)
    life.take(60)
    life.recorder.close()
    whole = steps_of(read_segments(tmp_path))
    first = tmp_path / names(tmp_path)[0]
    plain = gzip.decompress(first.read_bytes())
    first.with_suffix("").write_bytes(plain)  # renamed, and the plain one still there
    assert steps_of(read_segments(tmp_path)) == whole
    data = first.read_bytes()
    first.unlink()
    (tmp_path / f".{first.name}").write_bytes(data[:100])  # half written
    assert steps_of(read_segments(tmp_path)) == whole


def full(file: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def take_on_a_full_disk(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take steps 3 to 6 while the disk takes nothing; worker 1 is lost meanwhile."""
    life.take(3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        life.take(2)
        life.feed(WorkersLost((1,), life.now))
        life.take(2)


def test_steps_of_a_disk_that_is_full_for_a_while_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path / "trace", size=100_000)
    take_on_a_full_disk(life, monkeypatch)
    assert steps_of(read_segments(tmp_path / "trace")) == [0, 1, 2]
    life.take(3)
    life.recorder.close()
    trace = read_segments(tmp_path / "trace")
    assert trace is not None
    assert [*trace.entries, *trace.tail] == life.entries
    assert names(tmp_path / "trace") == ["0001-00000000.jsonl"]
    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith("No space left on device; training goes on, and tries again")


def test_steps_that_wait_for_the_disk_are_written_when_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path / "trace", size=6000)  # outgrown by the waiting lines
    take_on_a_full_disk(life, monkeypatch)
    life.recorder.close()
    trace = read_segments(tmp_path / "trace")
    assert trace is not None
    assert [*trace.entries, *trace.tail] == life.entries


def test_more_steps_than_may_wait_for_the_disk_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lines, "_WAITING", 100)
    life = Life(tmp_path / "trace")
    take_on_a_full_disk(life, monkeypatch)
    life.take(3)
    life.recorder.close()
    trace = read_segments(tmp_path / "trace")
    assert steps_of(trace) == [0, 1, 2, 7, 8, 9]
    assert trace is not None
    alive = [record.alive[1] for record, _ in ended_steps(trace)]
    assert alive == [True] * 3 + [False] * 3
    assert len(caplog.records) == 1
    assert len(life.recorder.recent.packed()["lines"])  # checkpoints have all of it


def test_a_root_that_lost_its_folder_does_not_write_what_was_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> None:
        if is_lost:
            raise LockLost(tmp_path, "is another's")

    is_lost = False
    life = Life(tmp_path, check=check)
    take_on_a_full_disk(life, monkeypatch)
    is_lost = True
    with pytest.raises(LockLost):
        life.recorder.close()
    assert steps_of(read_segments(tmp_path)) == [0, 1, 2]


def test_a_folder_that_cannot_be_made_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "trace").write_text("my thesis")
    life = Life(tmp_path / "trace")
    life.take(3)
    life.recorder.close()
    assert (tmp_path / "trace").read_text() == "my thesis"
    assert caplog.text.count("training goes on, and tries again") == 1


def test_a_root_that_lost_its_folder_writes_nothing(tmp_path: Path) -> None:
    lost = False

    def check() -> None:
        if lost:
            raise LockLost(tmp_path, "is another's")

    life = Life(tmp_path, check=check)
    life.take(2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    lost = True
    with pytest.raises(LockLost):
        life.take(1)
    life.feed(WorkersLost((1,), life.now))
    with pytest.raises(LockLost):
        life.recorder.close()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_trouble_with_an_earlier_trace_is_told_without_reading_it(
    tmp_path: Path,
) -> None:
    assert (
        trouble_with(tmp_path / "no")
        == f"{tmp_path / 'no'} has no trace of earlier steps"
    )
    life = Life(tmp_path, size=20_000, kept=9)
    life.take(30)
    life.recorder.close()
    assert trouble_with(tmp_path) == ""
    newest = tmp_path / names(tmp_path)[-1]
    data, now = newest.read_bytes(), b'"version":%d' % VERSION
    for changed, said in (
        (data[:-5], "is torn at its end"),
        (b"", "is not a trace: "),
        (b"my thesis\n", "is not a trace: "),
        (data.replace(now, b'"version":99', 1), "has version 99 of the trace format"),
        (data.replace(now, b'"version":1', 1), "with an older codedgrad"),
    ):
        newest.write_bytes(changed)
        assert trouble_with(tmp_path).startswith(str(newest))
        assert said in trouble_with(tmp_path)
    newest.unlink()
    assert trouble_with(tmp_path) == ""  # the one before is compressed, and whole
    before = tmp_path / names(tmp_path)[-1]
    before.write_bytes(b"\x1f\x8b\x08")
    assert "is not a trace" in trouble_with(tmp_path)


def test_a_root_that_lost_its_folder_compresses_nothing(tmp_path: Path) -> None:
    def check() -> None:
        raise LockLost(tmp_path, "is another's")

    file = tmp_path / "0001-00000000.jsonl"
    file.write_bytes(b"{}\n")
    newest = tmp_path / "0002-00000000.jsonl"
    segments._tidy(segments._segments(tmp_path), newest, 0, check)
    assert names(tmp_path) == [file.name]


def test_a_damaged_file_does_not_keep_others_from_being_tidied(tmp_path: Path) -> None:
    for number in (1, 2):
        life = Life(tmp_path, number, step=3 * number)
        life.take(3)
        life.recorder.close()
    (tmp_path / "0001-00000000.jsonl.gz").write_bytes(b"\x1f")
    (tmp_path / "0001-00000003.jsonl.gz").write_bytes(b"")
    third = Life(tmp_path, 3, step=9)
    third.take(1)
    third.recorder.close()
    assert (tmp_path / "0002-00000006.jsonl.gz").stat().st_size > 100
