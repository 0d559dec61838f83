"""What a paper and its exhibits are."""

import pytest

from codedgrad.papers import PAPERS, Effort, Exhibit, Paper, Table
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.paper import Column, listed

OURS = [PAPERS["gc-dc"], PAPERS["heterogeneous"]]


def small(has_curves: bool = True, y: Axis | None = None) -> Exhibit:
    panels = tuple(
        FigurePanel(name, Axis("time", "s"), axis, (Curve("one", [1, 2], [3.0, 4.0]),))
        for name, axis in (
            ("left", Axis("loss", "1")),
            ("right", y or Axis("loss", "1")),
        )
    )
    table = Table((Column("scheme"), Column("mean step", "s")), (("one", 0.5),))
    return Exhibit(
        "a", "A", "set", "claim", "own", ("x.", "y."), table, panels, has_curves
    )


@pytest.mark.parametrize("paper", OURS, ids=lambda paper: paper.name)
def test_a_paper_says_what_is_whose_and_what_is_not_available(paper: Paper) -> None:
    assert "arXiv" in paper.citation
    assert all((paper.title, paper.says, paper.ours, paper.missing, paper.live))
    assert [line.partition(":")[0] for line in paper.lines[1:]] == [
        "It says",
        "Ours",
        "Not available",
    ]
    assert len({recipe.name for recipe in paper.recipes}) == len(paper.recipes)


def test_papers_are_known_by_their_names() -> None:
    assert all(name == paper.name for name, paper in PAPERS.items())


def test_lines_say_setting_claim_reconstruction_and_what_was_found() -> None:
    lines = [line.partition(": ")[0] for line in small().lines]
    assert lines == ["Setting", "Paper", "Ours", "Found", "Found"]


def test_curves_are_a_table_with_units_in_its_header() -> None:
    curves = small().curves
    assert curves is not None
    header = [column.header for column in curves.columns]
    assert header == ["panel", "curve", "time [s]", "loss [1]"]
    assert curves.rows[:2] == (("left", "one", 1.0, 3.0), ("left", "one", 2.0, 4.0))
    assert len(curves.rows) == 4


def test_axes_that_differ_are_both_named() -> None:
    curves = small(y=Axis("rate", "%")).curves
    assert curves is not None
    assert curves.columns[-1].header == "loss [1] or rate [%]"


def test_where_the_table_has_all_there_are_no_curves() -> None:
    assert small(has_curves=False).curves is None


@pytest.mark.parametrize(
    ("cell", "text"),
    [(0.5, "0.500"), (3, "3"), ("x", "x"), (None, "-"), (float("inf"), "-")],
)
def test_a_cell_that_is_not_known_is_a_dash(cell: object, text: str) -> None:
    assert Column("mean step", "s").text(cell) == text  # type: ignore[arg-type]


def test_never_fewer_than_two_runs_are_taken() -> None:
    assert Effort(quick=True, part=0.01).some(100, quick=10) == 2
    assert Effort(part=0.5).some(100, quick=10) == 50


def test_names_are_listed_as_in_a_sentence() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c"]) == "a, b and c"
