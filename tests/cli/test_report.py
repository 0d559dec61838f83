"""`codedgrad report`, as a stranger meets it."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from codedgrad.cli import main
from codedgrad.delays import write_matrix
from codedgrad.trace import Manifest, StepLine, StepLog, write_manifest


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
def traces(run: Run, tmp_path: Path) -> list[Path]:
    """What `codedgrad simulate` writes of two schemes and one slow worker."""
    shown = run(
        "simulate", "--workers", 4, "--steps", 12, "--trace", tmp_path / "traces",
        "--scheme", "uncoded", "--scheme", "fractional(tolerance=1)",
        "--delays", "shifted-exponential(floor=1, mean=0.1)",
        "--delays", "sticky(factor=10, workers=0, always=true)",
    )  # fmt: skip
    assert shown.code == 0, shown.err
    return sorted((tmp_path / "traces").iterdir(), reverse=True)


@pytest.fixture
def folder(traces: list[Path], tmp_path: Path) -> Path:
    """The folder of a run, around one of those traces."""
    path = tmp_path / "run"
    (path / "trace").mkdir(parents=True)
    (path / "trace" / "0001-00000000.jsonl").write_bytes(traces[1].read_bytes())
    manifest = Manifest(
        scheme="fractional(tolerance=1)",
        workers=4,
        parts=4,
        engine="local",
        seed=0,
        samples=100,
        batch_size=10,
        steps_per_epoch=10,
        label="coded",
    )
    write_manifest(path, manifest)
    with StepLog(path) as log:
        for step in range(12):
            log(StepLine(step=step, at=float(step), seconds=2.5, loss=1 / (1 + step)))
    return path


def test_a_page_appears_in_the_folder_of_the_run(run: Run, folder: Path) -> None:
    shown = run("report", folder)
    assert (shown.code, shown.err) == (0, "")
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert shown.out.endswith(f"page: {folder / 'report.html'}\n")
    assert "waiting for all in the same parts would have taken" in shown.out
    assert "Late: worker 0 in 100 %" in shown.out
    assert "0.0833" in shown.out  # the final loss


def test_a_page_appears_beside_a_file(run: Run, tmp_path: Path) -> None:
    write_matrix(tmp_path / "ddp.npy", [0, 1], [[1.0, 2.0], [1.0, 2.0]], ["a", "b"])
    shown = run("report", tmp_path / "ddp.npy")
    assert (shown.code, shown.err) == (0, "")
    assert (tmp_path / "report.html").exists()
    assert "Waiting for all 2 workers takes 2.00 s a step on average" in shown.out


def test_two_runs_are_compared_in_80_columns(
    run: Run, traces: list[Path], tmp_path: Path
) -> None:
    shown = run("report", *traces, "--out", tmp_path / "both.html")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert max(map(len, lines[:-1])) <= 80  # the last one is a path
    text = " ".join(shown.out.split())
    assert "with “fractional(tolerance=1)” and" in text
    assert "with “uncoded” (waiting for all)" in text
    assert "wait all: what waiting for all workers would have taken" in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["both.html", "traces"]


def test_the_numbers_for_machines_are_the_same(
    run: Run, traces: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "both.html"
    told = json.loads(run("report", *traces, "--out", out, "--json").out)
    assert told["page"] == str(out)
    assert "on average with “fractional(tolerance=1)”" in told["verdict"]
    waiting, coded = told["runs"]
    assert (waiting["scheme"], waiting["late"]) == ("uncoded", 0.0)
    assert coded["saved"] > 3  # the slow worker takes ten times as long
    assert waiting["mean_seconds"] > 3 * coded["mean_seconds"]
    assert waiting["loss"] is None
    assert told["caveats"] == []


def test_time_lines_and_scalars_are_written_too(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    line, board = tmp_path / "line.json", tmp_path / "deep" / "board"
    words = ("--timeline", line, "--tensorboard", board)
    shown = run("report", folder, *words)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.endswith(f"timeline: {line}\ntensorboard: {board}\n")
    assert json.loads(line.read_text())["traceEvents"]
    [file] = (board / "coded").iterdir()
    assert "tfevents" in file.name


def test_a_run_without_steps_has_a_page(run: Run, folder: Path) -> None:
    [trace] = (folder / "trace").iterdir()
    trace.write_bytes(trace.read_bytes().splitlines(keepends=True)[0])
    (folder / "steps.jsonl").unlink()
    shown = run("report", folder)
    assert (shown.code, shown.err) == (0, "")
    assert "No step has ended yet." in shown.out
    assert "No step has ended yet." in (folder / "report.html").read_text()


def test_names_that_the_terminal_cannot_show_are_replaced(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (folder / "run.json").read_text().replace('"coded"', '"größer"')
    (folder / "run.json").write_text(text)
    monkeypatch.setattr(type(sys.stdout), "encoding", "ascii", raising=False)
    shown = run("report", folder)
    assert (shown.code, shown.err) == (0, "")
    assert "gr??er" in shown.out


def spoil(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["{tmp}/nothing"], "nothing: is not there"),
        (["{tmp}"], "is not the folder of a run, but holds run"),
        (["{run}/run.json"], "is one file of a run; try its folder"),
        (["{run}", "--out", "{tmp}/nowhere/page.html"], "a folder that exists"),
        (["{run}", "--out", "{run}/run.json"], "does not end in .html"),
        (["{run}", "--out", "{tmp}"], "does not end in .html"),
        (["{run}", "--timeline", "{run}/run.json"], "is there and is something else"),
        (["{run}", "--timeline", "{tmp}/nowhere/line.json"], "cannot be written"),
        (["{run}", "--tensorboard", "{run}/run.json"], "cannot be written"),
        (["{tmp}/table.csv"], "'two' is no number"),
        ([], "PATH..."),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2_and_nothing_is_written(
    run: Run, folder: Path, tmp_path: Path, words: list[str], why: str
) -> None:
    spoil(tmp_path / "table.csv", "step,a\n1,two\n")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    shown = run("report", *(word.format(tmp=tmp_path, run=folder) for word in words))
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert why in shown.err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("run.json", "{", "does not describe a run"),
        ("run.json", '{"kind": 3}', "does not describe a run"),
    ],
)
def test_a_run_that_is_damaged_leaves_the_old_page(
    run: Run, folder: Path, file: str, text: str, why: str
) -> None:
    assert run("report", folder).code == 0
    before = (folder / "report.html").read_bytes()
    spoil(folder / file, text)
    shown = run("report", folder)
    assert (shown.code, shown.out) == (2, "")
    assert why in shown.err
    assert (folder / "report.html").read_bytes() == before


@pytest.mark.parametrize("text", ["", "{}\n{}\n"])
def test_a_run_whose_trace_is_damaged_has_a_page_of_its_figures(
    run: Run, folder: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    [trace] = (folder / "trace").iterdir()
    spoil(trace, text)
    shown = run("report", folder)
    assert shown.code == 0
    assert "Its trace is missing: who was late, and what that cost, is" in shown.out
    assert "has no trace: who was late is not known" in caplog.text
    assert "Its trace is missing" in (folder / "report.html").read_text()


def test_help_says_what_is_measured_and_gives_an_example(run: Run) -> None:
    shown = run("report", "--help")
    assert shown.code == 0
    text = " ".join(shown.out.split())
    assert "Only measured runs are compared" in text
    assert "Example: codedgrad report runs/waiting runs/coded --out both.html" in text
