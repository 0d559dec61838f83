"""The demo, as a stranger meets it."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from codedgrad.cli import main


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


def test_it_is_a_command_of_the_environment_and_a_module() -> None:
    for command in (
        [str(Path(sys.executable).with_name("codedgrad"))],
        [sys.executable, "-m", "codedgrad"],
    ):
        shown = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=60
        )
        assert shown.stdout == "codedgrad 0.1.0\n", shown.stderr


def test_help_names_what_it_does_and_an_example(run: Run) -> None:
    shown = run("demo", "--help")
    assert shown.code == 0
    assert "Example: codedgrad demo --workers 12 --tolerance 3" in shown.out
    assert "no model is trained" in shown.out


def test_the_example_of_the_help_works_and_fits_80_columns(run: Run) -> None:
    shown = run("demo", "--workers", "12", "--tolerance", "3", "--late", "0,1,2")
    assert shown.code == 0, shown.err
    assert "without [0, 1, 2]" in shown.out
    assert "(exact)" in shown.out
    assert "no training, no worker processes" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_the_numbers_for_machines_are_those_of_the_algebra(run: Run) -> None:
    result = json.loads(run("demo", "--json", "--seed", "3").out)
    assert result["seed"] == 3
    assert len(result["late"]) == 2
    assert len(result["weights"]) == 6
    ours, draw = result["trials"]
    assert ours["sets"] == 28
    assert ours["worst_residual"] < 1e-20
    assert ours["worst_error"] < 1e-12
    assert ours["exact_of_one_more"] == 0
    assert ours["worst_error_float32"] < draw["worst_error_float32"]
    assert run("demo", "--json", "--seed", "3").out == json.dumps(result) + "\n"


def test_too_many_late_workers_are_called_so(run: Run) -> None:
    shown = run("demo", "--late", "0,1,2,3", "--code", "clustered", "--clusters", "2")
    assert shown.code == 0, shown.err
    assert "(too many late)" in shown.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--code", "fractional"],
            "error: fractional: tolerance + 1 = 3 must divide workers = 8; "
            "try tolerance in [0, 1, 3, 7]",
        ),
        (
            ["--late", "one"],
            "error: --late one does not name workers; "
            "try different worker numbers from 0 to 7, such as 1,4",
        ),
        (
            ["--late", "8"],
            "error: --late 8 does not name workers; "
            "try different worker numbers from 0 to 7, such as 1,4",
        ),
        (
            ["--code", "clustered", "--clusters", "3"],
            "error: --clusters 3 --tolerance 2 do not fit; "
            "try clusters that divide 8, of more workers than the tolerance",
        ),
        (
            ["--tolerance", "-1"],
            "error: cyclic: tolerance = -1 is out of range; "
            "try a whole number from 0 to 7",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    run: Run, words: list[str], sentence: str
) -> None:
    shown = run("demo", *words)
    assert shown.code == 2
    assert shown.err == sentence + "\n"
    assert shown.out == ""


def test_words_that_are_no_numbers_are_exit_code_2_without_a_traceback(
    run: Run,
) -> None:
    shown = run("demo", "--tolerance", "two")
    assert shown.code == 2
    assert "Traceback" not in shown.err
