"""The demo, as a stranger meets it."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from codedgrad.cli import main
from codedgrad.cli.demo import _times, _waiting
from codedgrad.errors import InvalidData
from codedgrad.schemes import build
from codedgrad.torch.pictures import FASHION, digits, fashion_mnist, pictures
from codedgrad.trace import read_run

PATIENCE = 60.0  # seconds; only a hang takes so long


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
) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Shown:
        monkeypatch.setattr(sys, "argv", ["codedgrad", *words])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Shown(end.value.code or 0, shown.out, shown.err)

    return run


SMALL = ("demo", "--workers", "4", "--steps", "6")


def test_it_is_a_command_of_the_environment_and_a_module() -> None:
    for command in (
        [str(Path(sys.executable).with_name("codedgrad"))],
        [sys.executable, "-m", "codedgrad"],
    ):
        shown = subprocess.run(
            [*command, "demo", "--help"], capture_output=True, text=True, timeout=60
        )
        assert shown.returncode == 0
        assert "Example: codedgrad demo" in shown.stdout


def test_it_trains_twice_and_leaves_two_runs_and_a_page(run: Run) -> None:
    shown = run(*SMALL)
    assert shown.code == 0
    assert all(len(line) <= 80 for line in shown.out.splitlines()[3:13])
    for word in (
        "waiting for all",
        "auto",
        "mean time per step [s]",
    ):
        assert word in shown.out
    [folder] = Path("runs").iterdir()
    waiting, coded = (read_run(folder / name) for name in ("waiting", "coded"))
    assert [line.step for line in waiting.steps] == list(range(6))
    # the same network, parts and seed, and an exact scheme: the same to rounding
    losses = [[line.loss for line in found.steps] for found in (waiting, coded)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert str(folder / "report.html") in shown.out


@pytest.mark.long
def test_for_machines_it_is_json_alone(run: Run) -> None:
    shown = run(*SMALL, "--json", "--no-kill", "--run-dir", "here", "--seed", "3")
    facts = json.loads(shown.out)
    assert facts["seed"] == 3
    assert [found["scheme"] for found in facts["runs"]] == [
        "uncoded(pieces=8)",
        "auto",
    ]
    waiting, coded = facts["runs"]
    for found in facts["runs"]:
        assert found["off single-process gradients"] < 1e-5
    assert waiting["parts computed per step"] == 4 * 8
    assert waiting["messages per step"] == 4
    assert coded["parts computed per step"] >= 4 * 8
    assert Path(facts["report"]) == Path("here/report.html")


@pytest.mark.parametrize(
    ("scheme", "waiting"),
    [
        ("fractional(1)", "uncoded"),
        ("fractional(1, pieces=3)", "uncoded(pieces=3)"),
        ("auto(pieces=5)", "uncoded(pieces=5)"),
    ],
)
def test_waiting_for_all_has_as_many_parts_as_the_other_scheme(
    scheme: str, waiting: str
) -> None:
    assert _waiting(build(scheme, 4)).name == waiting


def test_a_change_of_delays_alone_changes_the_usual_law() -> None:
    law, times = _times(["slow(worker=1, factor=10)"], workers=4, steps=3, seed=0)
    usual, calm = _times(["shifted-exponential(floor=0.08, mean=0.02)"], 4, 3, 0)
    assert str(law) == f"{usual}; slow: worker 1, 10 x from step 0 on"
    np.testing.assert_allclose(times.unit, calm.unit * [1, 10, 1, 1], rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--scheme fractionl(1)", "there is no scheme 'fractionl'"),
        ("--workers 1", "--workers"),
        ("--workers 7 --scheme fractional(1)", "must divide workers = 7"),
        ("--steps 0", "--steps"),
        ("--data nowhere", "digits, fashion-mnist, or a folder"),
        ("--delays sleepy", "there is no kind 'sleepy'"),
        ("--run-dir .", "is there already"),
        ("--code cyclic", "No such option: --code"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    run: Run, words: str, why: str
) -> None:
    Path("something").touch()
    shown = run("demo", *words.split())
    assert (shown.code, shown.out) == (2, "")
    assert why in shown.err
    assert len(shown.err.splitlines()) == 1
    assert [path.name for path in Path().iterdir()] == ["something"]


def processes(session: int) -> list[int]:
    """Return those of a session, and those started by them in sessions of their own."""
    parents, found = {}, {session}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            parents[int(path.parent.name)] = int(fields[1])
    for _ in range(3):
        found |= {pid for pid, parent in parents.items() if parent in found}
    return sorted(found & set(parents))


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_stopped_it_leaves_nothing_running_and_a_checkpoint(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "codedgrad", *SMALL[:-1], "100000"]
    process = subprocess.Popen(
        [*command, "--run-dir", "run"],
        cwd=tmp_path,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # if ignored
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        log = tmp_path / "run" / "waiting" / "steps.jsonl"
        until(lambda: log.exists() and log.read_text().count("\n") > 3)
        started = processes(process.pid)
        assert len(started) == 6  # itself, the nursery, four workers
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code
        assert b"Traceback" not in err
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    finally:
        process.kill()
        process.communicate()
    [checkpoint] = (tmp_path / "run" / "waiting" / "checkpoints").iterdir()
    steps = read_run(tmp_path / "run" / "waiting").steps
    assert int(checkpoint.stem.removeprefix("step-")) == steps[-1].step + 1


# -- what it trains on -----------------------------------------------------------------


def test_digits_are_cut_in_two_without_overlap() -> None:
    found = digits()
    images = torch.cat([found.train[0], found.test[0]])
    assert images.shape == (1797, 64)
    assert images.min() == 0
    assert images.max() == 1
    assert len(found.test[1]) == 359
    assert sorted(set(found.train[1].tolist())) == list(range(10))


def idx(path: Path, array: np.ndarray, kind: int = 8) -> None:
    head = bytes((0, 0, kind, array.ndim))
    shape = np.array(array.shape, dtype=">u4").tobytes()
    path.write_bytes(gzip.compress(head + shape + array.astype(np.uint8).tobytes()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, count in (("train", 20), ("t10k", 6)):
        idx(
            tmp_path / f"{name}-images-idx3-ubyte.gz",
            rng.integers(0, 256, (count, 4, 3)),
        )
        idx(tmp_path / f"{name}-labels-idx1-ubyte.gz", rng.integers(0, 10, count))
    return tmp_path


def test_pictures_in_a_folder_are_read(folder: Path) -> None:
    found = pictures(str(folder))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 4, 3)).reshape(20, 12)
    np.testing.assert_allclose(found.train[0].numpy() * 255, images, rtol=1e-6)
    assert found.train[1].tolist() == rng.integers(0, 10, 20).tolist()
    assert found.test[0].shape == (6, 12)


@pytest.mark.parametrize("how", ["missing", "torn", "other kind", "lengths", "empty"])
def test_a_folder_that_will_not_do_is_refused(folder: Path, how: str) -> None:
    labels = folder / "train-labels-idx1-ubyte.gz"
    match how:
        case "missing":
            labels.unlink()
        case "torn":
            labels.write_bytes(labels.read_bytes()[:-9])
        case "other kind":
            idx(labels, np.zeros(20), kind=13)
        case "lengths":
            idx(labels, np.zeros(19))
        case "empty":
            labels.write_bytes(b"")
    with pytest.raises(InvalidData, match=f"--data {folder}.*; try a folder"):
        fashion_mnist(folder)


@pytest.mark.skipif(
    not FASHION.is_dir(), reason="Debian's dataset-fashion-mnist is not installed"
)
def test_fashion_mnist_of_debian_is_read() -> None:
    found = pictures("fashion-mnist")
    assert found.train[0].shape == (60_000, 784)
    assert found.test[0].shape == (10_000, 784)
    assert torch.bincount(found.test[1]).tolist() == [1000] * 10
