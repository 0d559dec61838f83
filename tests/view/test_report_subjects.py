"""Runs, traces and recordings, read into one shape."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import (
    Coordinator,
    Event,
    MessageArrived,
    MessageFailed,
    Scheme,
    StepStarted,
    TimerFired,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import write_matrix
from codedgrad.errors import InvalidFolder, InvalidOptions, InvalidTrace
from codedgrad.schemes import fractional, uncoded
from codedgrad.trace import Header, Recorder
from codedgrad.view import Fate, Subject, read_subject, read_subjects
from codedgrad.view.subjects import shown

Make = Callable[..., Path]


def decided(path: Path, scheme: Scheme, *events: Event) -> Subject:
    """Let a coordinator decide about these events; read its trace."""
    coordinator = Coordinator(scheme)
    header = Header(scheme=scheme.name, workers=scheme.workers, parts=scheme.parts)
    with Recorder(path, header) as record:
        for event in events:
            record(event, coordinator.handle(event))
    return read_subject(path)


def test_a_trace_says_when_everybody_answered(make_trace: Make) -> None:
    subject = read_subject(make_trace(uncoded(3), [[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]]))
    assert subject.kind == "trace"
    assert subject.source == "simulator"
    assert subject.is_simulated
    assert subject.waits_for_all
    assert subject.workers == ("0", "1", "2")
    assert subject.steps.tolist() == [0, 1]
    assert subject.seconds.tolist() == [4.0, 1.0]
    assert subject.answers.tolist() == [[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]]
    assert not subject.is_bound.any()
    assert (subject.fates == Fate.HEARD).all()


def test_who_was_cut_off_is_late_and_its_time_a_bound(make_trace: Make) -> None:
    path = make_trace(fractional(2, tolerance=1), [[0.5, 9.0]])
    subject = read_subject(path)
    assert subject.fates.tolist() == [[Fate.HEARD, Fate.LATE]]
    assert subject.answers.tolist() == [[1.0, 1.0]]
    assert subject.is_bound.tolist() == [[False, True]]


def test_a_late_message_tells_the_whole_time(tmp_path: Path) -> None:
    subject = decided(
        tmp_path / "late.jsonl",
        fractional(2, tolerance=1),
        StepStarted(0, at=5.0),
        MessageArrived(0, 0, 1, ((0, 2),), at=6.0),
        MessageArrived(0, 1, 3, ((2, 2),), at=8.5),  # the step is over
        StepStarted(1, at=9.0),
        MessageArrived(1, 0, 1, ((0, 2),), at=10.0),
    )
    assert subject.fates.tolist() == [[Fate.HEARD, Fate.LATE]] * 2
    assert subject.answers.tolist() == [[1.0, 3.5], [1.0, 1.0]]
    assert subject.is_bound.tolist() == [[False, False], [False, True]]


def test_a_lost_worker_is_lost_until_it_is_back(tmp_path: Path) -> None:
    subject = decided(
        tmp_path / "lost.jsonl",
        fractional(2, tolerance=1),
        StepStarted(0, at=0.0),
        WorkersLost((1,), at=0.25),
        MessageArrived(0, 0, 1, ((0, 2),), at=1.0),
        StepStarted(1, at=1.0),
        MessageArrived(1, 0, 1, ((0, 2),), at=2.0),
        WorkersJoined((1,), at=2.0),
        StepStarted(2, at=2.0),
        MessageArrived(2, 1, 3, ((2, 2),), at=2.5),
    )
    assert subject.fates[:, 1].tolist() == [Fate.LOST, Fate.LOST, Fate.HEARD]
    assert subject.losses == ((0, 1),)
    assert subject.answers[0, 1] == 0.25
    assert math.isnan(subject.answers[1, 1])


def test_a_worker_that_is_back_in_the_same_step_was_lost_all_the_same(
    tmp_path: Path,
) -> None:
    subject = decided(
        tmp_path / "back.jsonl",
        uncoded(2),
        StepStarted(0, at=0.0),
        MessageArrived(0, 0, 1, ((0, 1),), at=0.5),
        WorkersLost((1,), at=0.5),
        WorkersLost((7,), at=0.5),  # nobody knows it
        WorkersJoined((1,), at=0.75),
        MessageArrived(0, 1, 5, ((4, 1),), at=1.0),
        WorkersLost((0,), at=1.5),  # between two steps: it is missing in the next
        WorkersJoined((0,), at=1.75),
        StepStarted(1, at=2.0),
        MessageArrived(1, 0, 1, ((0, 1),), at=3.0),
        MessageArrived(1, 1, 3, ((2, 1),), at=3.0),
        WorkersLost((0,), at=3.5),
    )
    assert subject.fates.tolist() == [[Fate.HEARD, Fate.HEARD]] * 2
    assert subject.losses == ((0, 1), (1, 0))


def test_workers_that_are_lost_together_are_all_lost_until_they_are_back(
    tmp_path: Path,
) -> None:
    subject = decided(
        tmp_path / "together.jsonl",
        fractional(3, tolerance=2),
        StepStarted(0, at=0.0),
        WorkersLost((2, 7, 1), at=0.25),
        MessageArrived(0, 0, 1, ((0, 3),), at=1.0),
        WorkersJoined((1, 2), at=2.0),
        StepStarted(1, at=2.0),
        MessageArrived(1, 2, 5, ((4, 3),), at=2.5),
    )
    assert subject.fates.tolist() == [
        [Fate.HEARD, Fate.LOST, Fate.LOST], [Fate.LATE, Fate.LATE, Fate.HEARD],
    ]  # fmt: skip
    assert subject.losses == ((0, 2), (0, 1))


def test_a_message_that_failed_is_neither_heard_nor_late(tmp_path: Path) -> None:
    subject = decided(
        tmp_path / "failed.jsonl",
        fractional(2, tolerance=1),
        StepStarted(0, at=0.0),
        MessageFailed(0, 1, 3, "not finite", at=0.5),
        MessageArrived(0, 0, 1, ((0, 2),), at=1.0),
    )
    assert subject.fates.tolist() == [[Fate.HEARD, Fate.FAILED]]


def test_a_run_has_the_seconds_of_its_root_and_what_was_logged(make_run: Make) -> None:
    subject = read_subject(make_run(uncoded(2), [[1.0, 2.0]] * 3, label="my run"))
    assert (subject.kind, subject.title, subject.source) == ("run", "my run", "local")
    assert subject.seconds.tolist() == [2.25] * 3
    assert [line.loss for line in subject.lines] == [1.0, 0.5, 0.25]
    assert subject.facts["note"] == "a note"
    assert subject.created == "2026-11-16 04:36:36 UTC"


def test_steps_that_were_not_logged_have_the_seconds_of_the_trace(
    make_run: Make,
) -> None:
    path = make_run(uncoded(2), [[1.0, 2.0]] * 3)
    lines = (path / "steps.jsonl").read_bytes().splitlines(keepends=True)
    (path / "steps.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:10])  # torn
    assert read_subject(path).seconds.tolist() == [2.25, 2.25, 2.0]


def test_a_recording_is_waiting_for_all(tmp_path: Path) -> None:
    write_matrix(tmp_path / "ddp.csv", [3, 5], [[1.0, 2.0], [4.0, 3.0]], ["a", "b"])
    subject = read_subject(tmp_path / "ddp.csv")
    assert (subject.kind, subject.title) == ("recording", "ddp")
    assert subject.waits_for_all
    assert subject.workers == ("a", "b")
    assert subject.steps.tolist() == [3, 5]
    assert subject.seconds.tolist() == [2.0, 4.0]
    assert subject.reports[0].waiting.estimate == 2.0


def test_a_torn_trace_is_read_to_its_last_whole_step(make_trace: Make) -> None:
    path = make_trace(uncoded(2), [[1.0, 2.0]] * 3)
    path.write_bytes(path.read_bytes()[:-20])
    assert read_subject(path).steps.tolist() == [0, 1]


def test_a_run_in_which_no_step_has_ended_is_read(make_run: Make) -> None:
    path = make_run(uncoded(2), [[1.0, 2.0]])
    [trace] = (path / "trace").iterdir()
    trace.write_bytes(trace.read_bytes().splitlines(keepends=True)[0])
    subject = read_subject(path)
    assert subject.reports == ()
    assert subject.answers.shape == (0, 2)


def test_titles_are_told_apart(make_trace: Make) -> None:
    paths = [
        make_trace(uncoded(2), [[1.0, 2.0]], name) for name in ("a.jsonl", "b.jsonl")
    ]
    subjects = read_subjects([*paths, paths[0]])
    assert [subject.title for subject in subjects] == [
        "uncoded, a.jsonl",
        "uncoded, b.jsonl",
        "uncoded, a.jsonl (2)",
    ]


def test_whoever_wants_to_know_is_told_what_is_read(make_trace: Make) -> None:
    path, told = make_trace(uncoded(2), [[1.0, 2.0]]), []
    read_subjects([path], told.append)
    assert told == [path]


def test_a_title_is_one_printable_line(make_run: Make) -> None:
    hostile = "\x1b[31mred\n\u202eright to left" + "x" * 100
    title = read_subject(make_run(uncoded(2), [[1.0, 2.0]], label=hostile)).title
    assert title.isprintable()
    assert len(title) <= 60
    assert shown("a\tb") == "a b"


@pytest.mark.parametrize("name", ["nothing.jsonl", "nothing", "nothing.csv"])
def test_what_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidOptions, match=f"{name}: is not there; try the folder"):
        read_subject(tmp_path / name)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFolder, match=r"it has no run\.json; try the folder"):
        read_subject(tmp_path)


def test_a_trace_that_contradicts_itself_is_refused_by_name(make_trace: Make) -> None:
    path = make_trace(uncoded(2), [[1.0, 2.0]])
    text = path.read_text()
    assert '"weights":[[1,' in text
    path.write_text(text.replace('"weights":[[1,', '"weights":[[99,'))
    with pytest.raises(InvalidTrace, match="contradicts itself") as error:
        read_subject(path)
    assert error.value.path == path


def test_a_trace_with_an_order_that_cannot_be_meant_is_refused_by_name(
    make_trace: Make,
) -> None:
    path = make_trace(uncoded(2), [[1.0, 2.0]])
    path.write_text(path.read_text().replace('"parts":[1]', '"parts":[1,1]'))
    with pytest.raises(InvalidTrace) as error:
        read_subject(path)
    assert error.value.path == path


@pytest.mark.parametrize("what", ["workers", "parts"])
def test_a_trace_that_would_not_fit_into_memory_is_refused(
    tmp_path: Path, what: str
) -> None:
    numbers = {"workers": 1, "parts": 1, what: 10**15}
    with Recorder(tmp_path / "much.jsonl", Header(scheme="s", **numbers)):
        pass
    with pytest.raises(InvalidTrace, match="more than 1000000"):
        read_subject(tmp_path / "much.jsonl")


def test_a_step_that_was_given_up_is_no_sum(tmp_path: Path) -> None:
    subject = decided(
        tmp_path / "up.jsonl",
        uncoded(2),
        StepStarted(0, at=0.0),
        MessageArrived(0, 0, 1, ((0, 1),), at=1.0),
        TimerFired(at=1e6),
    )
    assert subject.combined.tolist() == [False]
    assert subject.fates.tolist() == [[Fate.HEARD, Fate.LATE]]
    assert np.isfinite(subject.seconds).all()
