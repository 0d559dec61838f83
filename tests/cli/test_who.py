"""`codedgrad who`, as a stranger meets it."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from codedgrad.cli import main
from codedgrad.delays import write_matrix
from codedgrad.trace import Manifest, write_manifest
from codedgrad.trace.format import VERSION


@dataclass
class Shown:
    code: int | str | None
    out: str
    err: str


Run = Callable[..., Shown]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> Shown:
        monkeypatch.setattr(sys, "argv", ["codedgrad", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Shown(end.value.code or 0, shown.out, shown.err)

    return run


@pytest.fixture
def trace(run: Run, tmp_path: Path) -> Path:
    """The trace of a simulation in which worker 0 is always 10 times as slow."""
    shown = run(
        "simulate", "--workers", 4, "--steps", 12, "--trace", tmp_path / "traces",
        "--scheme", "uncoded",
        "--delays", "shifted-exponential(floor=1, mean=0.05)",
        "--delays", "sticky(factor=10, workers=0, always=true)",
    )  # fmt: skip
    assert shown.code == 0, shown.err
    [file] = (tmp_path / "traces").iterdir()
    return file


def test_ar_names_one_worker_in_a_sentence_a_table_and_a_line(run: Run) -> None:
    shown = run("who", "AR")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0] == "worker 0 is 2.25 times as slow as the others, always (compute)"
    assert lines[2].split() == (
        ["worker", "what", "cause", "times", "steps", "[%]", "since", "now", "best"]
    )
    assert lines[3].split() == (
        ["0", "(dp0)", "always", "slow", "compute", "2.25", "100", "16", "0.44", "1.00"]
    )
    assert lines[4] == "the other 3: nothing wrong, now 1.00 to 1.00"
    assert "of the network they say nothing" in lines[6]
    assert max(map(len, lines)) <= 80


def test_where_nobody_is_slow_that_is_all_there_is_to_say(run: Run) -> None:
    shown = run("who", "SE")
    assert (shown.code, shown.out, shown.err) == (0, "nobody is slow\n", "")


def test_all_lists_everybody(run: Run) -> None:
    lines = run("who", "SE", "--all").out.splitlines()
    assert lines[0] == "nobody is slow"
    assert sum("nothing wrong" in line for line in lines) == 32


def test_machines_get_all_workers_with_their_scores(run: Run) -> None:
    told = json.loads(run("who", "AR", "--json").out)
    slow, *others = told["workers"]
    assert (told["path"], told["steps"]) == ("AR", 44)
    assert (slow["name"], round(slow["now"], 2)) == ("dp0", 0.44)
    [verdict] = slow["slow"]
    assert (verdict["kind"], verdict["cause"]) == ("always slow", "compute")
    assert [each["slow"] for each in others] == [[], [], []]
    assert told["said"] == [run("who", "AR").out.splitlines()[0]]
    assert json.loads(run("who", "SE", "--json").out)["said"] == ["nobody is slow"]


def test_a_trace_and_the_folder_around_it_tell_the_same(
    run: Run, trace: Path, tmp_path: Path
) -> None:
    shown = run("who", trace)
    assert shown.code == 0
    assert shown.out.startswith("worker 0 is 9.97 times as slow as the others, always")
    folder = folder_around(trace.read_bytes(), tmp_path / "run")
    assert run("who", folder).out == shown.out


def folder_around(trace: bytes, folder: Path) -> Path:
    """Make the folder of a run that has this trace."""
    (folder / "trace").mkdir(parents=True)
    (folder / "trace" / "0001-00000000.jsonl").write_bytes(trace)
    manifest = Manifest(
        scheme="uncoded", workers=4, parts=4, engine="local", seed=0, samples=100,
        batch_size=10, steps_per_epoch=10,
    )  # fmt: skip
    write_manifest(folder, manifest)
    return folder


def test_a_trace_of_another_version_is_refused_and_a_run_does_without_it(
    run: Run, trace: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now, before = (b'"version":%d}' % version for version in (VERSION, VERSION - 1))
    older = trace.read_bytes().replace(now, before, 1)
    said = f"has version {VERSION - 1} of the trace format, and this codedgrad reads"
    trace.write_bytes(older)
    shown = run("who", trace)
    assert (shown.code, shown.out) == (2, "")
    assert f"error: {trace}: {said}" in shown.err
    shown = run("who", folder_around(older, tmp_path / "run"))
    assert shown.code == 0
    assert shown.out.startswith("cannot tell which worker is slow: no step has ended")
    assert caplog.text.count(said) == 1


@pytest.mark.parametrize("ending", ["csv", "npy", "parquet"])
def test_recorded_seconds_may_be_in_any_file(
    run: Run, tmp_path: Path, ending: str
) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    seconds = np.random.default_rng(0).normal(1.0, 0.05, (40, 6))
    seconds[20:, 4] *= 3
    file = tmp_path / f"ddp.{ending}"
    write_matrix(file, range(40), seconds, [f"gpu{number}" for number in range(6)])
    assert "since step 20 (compute)" in run("who", file).out.splitlines()[0]


def test_names_from_a_file_are_shown_as_text(run: Run, tmp_path: Path) -> None:
    seconds = np.ones((20, 3)) * [1.0, 1.0, 3.0]
    names = ["a", "b", "[red]\x1b[31m" + "x" * 300]
    write_matrix(tmp_path / "odd.csv", range(20), seconds, names)
    shown = run("who", tmp_path / "odd.csv")
    assert "\x1b" not in shown.out
    assert "[red]" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("nope.csv", None, "nope.csv: is not there"),
        ("nope.jsonl", None, "nope.jsonl: is not there"),
        ("odd.jsonl", "what is this", "is not a trace"),
        ("odd.csv", "step,a\n0,x\n", "no number"),
        ("huge.jsonl",
         '{"scheme":"x","workers":9000000,"parts":1,"kind":"codedgrad trace"}\n',
         "more than 1000000"),
    ],
)  # fmt: skip
def test_what_will_not_do_is_one_sentence(
    run: Run, tmp_path: Path, name: str, text: str | None, why: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    shown = run("who", tmp_path / name)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert why in shown.err


def test_a_trace_that_contradicts_itself_is_refused(
    run: Run, trace: Path, tmp_path: Path
) -> None:
    lines = trace.read_text().splitlines()
    spoilt = [line.replace('"worker":3', '"worker":99') for line in lines]
    (tmp_path / "spoilt.jsonl").write_text("\n".join(spoilt) + "\n")
    shown = run("who", tmp_path / "spoilt.jsonl")
    assert shown.code == 2
    assert shown.err.count("\n") == 1


def test_a_folder_that_is_no_run_is_refused(run: Run, tmp_path: Path) -> None:
    shown = run("who", tmp_path)
    assert shown.code == 2
    assert "is not the folder of a run: it has no run.json; try" in shown.err


def test_the_document_shows_what_is_printed(run: Run) -> None:
    document = Path(__file__).parents[2].joinpath("docs", "who.md").read_text()
    for name in ("AR", "SE"):
        assert f"$ codedgrad who {name}\n{run('who', name).out}```" in document
