"""`codedgrad doctor`, as a stranger meets it."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from codedgrad.cli import doctor as verb
from codedgrad.cli import main
from codedgrad.engines.doctor.examination import Finding, Looking


@dataclass
class Shown:
    code: int | str | None
    out: str
    err: str


Run = Callable[..., Shown]

FOUND = (
    Finding("local", "ok", "one exact step by 2 workers in 0.1 s", seconds=0.1),
    Finding("ray", "missing", "not installed", "pip install 'codedgrad[ray]'"),
    Finding("mpi", "broken", "it said \x1b[31m" + 30 * "something ", "", detail="all"),
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Shown:
        monkeypatch.setattr(sys, "argv", ["codedgrad", *words])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Shown(end.value.code or 0, shown.out, shown.err)

    return run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Looking]:
    """Answer with `FOUND`; return what was asked."""
    asked: list[Looking] = []

    def findings(looking: Looking, told: Callable[[str], None]) -> Iterator[Finding]:
        asked.append(looking)
        for finding in FOUND:
            told(finding.name)
            yield finding

    monkeypatch.setattr(sys.modules[verb.__module__], "findings", findings)
    return asked


def test_this_machine_is_examined(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    shown = run("doctor", "--limit", "100")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0].startswith("codedgrad ")
    rows = {line.split()[0]: line.split()[1] for line in lines[3:] if line[0] != " "}
    assert list(rows) == ["local", "torch", "torchrun", "ray", "mpi", "lab"]
    assert rows["local"] == rows["torch"] == "ok"
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("asked")
def test_a_row_is_a_state_a_reason_and_a_command(run: Run) -> None:
    shown = run("doctor")
    assert shown.code == 0
    assert (
        "\nlocal    ok      one exact step by 2 workers in 0.1 s\n"
        "ray      missing not installed\n"
        "                 pip install 'codedgrad[ray]'\n"
        "mpi      broken  it said something"
    ) in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.usefixtures("asked")
def test_machines_get_the_same_and_all_that_was_said(run: Run) -> None:
    told = json.loads(run("doctor", "--json").out)
    assert told["works"] is True
    local, ray, mpi = told["findings"]
    assert (local["seconds"], mpi["detail"]) == (0.1, "all")
    assert ray == {
        "name": "ray",
        "state": "missing",
        "reason": "not installed",
        "advice": "pip install 'codedgrad[ray]'",
        "seconds": None,
        "detail": "",
    }


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_without_the_local_engine_the_exit_code_is_1(
    words: tuple[str, ...],
    run: Run,
    asked: list[Looking],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "FOUND", (Finding("local", "broken", "no"),))
    shown = run("doctor", *words)
    assert (shown.code, len(asked)) == (1, 1)


def test_options_are_passed_on(run: Run, asked: list[Looking]) -> None:
    run("doctor")
    run("doctor", "--try", "--address", "head:6379", "--limit", "5")
    assert asked == [Looking(None, False, 60.0), Looking("head:6379", True, 5.0)]


def test_a_wrong_address_is_bad_input(run: Run, asked: list[Looking]) -> None:
    shown = run("doctor", "--address", "nowhere")
    assert (shown.code, shown.out, asked) == (2, "", [])
    assert shown.err == "error: --address: is 'nowhere'; try HOST:PORT, or auto\n"
