"""`codedgrad runs`, on folders that are whole, in use, left behind and damaged."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codedgrad.cli import main
from codedgrad.trace import Lock, Manifest, StepLine, StepLog, write_manifest
from codedgrad.trace.listing import list_runs

HOST = os.uname().nodename


@dataclass
class Shown:
    code: int | str | None
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines() if line]

    @property
    def runs(self) -> list[dict[str, Any]]:
        return json.loads(self.out)["runs"]


Run = Callable[..., Shown]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> Shown:
        monkeypatch.setattr(sys, "argv", ["codedgrad", "runs", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Shown(end.value.code or 0, shown.out, shown.err)

    return run


def make(path: Path, steps: int = 3, label: str = "") -> Path:
    path.mkdir(parents=True)
    manifest = Manifest(
        scheme="cyclic(tolerance=1)",
        label=label,
        workers=4,
        parts=8,
        engine="local",
        seed=0,
        samples=64,
        batch_size=16,
        steps_per_epoch=4,
    )
    write_manifest(path, manifest)
    with StepLog(path) as log:
        for step in range(steps):
            log(StepLine(step=step, at=step, seconds=0.5, loss=1 / (step + 1)))
    return path


def shelve(path: Path, step: int, size: int) -> None:
    (path / "checkpoints").mkdir(exist_ok=True)
    file = path / "checkpoints" / f"step-{step:08d}.safetensors"
    file.write_bytes(b"x" * size)


def test_a_run_that_has_ended(run: Run, tmp_path: Path) -> None:
    folder = make(tmp_path / "a")
    shelve(folder, 2, 10)
    shelve(folder, 3, 1500)
    with Lock(folder):
        pass
    shown = run(tmp_path)
    assert shown.code == 0
    header, row = shown.rows
    assert header[:2] == ["run", "scheme"]
    assert row[:8] == ["a", "cyclic(tolerance=1)", "local", "4", "8", "3", "3", "(1.5"]
    assert row[9] == "0.3333"
    assert row[-1] == "ended"


def test_for_machines(run: Run, tmp_path: Path) -> None:
    folder = make(tmp_path / "deep" / "er" / "a", label="mine")
    shelve(folder, 7, 10)  # the step lines after a checkpoint may be lost, not before
    with Lock(folder) as lock:
        lock.update(step=7)
        lock.close("stopped")
    [told] = run(tmp_path, "--json").runs
    assert told["path"] == str(folder)
    assert (told["label"], told["scheme"]) == ("mine", "cyclic(tolerance=1)")
    assert (told["engine"], told["workers"], told["parts"]) == ("local", 4, 8)
    assert (told["steps"], told["checkpoint"], told["checkpoint_bytes"]) == (7, 7, 10)
    assert told["bytes"] == sum(f.stat().st_size for f in folder.rglob("*.*"))
    assert (told["state"], told["root"]["pid"]) == ("stopped", os.getpid())
    assert (told["status"]["step"], told["problems"]) == (7, [])


def test_the_folder_itself_may_be_a_run(run: Run, tmp_path: Path) -> None:
    folder = make(tmp_path / "a")
    _, row = run(folder).rows
    assert (row[0], row[-1]) == (str(folder), "unlocked")


def test_runs_are_found_three_folders_below_and_not_deeper(
    run: Run, tmp_path: Path
) -> None:
    make(tmp_path / "b" / "c" / "d")
    make(tmp_path / "1" / "2" / "3" / "4")
    make(tmp_path / ".hidden" / "a")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert [row[0] for row in run(tmp_path).rows[1:]] == ["b/c/d"]


def test_a_root_that_is_alive_is_running(run: Run, tmp_path: Path) -> None:
    folder = make(tmp_path / "a")
    with Lock(folder, every=0.01):
        shown = run(tmp_path, "--watch", 60)
    assert shown.rows[1][-5:] == ["running", "on", f"{HOST},", "pid", str(os.getpid())]


def test_a_heartbeat_that_does_not_move_is_not_called_dead(
    run: Run, tmp_path: Path
) -> None:
    folder = make(tmp_path / "a")
    with Lock(folder, stale=1e6, every=1e5) as lock:
        lock.update(step=3)
        shown = run(tmp_path, "--watch", 0)
        assert shown.rows[1][-1] == "silent"
        sentence = f"a: held by process {os.getpid()} on {HOST}, since 2"  # a year
        assert sentence in shown.out
        assert "last heartbeat: beat 1 at step 0; it may have been killed" in shown.out


def test_a_root_that_was_killed_here_is_gone_by_the_kernels_word(
    run: Run, tmp_path: Path
) -> None:
    folder = make(tmp_path / "a")
    program = (
        "import os, signal, sys; from pathlib import Path;"
        "from codedgrad.trace import Lock; Lock(Path(sys.argv[1]));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", program, folder])
    assert ended.returncode == -signal.SIGKILL
    shown = run(tmp_path, "--watch", 1000)  # nothing to be watched
    assert shown.rows[1][-1] == "gone"
    assert "ended without a word; last heartbeat: beat 1 at step 0" in shown.out


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("run.json", "{", "run.json does not describe a run"),
        ("run.json", "[" * 100_000, "run.json does not describe a run"),
        ("steps.jsonl", '{"step": 1}\n', "steps.jsonl is damaged at its end"),
        ("steps.jsonl", "\x00" * 5000 + "\n", "steps.jsonl is damaged at its end"),
        ("lock.json", "", "lock.json is damaged"),
        ("lock.json", '{"kind": "a\\u001b[31m"}', "lock.json is damaged"),
        ("status.json", "no", "status.json is damaged"),
    ],
)
def test_a_damaged_folder_is_listed_with_what_is_wrong(
    run: Run, tmp_path: Path, file: str, text: str, said: str
) -> None:
    make(tmp_path / "whole")
    Lock(make(tmp_path / "spoilt")).close()
    (tmp_path / "spoilt" / file).write_text(text)
    shown = run(tmp_path, "--watch", 0)
    assert (shown.code, shown.err) == (0, "")
    assert [row[0] for row in shown.rows[1:3]] == ["spoilt", "whole"]
    assert f"spoilt: {said}" in shown.out
    assert len(shown.rows) == 4
    assert run(tmp_path, "--json", "--watch", 0).runs[0]["problems"]


@pytest.mark.parametrize("file", ["run.json", "steps.jsonl", "lock.json"])
def test_a_file_that_cannot_be_read_is_said(
    run: Run, tmp_path: Path, file: str
) -> None:
    folder = make(tmp_path / "a")
    (folder / file).unlink(missing_ok=True)
    (folder / file).symlink_to(file)  # leads to itself
    shown = run(tmp_path, "--watch", 0)
    assert (shown.code, shown.err) == (0, "")
    assert f"a: {file}" in shown.out
    assert "Too many levels of symbolic links" in shown.out


def test_a_run_without_its_description_is_listed(run: Run, tmp_path: Path) -> None:
    folder = make(tmp_path / "a", steps=5)
    (folder / "run.json").unlink()
    shown = run(tmp_path)
    assert shown.rows[1][:6] == ["a", "?", "?", "?", "?", "5"]
    assert "a: run.json cannot be read: No such file" in shown.out


def test_names_and_labels_cannot_draw_on_the_terminal(run: Run, tmp_path: Path) -> None:
    make(tmp_path / "a\x1b[2J\nb", label="\x1b]0;title\x07")
    shown = run(tmp_path)
    assert "\x1b" not in shown.out
    assert len(shown.rows) == 2


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", steps=4)
    with (folder / "steps.jsonl").open("ab") as file:
        file.write(b'{"step": 4, "at"')
    [listed] = list_runs(tmp_path)
    assert (listed.steps, listed.loss) == (4, 0.25)


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", steps=0)
    steps = folder / "steps.jsonl"
    with steps.open("r+b") as file:
        file.truncate(10**12)  # a hole, which reading would take for ever
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"step": 41, "at": 1.0, "seconds": 0.1, "loss": 2.5}\n')
    [listed] = list_runs(tmp_path)
    assert (listed.steps, listed.loss, listed.problems) == (42, 2.5, ())
    steps.write_bytes(b"\n" + b" " * 10**6 + b'{"step":1,"at":1.0,"seconds":1.0}\n')
    assert list_runs(tmp_path)[0].steps == 2  # a line longer than a block
    with steps.open("r+b") as file:
        file.truncate(10**12)
    [listed] = list_runs(tmp_path)
    assert "have no line of a step" in listed.problems[0]


def test_a_folder_without_runs_is_one_sentence(run: Run, tmp_path: Path) -> None:
    shown = run(tmp_path)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == f"no run in {tmp_path}, nor in folders up to three below\n"
    assert run(tmp_path, "--json").runs == []


def test_a_folder_that_is_not_there_is_refused(run: Run, tmp_path: Path) -> None:
    shown = run(tmp_path / "nowhere")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: runs: there is no folder")
    assert shown.err.count("\n") == 1
    (tmp_path / "runs").mkdir()
    shown = run(tmp_path / "rusn")
    assert f"(did you mean {tmp_path / 'runs'}?)" in shown.err


def test_help_has_an_example(run: Run) -> None:
    shown = run("--help")
    assert shown.code == 0
    assert "Example: codedgrad runs" in shown.out
