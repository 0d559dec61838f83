"""A comparison of schemes, as a stranger meets it."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from codedgrad.cli import main
from codedgrad.schemes import build
from codedgrad.trace import read, replay

ROOT = Path(__file__).parents[2]
QUICK = ("--no-drain", "--steps", "200")
STICKY = "sticky(factor=10, workers=0, always=true)"


@dataclass
class Shown:
    code: int | str | None
    out: str
    err: str


Run = Callable[..., Shown]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Shown:
        monkeypatch.setattr(sys, "argv", ["codedgrad", "simulate", *words])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Shown(end.value.code or 0, shown.out, shown.err)

    return run


def test_help_is_enough_for_a_stranger(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", [*sys.path])  # the folder of a scheme is added
    monkeypatch.chdir(tmp_path)
    Path("my_scheme.py").write_text(
        "from codedgrad.schemes import fractional\n"
        "def Mine(workers, option):\n"
        "    return fractional(workers, tolerance=option)\n"
    )
    said = run("--help").out
    assert max(map(len, said.splitlines())) <= 80
    for kind in ("sticky(factor, enter, leave, workers, always)", "spikes", "dead"):
        assert kind in said
    assert "codedgrad schemes lists the schemes" in said
    lines = "\n".join(line.strip() for line in said.splitlines())
    commands = re.findall(r"^codedgrad simulate ((?:.*\\\n)*.*)", lines, re.MULTILINE)
    assert commands[0] == "runs/first"  # tests/cli/test_paths.py has such a run
    assert len(commands) == 4
    for command in commands[1:]:
        shown = run(*shlex.split(command.replace("\\\n", " ")), "--steps", "10")
        assert shown.code == 0, shown.err
        assert "fastest" in shown.out.lower()


def test_the_table_says_all_that_its_numbers_hang_on(run: Run) -> None:
    shown = run("--delays", STICKY, "--steps", "20", "--seed", "3", "--latency", "0.01")
    assert shown.code == 0, shown.err
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "8 workers, parts: 8, 20 steps x 1 run, seed 3" in shown.out
    assert "workers [0]" in shown.out
    assert "stop rule: decodable; late workers finish the part in hand" in shown.out
    assert "latency 0.01 s; by events" in " ".join(shown.out.split())
    assert "sticky changes a law and none was given" in shown.out
    assert "step [s]" in shown.out
    assert "Fastest: " in shown.out
    assert shown.err == ""


def test_the_same_seed_gives_the_same_and_another_seed_does_not(run: Run) -> None:
    first, again = run(*QUICK, "--seed", "1").out, run(*QUICK, "--seed", "1").out
    other = run(*QUICK, "--seed", "2").out
    assert first == again
    assert first.replace("seed 1", "") != other.replace("seed 2", "")


def test_machines_get_the_numbers_of_the_table(run: Run) -> None:
    words = (*QUICK, "--runs", "4", "--delays", STICKY)
    said = json.loads(run(*words, "--json").out)
    scenario, results = said["scenario"], said["results"]
    assert (scenario["workers"], scenario["steps"], scenario["runs"]) == (8, 200, 4)
    plain = {"drain": False, "progress": True, "latency": 0.0, "network": None}
    assert scenario["machine"] == plain
    assert scenario["parts"] == {result["name"]: 8 for result in results}
    table = run(*words).out
    for result in results:
        (line,) = [one for one in table.splitlines() if one.startswith(result["name"])]
        cells = line.removeprefix(result["name"]).split()
        ratio = f"{result['ratio']:.3f}" if result is not results[0] else "1"
        assert cells[:4] == [
            f"{result['load']:.1f}x",
            f"{result['mean_seconds']:.3f}",
            f"{result['p99_seconds']:.3f}",
            ratio,
        ]
        assert float(cells[-1]) == 100 * result["exact"]
        assert result["rule"] == "decodable"
        assert not result["by_events"]
    assert results[1]["ratio_standard_error"] > 0
    assert results[1]["ratio_is_clear"]
    assert said["verdict"] in " ".join(table.split())


def test_the_bound_is_shown_when_asked_for(run: Run) -> None:
    schemes = ("uncoded(pieces=8)", "fractional(tolerance=1)", "ignore(count=3)")
    words = ["--delays", "AR", "--bound"]
    for scheme in schemes:
        words += ["--scheme", scheme]
    shown = run(*words)
    assert shown.code == 0, shown.err
    assert max(map(len, shown.out.splitlines())) <= 80
    said = " ".join(shown.out.split())
    assert "/fluid /whole" in said
    assert "whoever knows all delays beforehand" in said
    assert "the bounds know of no draining: they stop and send in no time" in said
    assert "* not comparable: its sums need not be exact" in said
    results = json.loads(run(*words, "--json").out)["results"]
    assert [result["bound_is_comparable"] for result in results] == [True, True, False]
    assert results[0]["fluid_ratio"] == pytest.approx(1.94, abs=0.005)
    for result in results:
        mark = "" if result["bound_is_comparable"] else "*"
        assert f"{result['fluid_ratio']:.3f}{mark}" in shown.out
        assert f"{result['whole_ratio']:.3f}{mark}" in shown.out
    assert results[2]["fluid_ratio"] < 1
    without = run("--delays", "AR", "--json", "--scheme", "uncoded").out
    assert json.loads(without)["results"][0]["fluid_ratio"] is None


@pytest.mark.parametrize("drain", ["--drain", "--no-drain"])
def test_no_exact_scheme_beats_the_bound(run: Run, drain: str) -> None:
    schemes = (
        "uncoded", "uncoded(pieces=3)", "fractional(1)", "cyclic(1)", "two_stage",
        "dynamic(4, 1)",
    )  # fmt: skip
    words = ["--delays", "shifted-exponential(floor=0.3, mean=1, fixed_floor=0.1)"]
    for scheme in schemes:
        words += ["--scheme", scheme]
    shown = run(*words, drain, "--steps", "40", "--runs", "2", "--bound", "--json")
    assert shown.code == 0, shown.err
    for result in json.loads(shown.out)["results"]:
        assert result["fluid_ratio"] >= result["whole_ratio"] >= 1, result["name"]


def test_a_calm_cluster_has_nothing_to_gain(run: Run) -> None:
    said = run(*QUICK, "--delays", "shifted-exponential(floor=1, mean=0.02)").out
    assert "Nothing to gain: uncoded is fastest" in said


def test_a_dead_worker_costs_the_uncoded_scheme_its_steps(run: Run) -> None:
    words = ("--steps", "20", "--delays", "dead(worker=3, step=5)")
    shown = run(*words)
    assert shown.code == 0, shown.err
    assert "uncoded gave up 75 % of its steps: worker 3 was dead" in shown.out
    assert "finished all of them" in shown.out
    first = json.loads(run(*words, "--json").out)["results"][0]
    assert first["gave_up"] == 0.75
    always = run("--steps", "5", "--delays", "dead(worker=0)", "--delays",
                 "dead(worker=1)", "--scheme", "uncoded", "--json")  # fmt: skip
    only = json.loads(always.out)["results"][0]
    assert only["mean_seconds"] is None
    assert only["exact"] == 0


def test_a_recording_sets_workers_and_steps(run: Run) -> None:
    shown = run("--delays", "AR", "--share", "0.5", "--no-drain")
    assert "4 workers, parts: 4, 44 steps x 1 run" in shown.out
    assert "50 % grows with the load" in shown.out
    assert "The times are those of AR." in shown.out


def test_a_scenario_file_is_run_and_flags_win(run: Run) -> None:
    file = str(ROOT / "examples" / "one-slow-node.toml")
    shown = run(file, "--steps", "5", "--runs", "2", "--no-drain", "--latency", "0")
    assert shown.code == 0, shown.err
    assert shown.out.startswith("One node is slow for a while, again and again\n8 work")
    assert "5 steps x 2 runs, seed 7" in " ".join(shown.out.split())
    assert "(2 runs)" in shown.out


def test_the_document_shows_what_the_commands_print(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    document = (ROOT / "docs" / "simulate.md").read_text()
    blocks = re.findall(
        r"```text\n\$ codedgrad simulate (.*?)\n((?!    ).*?)```", document, re.DOTALL
    )
    assert len(blocks) == 5
    for command, promised in blocks:
        said = run(*shlex.split(command.replace("\\\n", " "))).out
        assert promised.removeprefix("...\n").strip() in said


def test_a_plot_is_drawn(run: Run, tmp_path: Path) -> None:
    for name in ("times.png", "times.svg"):
        shown = run(*QUICK, "--plot", str(tmp_path / name))
        assert shown.code == 0, shown.err
        assert (tmp_path / name).stat().st_size > 5000
    assert b"PNG" in (tmp_path / "times.png").read_bytes()[:8]
    assert len(list(tmp_path.iterdir())) == 2


def test_traces_are_written_and_replay_to_the_same_decisions(
    run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "runs" / "first"
    schemes = ["uncoded", "cyclic(tolerance=1)", "cyclic(tolerance=1)"]
    words = [word for scheme in schemes for word in ("--scheme", scheme)]
    shown = run("--delays", "AR", "--steps", "3", "--trace", str(folder), *words)
    assert shown.code == 0, shown.err
    files = sorted(file.name for file in folder.iterdir())
    assert files == [
        "cyclic-tolerance=1-3.jsonl",
        "cyclic-tolerance=1.jsonl",
        "uncoded.jsonl",
    ]
    trace = read(folder / "cyclic-tolerance=1.jsonl")
    assert trace.header.driver == "simulator"
    assert replay(trace, build(trace.header.scheme, trace.header.workers)) is None
    assert [path.name for path in tmp_path.rglob(".*")] == []


def _bad() -> list[tuple[list[str], str]]:
    return [
        (["--scheme", "cyclik"], "error: there is no scheme 'cyclik'; try cyclic"),
        (
            ["--scheme", "cyclic(tolerence=1)"],
            "cyclic has no option tolerence; try tol",
        ),
        (["--scheme", "bernoulli(2, count=x)"], "bernoulli"),
        (["--scheme", "fractional(2)"], "fractional: tolerance + 1 = 3 must divide"),
        (["--delays", "sticky(factor"], "'sticky(factor' cannot be read; try a kind"),
        (["--delays", "sticki(factor=2)"], "there is no kind 'sticki'; try 'sticky'"),
        (["--delays", "none.csv"], "none.csv: is not there; try the folder of a run"),
        (["--delays", "AR", "--workers", "5"], "4 workers were recorded, 5 are asked"),
        (["--share", "0.5"], "--share: there is no recording"),
        (["--steps", "0"], "--steps: is 0; try a whole number from 1"),
        (["--runs", "0"], "--runs: is 0"),
        (["--seed", "-1"], "--seed: is -1"),
        (["--workers", "0"], "--workers: is 0"),
        (["--pieces", "0"], "--pieces: is 0"),
        (["--latency", "-1"], "--latency: is -1.0; try seconds from 0 to 8388608"),
        (["--latency", "nan"], "--latency: is nan"),
        (["none.toml"], "none.toml: cannot be read"),
        (["broken.toml"], "broken.toml: is not TOML: "),
        (["key.toml"], "key.toml: there is no key 'stepz'; try 'steps' of"),
        (["--plot", "times.gif"], "--plot times.gif: has an unknown ending"),
        (["--plot", "none/times.png"], "--plot none/times.png: cannot be written"),
        (["--trace", "key.toml"], "--trace key.toml: is a file; try a folder"),
        (["--trace", "key.toml/in"], "--trace key.toml/in: cannot be written"),
        (["--trace", "old"], "--trace old: uncoded.jsonl is there already; try"),
    ]


@pytest.mark.parametrize(("words", "sentence"), _bad(), ids=lambda x: str(x)[:40])
def test_bad_input_is_one_sentence_and_exit_code_2_and_writes_nothing(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.toml").write_text("steps = [")
    (tmp_path / "key.toml").write_text("stepz = 3")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "uncoded.jsonl").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    plot = [] if "--plot" in words else ["--plot", "times.png"]
    trace = [] if "--trace" in words else ["--trace", "new"]
    shown = run(*words, *plot, *trace)
    assert shown.code == 2
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert sentence in shown.err
    assert sorted(tmp_path.rglob("*")) == before


def test_ctrl_c_during_the_progress_bar_is_one_line_and_leaves_no_file(
    tmp_path: Path,
) -> None:
    root, end = pty.openpty()
    command = [sys.executable, "-m", "codedgrad", "simulate", "--steps", "200000"]
    process = subprocess.Popen(
        [*command, "--plot", "times.png", "--trace", "runs"],
        cwd=tmp_path,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=end,
        preexec_fn=_hears_ctrl_c,
    )
    os.close(end)
    try:
        seen = _read_until(root, b"simulating")
        process.send_signal(signal.SIGINT)
        seen += _read_until(root, b"")
        assert process.wait(timeout=30) == 130
    finally:
        process.kill()
        process.wait()
        os.close(root)
    assert b"interrupted: nothing was written" in seen
    assert b"Traceback" not in seen
    assert process.stdout is not None
    assert process.stdout.read() == b""
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []


def _hears_ctrl_c() -> None:
    """Undo what a shell does to its background jobs, of which this may be one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _read_until(terminal: int, wanted: bytes) -> bytes:
    """Read what a terminal shows up to a word, or to its end."""
    seen = b""
    while not wanted or wanted not in seen:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # Linux says so when the other side has closed
            break
        if not more:
            break
        seen += more
    return seen


