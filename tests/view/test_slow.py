"""Who was slow, on the page and while it runs."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from codedgrad.core import Coordinator, MessageArrived, Record, StepStarted
from codedgrad.delays import traces, write_matrix
from codedgrad.schemes import fractional, uncoded
from codedgrad.view import LiveView, read_subject, read_subjects
from codedgrad.view.page.page import page
from codedgrad.view.page.slow import slowness_of, who_was_slow

Make = Callable[..., Path]

EVEN = [[1.0, 1.0, 1.0, 1.0]] * 10
UNEVEN = [[1.0, 1.0, 4.0, 1.0]] * 10


def words(section: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", section).split())


def test_the_page_of_a_slow_worker_says_who_it_was(make_trace: Make) -> None:
    subject = read_subject(make_trace(uncoded(4), UNEVEN))
    section = who_was_slow([subject])
    assert section in page([subject])
    told = words(section)
    assert told.startswith("Who was slow")
    assert "Worker 2 is 4 times as slow as the others, always (compute)." in told
    assert "The other 3: nothing wrong, now 1.00 to 1.00." in told
    assert told.endswith("2 always slow compute 4 100 0 0.25 1.00")


def test_where_nobody_was_slow_there_is_no_such_section(make_trace: Make) -> None:
    subject = read_subject(make_trace(uncoded(4), EVEN))
    assert who_was_slow([subject]) == ""
    assert "Who was slow" not in page([subject])


def test_of_several_runs_only_those_are_named_in_which_somebody_was(
    make_trace: Make,
) -> None:
    paths = [
        make_trace(fractional(4, tolerance=1), EVEN, "a.jsonl"),
        make_trace(uncoded(4), UNEVEN, "b.jsonl"),
    ]
    section = who_was_slow(read_subjects(paths))
    assert re.findall(r"<h3>(.*?)</h3>", section) == ["uncoded"]


def test_a_recording_keeps_the_names_of_its_workers() -> None:
    told = words(who_was_slow([read_subject(traces()["AR"])]))
    assert told.endswith("0 (dp0) always slow compute 2.25 100 16 0.44 1.00")


def test_names_are_escaped_and_may_be_alike(tmp_path: Path) -> None:
    seconds = np.ones((20, 4)) * [1.0, 1.0, 1.0, 3.0]
    names = ["a", "b", "<b>" + "x" * 80, "<b>" + "x" * 81]
    write_matrix(tmp_path / "odd.csv", range(20), seconds, names)
    section = who_was_slow([read_subject(tmp_path / "odd.csv")])
    assert "<b>" not in section
    assert "&lt;b&gt;" in section


def test_a_long_table_ends_with_how_many_more(
    make_trace: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codedgrad.view.page.slow._ROWS", 1)
    slow = [[4.0, 9.0, 1.0, 1.0, 1.0, 1.0]] * 10
    subject = read_subject(make_trace(uncoded(6), slow))
    assert len(slowness_of(subject).verdicts) == 2
    assert "1 more are slow." in words(who_was_slow([subject]))


# -- while it runs -------------------------------------------------------------------


@dataclass
class Step:
    loss: float = 0.5
    heard: tuple[int, ...] = (0, 1, 2, 3)
    late: tuple[int, ...] = ()
    seconds: float = 1.0


def records(slow: dict[int, float], steps: int) -> list[Record]:
    coordinator, found = Coordinator(uncoded(workers=4)), []
    for step in range(steps):
        coordinator.handle(StepStarted(step, at=100.0 * step))
        took = {w: 1.0 + 0.01 * w + 0.001 * step for w in range(4)}
        took |= {worker: took[worker] * slow.get(worker, 1.0) for worker in took}
        for worker in sorted(took, key=lambda worker: took[worker]):
            cuts, at = ((2 * worker, 1),), 100.0 * step + took[worker]
            coordinator.handle(
                MessageArrived(step, worker, 2 * worker + 1, cuts, at=at)
            )
        found.append(coordinator.history.records[-1])
    return found


def shown(slow: dict[int, float], steps: int = 8, terminal: bool = True) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=100)
    with LiveView(["a run"], steps, 4, console) as view:
        view.begin("a run")
        for record in records(slow, steps):
            view.step(Step(), 0.9, record)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.getvalue())


def test_the_live_view_has_a_line_about_who_is_slow() -> None:
    assert "worker 2: 10x slow for 8 steps" in shown({2: 10.0})


def test_the_live_view_says_nothing_where_nobody_is() -> None:
    assert "slow" not in shown({})


def test_the_live_view_does_without_records() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100)
    with LiveView(["a run"], 2, 4, console) as view:
        view.begin("a run")
        view.step(Step(), 0.9)
    assert "slow" not in text.getvalue()


def test_many_slow_workers_do_not_fill_the_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("codedgrad.view.live._LINES", 1)
    assert "and 2 more are slow" in shown({1: 10.0, 2: 5.0})


def test_where_nobody_looks_there_is_a_line_a_run() -> None:
    assert shown({2: 10.0}, terminal=False) == "a run: 8 steps ...\n"
