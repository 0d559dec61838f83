"""The one line of a root that a signal has stopped, and who may catch the exception."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from codedgrad.engines import Here
from codedgrad.torch import Checkpoints, Job, train
from codedgrad.torch.signals import Interrupted


def job() -> Job:
    x = torch.linspace(0, 1, 8).reshape(8, 1)
    return Job(nn.Linear(1, 1), nn.MSELoss(), (x, 2 * x), batch_size=4)


def run(
    *numbers: int,
    steps: int = 2,
    is_taken: bool = False,
    engine: Any = "here",
    **options: Any,
) -> None:
    """Train, and send signals after so many steps, or after the next gradient."""
    with train(job, workers=2, engine=engine, **options) as coded:
        for step in coded.steps(5):
            if is_taken:
                coded.backward()
            if step == steps:
                for number in numbers:
                    signal.raise_signal(number)
            if not is_taken:
                coded.backward()


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
def test_the_line_names_the_signal_the_steps_and_the_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, name: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(number, run_dir=tmp_path)
    assert caught.value.code == 128 + number
    file = tmp_path / "checkpoints" / "step-00000002.safetensors"
    assert file.exists()
    assert capsys.readouterr().err == (
        f"codedgrad: stopped by {name} after 2 steps; checkpoint {file}; "
        'go on with resume="auto"\n'
    )


def test_a_step_that_has_its_gradient_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(signal.SIGINT, steps=0, is_taken=True, run_dir=tmp_path)
    file = tmp_path / "checkpoints" / "step-00000001.safetensors"
    assert f"after 1 step; checkpoint {file}; " in capsys.readouterr().err


def test_a_second_ctrl_c_leaves_an_older_checkpoint_which_is_the_one_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(
            signal.SIGINT,
            signal.SIGINT,
            steps=3,
            is_taken=True,
            run_dir=tmp_path,
            checkpoints=Checkpoints(seconds=None, steps=2),
        )
    file = tmp_path / "checkpoints" / "step-00000002.safetensors"
    said = f"Ctrl-C after 3 steps; checkpoint of 2 steps {file}; go on with"
    assert said in capsys.readouterr().err


def test_without_a_folder_the_line_says_that_nothing_was_saved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(signal.SIGINT)
    assert capsys.readouterr().err == (
        "codedgrad: stopped by Ctrl-C after 2 steps; nothing was saved: the run has "
        "no run_dir\n"
    )


class Slow(Here):
    """Ctrl-C comes while the workers start."""

    def start(self, *given: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        super().start(*given, **options)


def test_ctrl_c_while_the_workers_start_is_one_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(engine=Slow(), run_dir=tmp_path)
    assert capsys.readouterr().err == (
        "codedgrad: stopped by Ctrl-C before the first step; there is no checkpoint in "
        f"{tmp_path} yet\n"
    )


def test_a_run_that_goes_on_and_is_stopped_at_its_start_names_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(run_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(engine=Slow(), run_dir=tmp_path, resume=True)
    file = tmp_path / "checkpoints" / "step-00000005.safetensors"
    assert f"after 5 steps; checkpoint {file}; " in capsys.readouterr().err


def test_every_root_of_a_process_says_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_both() -> None:
        with (
            train(job, workers=1, engine="here", run_dir=tmp_path / "one") as one,
            train(job, workers=1, engine="here", run_dir=tmp_path / "other"),
        ):
            for _ in one.steps(1):
                one.backward()
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_both()
    other_line, one_line = capsys.readouterr().err.splitlines()
    assert f"no checkpoint in {tmp_path / 'other'} yet" in other_line
    assert "one/checkpoints/step-00000001.safetensors" in one_line


def test_an_end_that_no_signal_has_caused_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run()
    with pytest.raises(SystemExit), train(job, workers=1, engine="here"):
        sys.exit(3)
    assert capsys.readouterr().err == ""


def test_at_a_prompt_ctrl_c_is_no_exit_that_would_end_the_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(Interrupted) as caught:
        run(signal.SIGINT)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert not isinstance(caught.value, SystemExit)
    assert "stopped by Ctrl-C after 2 steps" in capsys.readouterr().err


CATCHES = """
import signal, sys, torch
from torch import nn
import codedgrad as cg

def job():
    x = torch.ones(4, 1)
    return cg.torch.Job(nn.Linear(1, 1), nn.MSELoss(), (x, x), batch_size=4)

try:
    with cg.torch.train(job, workers=1, engine="here") as coded:
        for step in coded.steps(5):
            coded.backward()
            if step == 1:
                signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("caught")
"""


def test_a_script_that_catches_keyboard_interrupt_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CATCHES],
        capture_output=True,
        text=True,
        # a job in the background may have been started with Ctrl-C ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout) == (0, "caught\n")
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "codedgrad: stopped by Ctrl-C after 2 steps; nothing was saved: the run has "
        "no run_dir"
    )
