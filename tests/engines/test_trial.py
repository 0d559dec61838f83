"""The step by which an engine is tried."""

import json
import subprocess
import sys

import numpy as np
import pytest

from codedgrad.engines import Here
from codedgrad.engines.doctor import trial


def test_a_wrong_sum_is_not_taken_for_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    right = trial._gradient

    def wrong(parameters: np.ndarray, part: int, step: int) -> object:
        loss, samples, gradient = right(parameters, part, step)
        return loss, samples, gradient * (1 + 1e-15)

    monkeypatch.setattr(trial, "_gradient", wrong)
    with pytest.raises(ArithmeticError, match="the step gave"):
        trial.take_a_step(Here())


def test_it_is_run_as_a_module_and_prints_one_line_for_machines() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "codedgrad.engines.doctor.trial", "local"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert json.loads(shown.stdout)["seconds"]


def test_a_problem_is_printed_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(engine: object) -> float:
        raise ArithmeticError("2 + 2 = 5")

    monkeypatch.setattr(trial, "take_a_step", wrong)
    assert trial.main(["local"]) == 1
    assert json.loads(capsys.readouterr().out) == {"problem": "2 + 2 = 5"}


@pytest.mark.parametrize(("words", "code"), [([], 2), (["--fast"], 2), (["--help"], 0)])
def test_without_an_engine_it_says_how_to_name_one(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trial.main(words) == code
    shown = capsys.readouterr()
    assert (shown.err if code else shown.out).startswith("usage: python -m ")
