"""`simulate`, `plan`, `who` and `report` take the same kinds of paths."""

import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from codedgrad.advise import Probe, write_probe
from codedgrad.cli import main
from codedgrad.delays import Times, write_matrix
from codedgrad.schemes import CodedScheme, build
from codedgrad.sim import Machine, header_of, run_events
from codedgrad.trace import Manifest, Recorder, write_manifest

STEPS, WORKERS = 12, 4
COMMANDS = ("simulate", "simulate --delays", "plan", "plan --delays", "who", "report")
KINDS = (
    *("run", "run/trace", "trace.jsonl", "trace.jsonl.gz", "times.csv", "times.npy"),
    *("times.parquet", "probe.json", "AR"),
)


@dataclass
class Shown:
    code: int | str | None
    out: str
    err: str

    @property
    def text(self) -> str:
        return " ".join(self.out.split())


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


def seconds() -> np.ndarray:
    """Seconds of four workers, of which worker 2 is three times as slow as others."""
    x = np.random.default_rng(0).uniform(1.0, 1.05, (STEPS, WORKERS))
    x[:, 2] *= 3
    return x


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same seconds in every kind of file, and a folder to be in."""
    x, scheme, machine = seconds(), build("uncoded(pieces=4)", WORKERS), Machine()
    times = Times(0.25 * x, 0.75 * x)
    with Recorder(
        tmp_path / "trace.jsonl", header_of(scheme, times, machine, 0, "")
    ) as record:
        run_events(scheme, times, machine, watch=record)
    data = (tmp_path / "trace.jsonl").read_bytes()
    (tmp_path / "trace.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "run" / "trace").mkdir(parents=True)
    (tmp_path / "run" / "trace" / "0001-00000000.jsonl").write_bytes(data)
    manifest = Manifest(
        scheme=scheme.name, workers=WORKERS, parts=scheme.parts, engine="local", seed=0,
        samples=100, batch_size=10, steps_per_epoch=10,
    )  # fmt: skip
    write_manifest(tmp_path / "run", manifest)
    names = [f"worker{number}" for number in range(WORKERS)]
    for ending in ("csv", "npy"):
        write_matrix(tmp_path / f"times.{ending}", range(STEPS), x, names)
    probe = Probe(
        engine="local", job="digits", workers=WORKERS, seconds=x.tolist(),
        doubled=(1.75 * x).tolist(), pieces=1, cut=x.tolist(),
        round_trips=[[0.002] * WORKERS], uploads=[[0.002] * WORKERS], message=1000,
    )  # fmt: skip
    write_probe(tmp_path / "probe.json", probe)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recorded_in_parquet(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    names = [f"worker{number}" for number in range(WORKERS)]
    write_matrix(folder / "times.parquet", range(STEPS), seconds(), names)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_every_kind_of_path(
    run: Run, folder: Path, command: str, kind: str
) -> None:
    if kind == "times.parquet":
        recorded_in_parquet(folder)
    shown = run(*command.split(), kind)
    assert (shown.code, shown.err) == (0, "")
    worker, factor = ("0", "2.25") if kind == "AR" else ("2", "3")
    if command.startswith("simulate"):
        rows = 44 if kind == "AR" else STEPS
        assert f"replay: {rows} steps of 4 workers" in shown.text
        assert f"The times are those of {kind}." in shown.text
    elif command.startswith("plan"):
        assert "use auto: " in shown.text
        assert f"worker {worker}" in shown.text
        assert "coding pays" in shown.text
    elif command == "who":
        assert shown.text.startswith(f"worker {worker} is {factor[0]}")
    else:
        assert Path(shown.out.rpartition("page: ")[2].strip()).name == "report.html"
        assert len(list(folder.rglob("report.html"))) == 1
        assert "all 4 workers" in shown.text


@pytest.mark.parametrize("kind", ["run", "run/trace", "trace.jsonl"])
def test_a_simulation_of_a_run_has_its_scheme_and_its_share(
    run: Run, folder: Path, kind: str
) -> None:
    told = json.loads(run("simulate", kind, "--json").out)
    names = [result["name"] for result in told["results"]]
    assert names == [
        *("uncoded", "fractional(tolerance=1)", "cyclic(tolerance=1)"),
        "uncoded(pieces=4)",
    ]
    assert "75 % grows with the load" in told["scenario"]["delays"]
    mean = seconds().max(axis=1).mean()
    assert told["results"][0]["mean_seconds"] == pytest.approx(mean, rel=0.01)


def test_a_scheme_that_is_not_registered_here_is_said_to_be_so(
    run: Run, folder: Path
) -> None:
    x, plain, machine = seconds(), build("uncoded", WORKERS), Machine()
    assert isinstance(plain, CodedScheme)
    own = CodedScheme("backup(wait=0.5)", plain.code, plain.rule)
    times = Times(0 * x, x)
    with Recorder(
        folder / "own.jsonl", header_of(own, times, machine, 0, "")
    ) as record:
        run_events(own, times, machine, watch=record)
    shown = run("simulate", "own.jsonl")
    assert (shown.code, shown.err) == (0, "")
    assert (
        "backup(wait=0.5) is left out: no scheme backup is registered here; compare it "
        "with --scheme uncoded --scheme FILE.py:NAME, or install the package that "
        "registers it." in shown.text
    )
    assert "does not fit" not in shown.text


def test_a_run_may_be_shuffled_changed_and_given_another_share(
    run: Run, folder: Path
) -> None:
    shuffled = "replay(path=run, order=shuffled)"
    shown = run("simulate", "--delays", shuffled, "--steps", "100", "--no-drain")
    assert "shuffled order, 75 % grows with the load" in shown.text
    dead = ("--delays", "dead(worker=0)", "--scheme", "fractional(tolerance=1)")
    shown = run("simulate", "run", *dead, "--share", "0.5")
    assert (shown.code, shown.err) == (0, "")
    assert "50 % grows with the load; dead" in shown.text
    planned = run("plan", "--delays", "run", "--delays", "dead(worker=0)")
    assert "gone since step 0" in planned.text


def test_a_scenario_replays_a_run_that_lies_beside_it(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'schemes = ["uncoded"]\ndelays = [{kind = "replay", path = "run"}]\n'
    (folder / "own.toml").write_text(text)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    shown = run("simulate", "../own.toml")
    assert (shown.code, shown.err) == (0, "")
    assert "12 steps of 4 workers" in shown.text
    (folder / "own.toml").write_text(text.replace('"run"', '"runs"'))
    shown = run("simulate", "../own.toml")
    assert (shown.code, shown.err.count("\n")) == (2, 1)
    assert "own.toml: delays: ../runs: is not there" in shown.err


def test_a_probe_brings_its_latency_unless_another_is_given(
    run: Run, folder: Path
) -> None:
    told = json.loads(run("simulate", "probe.json", "--json").out)
    assert told["scenario"]["machine"]["latency"] == pytest.approx(0.001)
    words = ("simulate", "probe.json", "--latency", "0.5", "--json")
    assert json.loads(run(*words).out)["scenario"]["machine"]["latency"] == 0.5


@pytest.mark.parametrize("command", ["simulate", "plan", "who", "report"])
@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("none", "none: is not there; try the folder of a run, a trace (.jsonl), rec"),
        ("none.csv", "none.csv: is not there; try the folder of a run"),
        ("none.jsonl", "none.jsonl: is not there; try the folder of a run"),
        ("notes.txt", "notes.txt: is of no kind that can be read; try the folder"),
        ("broken.json", "broken.json: is not a probe"),
        ("broken.jsonl", "broken.jsonl: is not a trace"),
        ("broken.csv", "broken.csv: line 2, a: 'x' is no number"),
        ("empty", "empty: is not the folder of a run: it has no run.json; try the f"),
        ("runs", "runs: is not the folder of a run, but holds first; try runs/first"),
        ("run/run.json", "run/run.json: is one file of a run; try its folder, run"),
    ],
)
def test_every_command_refuses_a_path_with_the_same_sentence(
    run: Run, folder: Path, command: str, path: str, sentence: str
) -> None:
    (folder / "empty").mkdir()
    (folder / "runs").mkdir()
    (folder / "run").rename(folder / "runs" / "first")
    (folder / "run").symlink_to(folder / "runs" / "first")
    for name in ("notes.txt", "broken.json", "broken.jsonl"):
        (folder / name).write_text("{")
    (folder / "broken.csv").write_text("step,a,b\n0,x,1\n")
    shown = run(command, path)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith(f"error: {sentence}")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("command", ["simulate", "plan", "who", "report"])
@pytest.mark.parametrize(
    ("path", "meant"),
    [("rnu", "run"), ("times.scv", "times.csv"), ("rnu/trace", "run/trace")],
)
def test_a_misspelt_path_is_answered_with_the_one_that_is_near(
    run: Run, folder: Path, command: str, path: str, meant: str
) -> None:
    shown = run(*command.split(), path)
    assert (shown.code, shown.err.count("\n")) == (2, 1)
    assert f"{path}: is not there (did you mean {meant}?); try the fold" in shown.err


@pytest.mark.parametrize("command", ["simulate", "plan", "who", "report"])
def test_help_names_the_kinds_of_paths_and_an_example(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    said = run(command, "--help").text
    kinds = (
        "a trace (.jsonl), recorded seconds (.csv, .npy, .parquet), a probe (.json), "
        "AR or SE"
    )
    assert f"The folder of a run, {kinds}" in said
    assert f"codedgrad {command} runs/" in said


def test_who_tells_since_when_in_a_run_of_ten_steps_and_not_in_four(
    run: Run, folder: Path
) -> None:
    x = np.random.default_rng(1).uniform(1.0, 1.02, (10, WORKERS))
    x[5:, 2] *= 10
    names = [f"worker{number}" for number in range(WORKERS)]
    write_matrix("ten.csv", range(10), x, names)
    first, *_ = run("who", "ten.csv").out.splitlines()
    assert first.startswith("worker 2 is ")
    assert first.endswith(" times as slow as the others, since step 5 (compute)")
    write_matrix("four.csv", range(4), x[4:8], names)
    shown = run("who", "four.csv")
    assert shown.code == 0
    assert shown.out.startswith(
        "cannot tell which worker is slow: 4 steps have ended, and 5 steps are needed\n"
    )
    assert json.loads(run("who", "four.csv", "--json").out)["steps_needed"] == 5


def test_the_page_of_a_recording_has_what_seconds_can_tell(
    run: Run, folder: Path
) -> None:
    assert run("report", "times.csv", "--out", "page.html").code == 0
    page = (folder / "page.html").read_text()
    for heading in ("Who was slow", "Time per step", "When every worker answered"):
        assert f"<h2>{heading}</h2>" in page
    for vain in ("Who was heard", "messages per step", "heard per step"):
        assert vain not in page
    calm = np.random.default_rng(0).uniform(1.0, 1.05, (STEPS, WORKERS))
    write_matrix("calm.csv", range(STEPS), calm, list("abcd"))
    assert run("report", "calm.csv", "--out", "calm.html").code == 0
    assert "Nobody is slow." in (folder / "calm.html").read_text()
