"""What `build` finds besides the schemes of codedgrad, and what it refuses to run.

The command line's side of it, with packages and files, is in `tests/cli`.
"""

import sys
from pathlib import Path

import pytest

import codedgrad as cg
from codedgrad.core import StepStarted
from codedgrad.errors import InvalidScheme
from codedgrad.schemes import SCHEMES, build, families
from codedgrad.schemes.own_schemes import is_file, registered
from codedgrad.trace import Header, Recorder, read

EXECUTED = "raise AssertionError('executed')\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a scheme in a file that must not be executed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("mine.py").write_text(EXECUTED)
    return "./mine.py:Mine"


def test_only_a_caller_that_says_so_has_a_file_executed(file: str) -> None:
    with pytest.raises(InvalidScheme, match="only the command line runs one"):
        build(file, workers=4)
    with pytest.raises(InvalidScheme, match="only the command line runs one"):
        build(f"{file}(x=2)", workers=4, parts=8)
    with pytest.raises(InvalidScheme, match=r"mine\.py cannot be run.*executed"):
        build(file, workers=4, run_files=True)


def test_a_trace_cannot_have_a_file_executed(file: str, tmp_path: Path) -> None:
    with Recorder("run.jsonl", Header(scheme=file, workers=4, parts=4)) as record:
        record(StepStarted(0, 0.0), [])
    header = read("run.jsonl").header
    with pytest.raises(InvalidScheme, match="importing it in Python"):
        build(header.scheme, header.workers)


def test_training_says_how_to_use_a_file(file: str) -> None:
    with pytest.raises(InvalidScheme, match="importing it in Python, or registering"):
        cg.torch.train(lambda: None, scheme=file, workers=2)  # type: ignore[arg-type,return-value]


def test_names_are_those_of_codedgrad_and_of_packages() -> None:
    assert list(families()) == [*SCHEMES, *registered()]
    assert len(families()) == len(list(families()))
    assert 3 not in families()
    with pytest.raises(KeyError):
        families()["absent"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mine.py", True),
        ("./mine.py:Mine", True),
        ("/a b/mine.py:Mine", True),
        ("mine.py:", False),
        ("mine.pyx:Mine", False),
        ("mine", False),
        ("mine.py:Mine(1)", False),
    ],
)
def test_a_file_is_told_from_a_name(name: str, expected: bool) -> None:
    assert is_file(name) is expected


def test_a_scheme_that_is_not_installed_is_said_to_be_one_of_a_package() -> None:
    with pytest.raises(InvalidScheme, match="or installing the package that registers"):
        build("speculative(copies=2)", workers=4)
