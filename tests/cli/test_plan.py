"""A plan, as a stranger meets it."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from codedgrad.cli import main
from codedgrad.delays import Times, write_matrix
from codedgrad.scenario.scenario import read_scenario
from codedgrad.schemes import build
from codedgrad.sim import Machine, compare, header_of, run_events
from codedgrad.trace import Recorder

ROOT = Path(__file__).parents[2]
LAW = ("--delays", "shifted-exponential(floor=1, mean=0.2)", "--workers", "4")
QUICK = (*LAW, "--steps", "12", "--no-drain")


@dataclass
class Shown:
    code: int | str | None
    out: str
    err: str


Run = Callable[..., Shown]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Shown:
        monkeypatch.setattr(sys, "argv", ["codedgrad", *words])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Shown(end.value.code or 0, shown.out, shown.err)

    return run


def test_the_advice_comes_first_and_the_table_fits(run: Run) -> None:
    shown = run("plan", "AR")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0] == "use auto: 1.8 times less time than waiting for all"
    assert lines[1] == "worker 0 (dp0) takes 2.25 times as long as the others"
    assert max(map(len, lines)) <= 80
    text = " ".join(shown.out.split())
    for said in (
        "if a worker scheme s/step x bound work messages data dies",
        "the slowest worker sets the pace",
        "coding pays even if all of a step's time grows with the load (the limit is "
        "125 %); here 100 % does: it pays, but auto takes less time still",
        "that is the limit with tolerance 1; with 2 it is 63 %, with 3 it is 42 %",
        "4 workers, 44 steps x 1 run, seed 0; late workers finish the part in hand",
        "warning: Nobody said what share",
        "warning: The step numbers have gaps",
        "not simulated",
    ):
        assert said in text
    assert re.search(r"^uncoded +45.29 +1.94 +1.00 +4.0 +25 % +waits$", shown.out, re.M)
    assert re.search(r"^auto .* goes on$", shown.out, re.M)
    assert shown.err == ""


def test_machines_get_everything(run: Run) -> None:
    said = json.loads(run("plan", *QUICK, "--json").out)
    assert said["scheme"] == said["ranking"][0]["scheme"] or said["scheme"] == "uncoded"
    assert said["advice"] in run("plan", *QUICK).out
    assert (said["workers"], said["steps"], said["seed"]) == (4, 12, 0)
    times = [row["mean_seconds"] for row in said["ranking"]]
    assert times == pytest.approx(sorted(times), rel=0.01)
    assert all(row["over_bound"] >= 1 for row in said["ranking"])
    for left in said["left_out"]:
        assert left["least_seconds"] > times[0]
    assert [one["tolerance"] for one in said["break_even"]] == [1, 2, 3]
    machine = {"drain": False, "progress": True, "latency": 0.0, "port": None}
    assert said["machine"] == machine


def test_top_says_how_many_rows_and_waiting_for_all_is_always_there(run: Run) -> None:
    shown = run("plan", *QUICK, "--top", "1").out
    rows = [line for line in shown.splitlines() if re.search("(goes on|waits)$", line)]
    assert len(rows) <= 2
    assert any(row.startswith("uncoded") for row in rows)


@pytest.mark.parametrize(
    "words",
    [
        ("AR", "--share", "0.5", "--steps", "8", "--latency", "0.5"),
        ("own.csv", "--steps", "15", "--no-drain"),
        ("AR", "--workers", "6", "--share", "1", "--steps", "6"),
        ("AR", "--fitted", "--steps", "10"),
        QUICK,
        (*QUICK, "--share", "0.2"),
        (*QUICK, "--runs", "2", "--network", "port=0.05, latency=0.01"),
    ],
    ids=str,
)
def test_the_scenario_written_is_one_that_simulate_runs(
    run: Run, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    write_matrix("own.csv", range(12), 1 + rng.random((12, 4)), list("abcd"))
    (tmp_path / "plans").mkdir()
    shown = run("plan", *words, "--out", "plans/plan.toml", "--json")
    assert shown.code == 0, shown.err
    said = json.loads(shown.out)
    scenario = read_scenario("plans/plan.toml")
    assert scenario.schemes[0].name == said["scheme"]
    names = [scheme.name for scheme in scenario.schemes]
    assert sorted(names) == sorted(row["scheme"] for row in said["ranking"])
    assert (scenario.workers, scenario.steps) == (said["workers"], said["steps"])
    assert said["written"][-1] == "plans/plan.toml"
    results = compare(
        scenario.schemes,
        scenario.delays,
        steps=scenario.steps,
        runs=scenario.runs,
        seed=scenario.seed,
        machine=scenario.machine,
    )
    planned = {row["scheme"]: row["mean_seconds"] for row in said["ranking"]}
    for result in results:
        mean = result.summary()["mean_seconds"]
        assert mean == pytest.approx(planned[result.scheme.name])
    again = run("simulate", "plans/plan.toml")
    assert again.code == 0, again.err
    assert said["advice"] in " ".join(again.out.split())


def test_a_trace_and_a_probe_can_be_planned_for(run: Run, tmp_path: Path) -> None:
    x = np.ones((24, 4))
    x[:, 2] = 3.0
    times, machine = Times(0.5 * x, 0.5 * x), Machine()
    scheme, file = build("uncoded(pieces=4)", 4), tmp_path / "trace.jsonl"
    with Recorder(file, header_of(scheme, times, machine, 0, "")) as record:
        run_events(scheme, times, machine, watch=record)
    shown = run("plan", str(file), "--no-drain")
    assert shown.code == 0, shown.err
    text = " ".join(shown.out.split())
    assert "worker 2 takes 3 times as long as the others" in text
    assert (
        "50 % of a worker's time grows with its load, estimated from loads that differ."
        in text
    )
    assert "Nobody said what share" not in text


def test_the_document_shows_what_the_commands_print(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    document = (ROOT / "docs" / "plan.md").read_text()
    blocks = re.findall(
        r"```text\n\$ codedgrad (plan .*?)\n((?!    ).*?)```", document, re.DOTALL
    )
    assert len(blocks) == 2
    for command, promised in blocks:
        said = run(*shlex.split(command.replace("\\\n", " "))).out
        for piece in promised.split("...\n"):
            assert piece.strip() in said


def _bad() -> list[tuple[list[str], str]]:
    return [
        ([], "plan: takes either a PATH or --delays"),
        (["AR", *LAW], "plan: takes either a PATH or --delays"),
        (["none.csv"], "none.csv: is not there"),
        (["none"], "none: is not there; try the folder of a run"),
        (["key.toml"], "key.toml: is of no kind that can be read"),
        (["broken.json"], "broken.json: is not a probe"),
        (["broken.jsonl"], "broken.jsonl: is not a trace"),
        (["AR", "--share", "1.5"], "--share"),
        (["AR", "--share", "nan"], "--share"),
        (["AR", "--steps", "0"], "--steps"),
        (["AR", "--latency", "-1"], "--latency"),
        (["AR", "--network", "ports=1"], "network: has no 'ports'"),
        ([*LAW, "--fitted"], "--fitted: is for recordings"),
        (["--delays", "sticki(factor=2)"], "there is no kind 'sticki'"),
        (["AR", "--out", "plan.txt"], "--out plan.txt: does not end in .toml"),
        (
            ["AR", "--out", "key.toml"],
            "--out: key.toml is there already; try another name",
        ),
        (["AR", "--out", "old.toml"], "--out: old-times.csv is there already"),
        (["AR", "--out", "none/plan.toml"], "--out none/plan.toml: cannot be written"),
    ]


@pytest.mark.parametrize(("words", "sentence"), _bad(), ids=lambda x: str(x)[:40])
def test_bad_input_is_one_sentence_and_exit_code_2_and_writes_nothing(
    run: Run,
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("key.toml", "broken.json", "broken.jsonl", "old-times.csv"):
        (tmp_path / name).write_text("{")
    before = sorted(tmp_path.rglob("*"))
    out = [] if "--out" in words else ["--out", "plan.toml"]
    shown = run("plan", *words, *out)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert sentence in shown.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_terminal_that_knows_ascii_only_is_no_reason_to_crash(
    tmp_path: Path,
) -> None:
    write_matrix(tmp_path / "own.csv", range(5), np.ones((5, 2)), ["a", "bü"])
    shown = subprocess.run(
        [sys.executable, "-m", "codedgrad", "plan", "own.csv"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("wait for all: nothing to gain here")


def test_ctrl_c_is_one_line_and_leaves_no_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["codedgrad.cli.plan"], "make_plan", interrupted)
    shown = run("plan", "AR", "--out", "plan.toml")
    assert (shown.code, shown.out) == (130, "")
    assert shown.err == "interrupted: nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_help_says_what_it_is_for(run: Run) -> None:
    said = " ".join(run("plan", "--help").out.split())
    assert "or that there is nothing to gain" in said
    assert "codedgrad plan AR" in said
