"""Time lines, in the shape that viewers of trace events take."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedgrad.core import (
    Coordinator,
    MessageArrived,
    MessageFailed,
    StepStarted,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import write_matrix
from codedgrad.errors import InvalidOptions
from codedgrad.schemes import fractional, uncoded
from codedgrad.testing import Everything
from codedgrad.trace import Header, Recorder
from codedgrad.view import Fate, read_subject, read_subjects, write_timeline
from codedgrad.view.timeline import timeline

Make = Callable[..., Path]

US = 1e6  # microseconds in a second


def slices(events: list[dict[str, Any]], thread: int) -> list[tuple[str, float, float]]:
    return [
        (e["name"], e["ts"] / US, e["dur"] / US)
        for e in events
        if e["ph"] == "X" and e["tid"] == thread
    ]


def instants(events: list[dict[str, Any]]) -> list[tuple[str, int, float]]:
    return [(e["name"], e["tid"], e["ts"] / US) for e in events if e["ph"] == "i"]


def check_shape(events: list[dict[str, Any]]) -> None:
    """Every event has what a viewer needs; slices of a thread follow each other."""
    for event in events:
        assert event["ph"] in ("M", "X", "i")
        assert event["ts"] >= 0
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["name"], str)
        assert event["ph"] != "i" or event["s"] == "t"
        assert event["ph"] != "X" or event["dur"] > 0
    for process in {event["pid"] for event in events}:
        own = [e for e in events if e["pid"] == process and e["ph"] != "M"]
        assert [e["ts"] for e in own] == sorted(e["ts"] for e in own)
        for thread in {event["tid"] for event in own}:
            for (_, a, long), (_, b, _) in itertools.pairwise(slices(own, thread)):
                assert a + long <= b + 1e-9


def test_a_time_line_by_hand(make_trace: Make) -> None:
    path = make_trace(fractional(2, tolerance=1), [[0.5, 0.75], [0.5, 9.0]])
    events = timeline([read_subject(path)])
    check_shape(events)
    assert slices(events, 0) == [("step 0", 0.0, 1.0), ("step 1", 1.0, 1.0)]
    assert slices(events, 1) == [
        ("part 0", 0.0, 0.5),
        ("part 1", 0.5, 0.5),
        ("part 0", 1.0, 0.5),
        ("part 1", 1.5, 0.5),
    ]
    assert slices(events, 2) == [
        ("part 0", 0.0, 0.75),
        ("part 1, dropped", 0.75, 0.25),
        ("part 0, dropped", 1.0, 1.0),
    ]
    assert instants(events) == [("late", 2, 1.0), ("late", 2, 2.0)]
    step = next(e for e in events if e["name"] == "step 1")
    assert (step["args"]["heard"], step["args"]["late"]) == ([0], [1])


def test_processes_are_runs_and_threads_are_workers(make_run: Make) -> None:
    runs = [make_run(uncoded(2), [[1.0, 2.0]], name, name) for name in ("one", "two")]
    events = timeline(read_subjects(runs))
    check_shape(events)
    names = {
        (e["pid"], e["tid"], e["name"]): e["args"]["name"]
        for e in events
        if e["ph"] == "M" and "name" in e["args"]
    }
    assert names == {
        (1, 0, "process_name"): "one",
        (1, 0, "thread_name"): "root",
        (1, 1, "thread_name"): "worker 0",
        (1, 2, "thread_name"): "worker 1",
        (2, 0, "process_name"): "two",
        (2, 0, "thread_name"): "root",
        (2, 1, "thread_name"): "worker 0",
        (2, 2, "thread_name"): "worker 1",
    }


def test_who_is_lost_joins_fails_or_is_late_is_an_instant(tmp_path: Path) -> None:
    scheme = fractional(3, tolerance=2)
    coordinator, path = Coordinator(scheme), tmp_path / "trace.jsonl"
    header = Header(scheme=scheme.name, workers=3, parts=3)
    with Recorder(path, header) as record:
        for event in (
            StepStarted(0, at=10.0),
            WorkersLost((1,), at=10.5),
            MessageArrived(0, 0, 1, ((0, 3),), at=11.0),
            StepStarted(1, at=12.0),
            MessageArrived(0, 2, 5, ((4, 3),), at=12.5),  # of step 0, and late
            WorkersJoined((1,), at=12.5),
            WorkersLost((77,), at=12.5),  # nobody knows it
            MessageFailed(1, 2, 3, "not finite", at=12.75),
            MessageArrived(1, 0, 1, ((0, 3),), at=13.0),
        ):
            record(event, coordinator.handle(event))
    events = timeline([read_subject(path)])
    check_shape(events)
    assert instants(events) == [
        ("lost", 2, 0.5),
        ("late message", 3, 2.5),
        ("joined", 2, 2.5),
        ("failed", 3, 2.75),
        ("late", 2, 3.0),  # it was asked when it was back
    ]
    first, *_ = slices(events, 3)
    assert first == ("parts 0, 1, 2", 0.0, 2.5)  # it went on into step 1


def test_every_worker_of_those_that_are_lost_together_has_its_instant(
    tmp_path: Path,
) -> None:
    scheme = fractional(3, tolerance=2)
    coordinator, path = Coordinator(scheme), tmp_path / "trace.jsonl"
    with Recorder(path, Header(scheme=scheme.name, workers=3, parts=3)) as record:
        for event in (
            StepStarted(0, at=10.0),
            WorkersLost((2, 77, 1), at=10.5),
            MessageArrived(0, 0, 1, ((0, 3),), at=11.0),
            WorkersJoined((1, 2), at=12.5),
            StepStarted(1, at=13.0),
            MessageArrived(1, 0, 1, ((0, 3),), at=14.0),
        ):
            record(event, coordinator.handle(event))
    found = instants(timeline([read_subject(path)]))
    assert [each for each in found if each[0] in ("lost", "joined")] == [
        ("lost", 3, 0.5), ("lost", 2, 0.5), ("joined", 2, 2.5), ("joined", 3, 2.5),
    ]  # fmt: skip


@pytest.mark.parametrize("drain", [True, False], ids=["drain", "at once"])
def test_slices_of_a_scheme_that_does_everything_are_in_order(
    make_trace: Make, drain: bool
) -> None:
    draw = np.random.default_rng(4)
    seconds = draw.exponential(1.0, (80, 5)) + 4.0 * (draw.random((80, 5)) < 0.2)
    path = make_trace(Everything(5), seconds.tolist(), drain=drain)
    subject = read_subject(path)
    events = timeline([subject])
    check_shape(events)
    assert {(f in subject.fates) for f in (Fate.HEARD, Fate.SPARED)} == {True}
    assert len(slices(events, 0)) == 80
    work = [e for e in events if e["ph"] == "X" and e["tid"] > 0]
    assert {e["cat"] for e in work} == {"work", "cut off"}
    merged = sum(len(e["name"].split()) - 1 for e in work if e["cat"] == "work")
    assert merged == sum(report.work for report in subject.reports)


def test_a_step_that_was_given_up_says_why(make_trace: Make) -> None:
    path = make_trace(uncoded(2), [[1.0, math.inf]])
    events = timeline([read_subject(path)])
    check_shape(events)
    step = next(e for e in events if e["ph"] == "X" and e["tid"] == 0)
    assert step["name"] == "step 0, given up"
    assert step["args"]["given up"]


def test_a_recording_is_one_step_right_after_the_other(tmp_path: Path) -> None:
    write_matrix(tmp_path / "ddp.csv", [7, 9], [[1.0, 2.0], [3.0, 1.0]], ["a", "b"])
    events = timeline([read_subject(tmp_path / "ddp.csv")])
    check_shape(events)
    assert slices(events, 0) == [("step 7", 0.0, 2.0), ("step 9", 2.0, 3.0)]
    assert slices(events, 2) == [("step 7", 0.0, 2.0), ("step 9", 2.0, 1.0)]


def test_a_run_without_steps_has_names_only(make_trace: Make) -> None:
    path = make_trace(uncoded(2), [[1.0, 2.0]])
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert {event["ph"] for event in timeline([read_subject(path)])} == {"M"}


def test_the_file_is_json_and_replaces_only_its_own_kind(
    make_run: Make, tmp_path: Path
) -> None:
    run, file = make_run(uncoded(2), [[1.0, 2.0]] * 2), tmp_path / "line.json"
    subjects = read_subjects([run])
    write_timeline(subjects, file)
    write_timeline(subjects, file)
    told = json.loads(file.read_text())
    assert told["traceEvents"] == timeline(subjects)
    before = (run / "run.json").read_bytes()
    with pytest.raises(InvalidOptions, match="is there and is something else"):
        write_timeline(subjects, run / "run.json")
    assert (run / "run.json").read_bytes() == before


def test_a_long_list_of_parts_is_cut_short(make_trace: Make) -> None:
    path = make_trace(uncoded(1), [[1.0]])
    text = path.read_text().replace('"parts":1', '"parts":9')
    many = ",".join(map(str, range(9)))
    text = text.replace(
        '"parts":[0],"coefficients":[1.0]',
        f'"parts":[{many}],"coefficients":[{",".join(["1.0"] * 9)}]',
    )
    path.write_text(text.replace('"done":1', '"done":9').replace("[[0,1]]", "[[0,9]]"))
    events = timeline([read_subject(path)])
    assert slices(events, 1)[0][0] == "parts 0, 1, 2, 3, 4, 5, ..."
