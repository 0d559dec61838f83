"""The list of schemes, as a stranger meets it."""

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from codedgrad.cli import main
from codedgrad.schemes import SCHEMES


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


def test_every_scheme_is_listed_with_its_options_and_a_line(run: Run) -> None:
    shown = run("schemes")
    assert shown.code == 0
    for name in SCHEMES:
        assert f"\n{name}" in "\n" + shown.out
    assert "cyclic(tolerance, rule=decodable, pieces=1, parts=None)" in shown.out
    assert "Any TOLERANCE workers may be late" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_is_explained_and_its_example_works(run: Run, name: str) -> None:
    shown = run("schemes", name)
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= 80
    command = shown.out.partition("Example\n")[2].replace("\\\n", "")
    program, *words = shlex.split(command)
    assert program == "codedgrad"
    result = run(*words, "--no-drain", "--steps", "20")
    assert result.code == 0, result.err
    assert name in result.out


def test_required_options_come_first_with_their_meaning(run: Run) -> None:
    said = run("schemes", "clustered").out
    assert said.index("clusters (required)") < said.index("rule (default decodable)")
    assert "How many clusters; must divide `workers`." in said
    assert "static clusters (GC-SC). Ozfatura, Gunduz, Ulukus" in said


def test_machines_get_the_same(run: Run) -> None:
    listed = json.loads(run("schemes", "--json").out)
    assert [one["name"] for one in listed] == list(SCHEMES)
    (cyclic,) = json.loads(run("schemes", "cyclic", "--json").out)
    assert cyclic in listed
    assert cyclic["options"][0] == {
        "name": "tolerance",
        "meaning": "Late workers survived.",
        "required": True,
        "default": None,
    }


def test_an_unknown_scheme_is_answered_with_the_nearest(run: Run) -> None:
    shown = run("schemes", "cyclik")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err == "error: there is no scheme 'cyclik'; try cyclic\n"
    assert "try one of auto, uncoded, ignore" in run("schemes", "zzz").err
