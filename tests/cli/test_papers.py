"""`codedgrad papers`, as a stranger meets it; what is in the papers is tested there."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from codedgrad.cli import main
from codedgrad.papers import PAPERS, Effort, Exhibit, Paper, Recipe, Table
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.paper import Column

PATIENCE = 60.0  # seconds; only a hang takes so long


@dataclass
class Shown:
    code: int | str | None
    out: str
    err: str


Run = Callable[..., Shown]


def recipe(name: str) -> Recipe:
    def make(effort: Effort) -> Exhibit:
        effort.advance(0.7)
        effort.advance(0.7)  # more than there is
        columns = (
            Column("scheme"),
            *(Column(f"a column with a long name {i}", "GC = 1") for i in range(6)),
            Column("hidden", "s", is_shown=False),
        )
        value = float(effort.seed) / (2 if effort.quick else 1)
        table = Table(columns, (("one scheme", *[value] * 7),))
        axes = Axis("time", "s"), Axis("loss", "start = 1")
        panel = FigurePanel("left", *axes, (Curve("one", [0.0, 1.0], [1.0, value]),))
        lines = ("a setting.", "a claim ±1.", "ours.", ("found " * 30 + ".",))
        return Exhibit(name, f"Title of {name}", *lines, table, (panel,))

    return Recipe(name, 1.0, make)


PAPER = Paper(
    name="first-paper",
    title="A Title",
    citation="Somebody; arXiv 0000.00000.",
    says="something.",
    ours="the rest.",
    missing="its machines.",
    recipes=(recipe("one"), recipe("two")),
    live=(recipe("live"),),
)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Run:
    monkeypatch.chdir(tmp_path)
    for name in list(PAPERS):
        monkeypatch.delitem(PAPERS, name)
    for name in ("first-paper", "second"):
        monkeypatch.setitem(PAPERS, name, replace(PAPER, name=name))

    def run(*words: str) -> Shown:
        monkeypatch.setattr(sys, "argv", ["codedgrad", "papers", *words])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Shown(end.value.code or 0, shown.out, shown.err)

    return run


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_all_papers_are_made_and_written(run: Run) -> None:
    shown = run()
    assert (shown.code, shown.err) == (0, "")
    assert names("papers") == sorted(
        [
            f"{paper}-{name}.{ending}"
            for paper in ("first-paper", "second")
            for name in ("one", "two")
            for ending in ("png", "csv")
        ]
        + ["papers.json"]
    )
    said = " ".join(shown.out.split())
    for words in (
        "first-paper: A Title Somebody; arXiv 0000.00000. It says: something.",
        "Not available: its machines. (seed 1)",
        "-- Title of two",
        "Setting: a setting. Paper: a claim ±1. Ours: ours. Found: found found",
        "9 files in papers: first-paper-one.png, first-paper-one.csv,",
    ):
        assert words in said
    assert "hidden" not in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_some_papers_into_another_folder(run: Run) -> None:
    shown = run("Second", "--out", "here/below", "--quick", "--seed", "3")
    assert shown.code == 0
    assert names("here/below") == [
        "papers.json", "second-one.csv", "second-one.png", "second-two.csv",
        "second-two.png",
    ]  # fmt: skip
    assert "(quick: few runs, large errors; seed 3)" in shown.out
    read = json.loads(Path("here/below/papers.json").read_text(encoding="utf-8"))
    assert (read["seed"], read["quick"]) == (3, True)
    assert read["papers"][0]["exhibits"][0]["rows"] == [["one scheme", *[1.5] * 7]]


def test_a_name_may_be_written_as_its_module_is(run: Run) -> None:
    assert run("first_paper", "first-paper").out.count("A Title") == 1


def test_for_machines_it_is_json_alone_and_the_file(run: Run) -> None:
    shown = run("second", "--json")
    read = json.loads(shown.out)
    assert read == json.loads(Path("papers/papers.json").read_text(encoding="utf-8"))
    assert sorted(Path(file).name for file in read["files"]) == names("papers")
    assert [each["name"] for each in read["papers"]] == ["second"]


def test_live_exhibits_are_others(run: Run) -> None:
    assert run("second", "--live").code == 0
    assert names("papers") == ["live.json", "second-live.csv", "second-live.png"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("frst-paper", "there is no paper 'frst-paper'; try first-paper"),
        ("zzz", "there is no paper 'zzz'; try one of first-paper, second"),
        ("--out file", "--out file: is a file; try a folder"),
        ("--out file/below", "--out file/below: cannot be written"),
        ("--seed -1", "--seed"),
        ("--runs 3", "No such option: --runs"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    run: Run, words: str, why: str
) -> None:
    Path("file").touch()
    shown = run(*words.split())
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert why in shown.err
    assert names(".") == ["file"]


def test_without_matplotlib_it_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    shown = run()
    assert shown.code == 2
    assert 'pip install "codedgrad[plot]"' in shown.err
    assert names(".") == []


def test_an_interruption_says_what_was_written_and_leaves_only_that(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(effort: Effort) -> Exhibit:
        raise KeyboardInterrupt

    paper = replace(PAPER, recipes=(recipe("one"), Recipe("two", 1.0, stop)))
    monkeypatch.setitem(PAPERS, "first-paper", paper)
    shown = run("first-paper")
    assert (shown.code, shown.err) == (130, "interrupted: 2 files are in papers\n")
    assert names("papers") == ["first-paper-one.csv", "first-paper-one.png"]
    paper = replace(PAPER, recipes=(Recipe("two", 1.0, stop),))
    monkeypatch.setitem(PAPERS, "first-paper", paper)
    assert run("first-paper").err == "interrupted: nothing was written\n"


def test_on_a_terminal_that_knows_ascii_only_it_still_prints(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "shown.txt").open("w", encoding="ascii") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert run("second").code == 0
    assert "a claim +-1." in (tmp_path / "shown.txt").read_text()


def test_the_help_names_the_papers_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "codedgrad", "papers", "--help"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert shown.returncode == 0
    said = " ".join(shown.stdout.replace("│", " ").split())
    for word in ("gc-dc", "heterogeneous", "--quick", "--live", "--seed", "--out"):
        assert word in said


def test_ctrl_c_on_a_terminal_ends_it_with_the_bar_gone(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "codedgrad", "papers", "heterogeneous"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=follower,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # if ignored
    )
    os.close(follower)
    said = b""
    while b"heterogeneous: steps" not in said:  # the bar says what is made
        said += os.read(leader, 4096)
    process.send_signal(signal.SIGINT)
    while b"interrupted: nothing was written" not in said:
        said += os.read(leader, 4096)
    assert process.wait(PATIENCE) == 130
    assert b"left" in said
    assert list(tmp_path.iterdir()) == []
    os.close(leader)
    assert process.stdout is not None
    process.stdout.close()
