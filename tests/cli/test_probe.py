"""A probe on an engine without processes, and what is wrong with a command line."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from codedgrad.advise import Probe, read_probe
from codedgrad.cli import main

JOB = """
import torch
from codedgrad.torch import Job

NUMBER = 3


def job():
    x = torch.arange(12.0).reshape(12, 1)
    return Job(torch.nn.Linear(1, 1), torch.nn.MSELoss(), (x, 2 * x), batch_size=4)


class Jobs:
    own = staticmethod(job)


def broken():
    raise RuntimeError("no data here")


def other():
    return 7
"""


@dataclass
class Shown:
    code: int | str | None
    out: str
    err: str


Run = Callable[..., Shown]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_job.py").write_text(JOB)
    (tmp_path / "bad_job.py").write_text("def job(:")

    def run(*words: str) -> Shown:
        here = ["--engine", "here", "--workers", "2", "--steps", "2"]
        monkeypatch.setattr(sys, "argv", ["codedgrad", "probe", *here, *words])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Shown(end.value.code or 0, shown.out, shown.err)

    yield run
    sys.modules.pop("own_job", None)


def test_a_probe_of_digits_says_all_its_figures_and_is_kept(run: Run) -> None:
    shown = run("--out", "probe.json")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0] == (
        "digits: 2 workers (here), 2 steps at each load, 8 parts a worker"
    )
    for said in (
        "grows with the load",
        "a part more",
        "an order, or a report",
        "a message              38.5 kB",
        "parts per worker: ",
        "codedgrad plan probe.json says what to do with it",
    ):
        assert said in shown.out
    found = read_probe("probe.json")
    assert (found.workers, found.engine, found.job) == (2, "here", "digits")
    assert str(Path.cwd()) not in Path("probe.json").read_text()


def test_a_job_of_ones_own_is_imported_from_here(run: Run) -> None:
    shown = run("--job", "own_job:job", "--json")
    assert shown.code == 0, shown.err
    said = json.loads(shown.out)
    assert said["job"] == "own_job:job"
    assert said["pieces_measured"] == 2  # four samples a step, two workers
    assert len(said["shares"]) == 2
    assert 4 <= said["pieces"] <= 32
    nested = run("--job", "own_job:Jobs.own")
    assert nested.code == 0, nested.err
    assert "--out probe.json keeps it" in nested.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--engine", "nope"], "--engine: is 'nope'; try local or here"),
        (["--workers", "1"], "--workers"),
        (["--steps", "0"], "--steps"),
        (["--data", "none"], "--data none: is not there"),
        (["--job", "own_job"], "--job own_job: does not name a function"),
        (["--job", ":job"], "does not name a function"),
        (["--job", "none_such:job"], "--job none_such:job: cannot be imported"),
        (["--job", "own_job:none"], "--job own_job:none: cannot be imported"),
        (["--job", "own_job:NUMBER"], "--job own_job:NUMBER: is not a function"),
        (["--job", "own_job:other"], "the job: made int; try a function that returns"),
        (
            ["--job", "own_job:broken"],
            "--job own_job:broken: makes no job (RuntimeError: no data here)",
        ),
        (
            ["--job", "bad_job:job"],
            "--job bad_job:job: cannot be imported (SyntaxError: ",
        ),
        (["--out", "probe.txt"], "--out probe.txt: does not end in .json"),
        (["--out", "none/probe.json"], "--out none/probe.json: cannot be written"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_bad_input_is_one_sentence_and_exit_code_2_and_writes_nothing(
    run: Run, words: list[str], sentence: str, tmp_path: Path
) -> None:
    before = {file for file in tmp_path.iterdir() if file.name != "__pycache__"}
    out = [] if "--out" in words else ["--out", "probe.json"]
    shown = run(*words, *out)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert sentence in shown.err
    assert {f for f in tmp_path.iterdir() if f.name != "__pycache__"} == before


def test_ctrl_c_is_one_line_and_leaves_no_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["codedgrad.cli.probe"], "measure", interrupted)
    shown = run("--out", "probe.json")
    assert (shown.code, shown.out) == (130, "")
    assert shown.err == "interrupted: nothing was written\n"
    assert not (tmp_path / "probe.json").exists()


def test_workers_that_must_share_cores_are_said_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules["codedgrad.cli.probe"]
    rows = [[1.0] * 4] * 2
    found = Probe(
        engine="local", job="own", workers=4, seconds=rows, doubled=rows, pieces=1,
        cut=rows, round_trips=rows, uploads=rows, message=8,
    )  # fmt: skip
    for cores, is_said in ((2, True), (4, False)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)))
        text = "\n".join(module._lines(found, None))
        assert ("4 workers share 2 cores" in text) is is_said


def test_help_says_that_the_module_is_run(run: Run) -> None:
    assert "which runs it" in " ".join(run("--help").out.split())