def test_no_bar_where_there_is_no_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["codedgrad.cli.bars"]
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    assert run("--steps", "5").err == ""


def test_a_terminal_that_knows_ascii_only_is_no_reason_to_crash() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "codedgrad", "simulate", *QUICK],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "+- its standard error" in shown.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--latency", "1e300"),
        ("--trace", ""),
        ("--trace", "x" * 300),
        ("--plot", "x" * 300 + ".png"),
        ("--delays", "sticky(factor=10, enter=0.01)"),
        ("--scheme", "erasurehead(2, budget=1e300)"),
    ],
    ids=lambda words: words[0],
)
def test_what_cannot_work_is_refused_in_one_line(
    run: Run, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run(*QUICK, *words)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_workers_that_take_no_time_at_all_cannot_be_compared(run: Run) -> None:
    shown = run(*QUICK, "--delays", "shifted-exponential(floor=0, mean=0)")
    assert shown.code == 0, shown.err
    assert re.search(r"^fractional\S+ +2.0x +0.000 +0.000 +- +2.00", shown.out, re.M)


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        shown = subprocess.run(
            [sys.executable, "-m", "codedgrad", "schemes"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert shown.stderr.count("\n") <= 1, shown.stderr
    assert shown.returncode in (2, 120)  # 120: noticed only when the interpreter ends
