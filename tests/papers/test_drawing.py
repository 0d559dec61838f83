"""Every figure: axes with units, a legend, readable in grey, no overlapping text."""

import itertools
import sys
from collections.abc import Callable, Sequence

import pytest
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox

from codedgrad.errors import InvalidOptions
from codedgrad.papers import PAPERS, Exhibit
from codedgrad.papers.drawing import (
    Axis,
    Bars,
    Curve,
    FigurePanel,
    Group,
    check_drawing,
    drawn,
)

OURS = [
    (name, recipe.name)
    for name in ("gc-dc", "heterogeneous")
    for recipe in PAPERS[name].recipes
]
LONG = "Found: " + "a sentence that goes on and on, " * 12
SLACK = 1.0  # dots by which boxes of text may touch


def texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """All text that is drawn, with where it is."""
    figure.draw_without_rendering()
    found = [*figure.texts, *figure.legends[0].get_texts()]
    for axes in figure.axes:
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            found += [tick.label1 for tick in axis._update_ticks()]  # type: ignore[attr-defined]
    return [(t.get_text(), t.get_window_extent()) for t in found if t.get_text()]


def check(figure: Figure) -> None:
    """Assert that a figure can be read."""
    boxes = texts(figure)
    whole = figure.bbox
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= whole.x1, text
        assert box.y1 <= whole.y1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across <= SLACK or along <= SLACK, (one, other)
    for axes in figure.axes:
        looks = [
            (line.get_linestyle(), line._dash_pattern, line.get_marker())  # type: ignore[attr-defined]
            for line in axes.get_lines()
            if line.get_marker() not in ("None", "|", "_")
        ]
        assert len(set(map(str, looks))) == len(looks), "alike in grey"
        bars = {patch.get_hatch() for box in axes.containers for patch in list(box)[:1]
                if hasattr(patch, "get_hatch")}  # fmt: skip
        count = sum(
            hasattr(next(iter(box), None), "get_hatch") for box in axes.containers
        )
        assert len(bars) == count, "alike in grey"


@pytest.mark.parametrize(("paper", "name"), OURS)
def test_a_figure_of_a_paper_can_be_read(
    paper: str, name: str, exhibit: Callable[[str, str], Exhibit]
) -> None:
    made = exhibit(paper, name)
    figure = drawn(made.title, made.panels, made.lines)
    check(figure)
    assert figure.findobj(Legend)
    for axes, panel in zip(figure.axes, made.panels, strict=True):
        assert axes.get_xlabel() == panel.x.label
        assert panel.x.unit
        if isinstance(panel, FigurePanel):
            assert axes.get_ylabel() == panel.y.label
            assert panel.y.unit


def curves(
    count: int, panels: int, name: str = "a scheme with a name"
) -> list[FigurePanel]:
    x, y = Axis("time", "s"), Axis("loss", "1", is_log=True)
    lines = tuple(
        Curve(f"{name} {i}", [1.0, 2.0, 3.0], [1.0, 0.1 / (i + 1), 0.01])
        for i in range(count)
    )
    return [FigurePanel(f"panel {i}", x, y, lines) for i in range(panels)]


def bars(groups: int, categories: int) -> list[Bars]:
    names = tuple(f"a category with a name {i}" for i in range(categories))
    each = tuple(
        Group(f"group {i}", tuple(float(j + 1) for j in range(categories)))
        for i in range(groups)
    )
    return [Bars("bars", Axis("mean step", "s"), names, each)]


@pytest.mark.parametrize(
    "panels",
    [curves(1, 1), curves(12, 3), curves(2, 5),
     curves(3, 1, "a name that is as long as names of schemes can ever be " * 2),
     bars(1, 1), bars(3, 12), bars(6, 4)],
    ids=["one", "many", "five", "long", "bar", "bars", "groups"],
)  # fmt: skip
def test_any_figure_has_room_for_what_it_says(
    panels: Sequence[FigurePanel | Bars],
) -> None:
    figure = drawn("A title", panels, [LONG] * 6)
    check(figure)
    assert len(figure.axes) == len(panels)


def test_the_same_name_looks_the_same_in_every_panel() -> None:
    x, y = Axis("time", "s"), Axis("loss", "1")
    one, two = Curve("one", [1.0], [1.0]), Curve("two", [1.0], [2.0])
    panels = [FigurePanel("left", x, y, (one, two)), FigurePanel("right", x, y, (two,))]
    left, right = drawn("t", panels, []).axes
    assert left.lines[1].get_marker() == right.lines[0].get_marker()
    assert left.lines[1].get_color() == right.lines[0].get_color()


def test_a_mark_is_drawn_and_explained() -> None:
    [panel] = curves(1, 1)
    marked = FigurePanel(
        panel.heading, panel.x, panel.y, panel.curves, (2.0, "a limit")
    )
    figure = drawn("t", [marked], [])
    check(figure)
    [legend] = figure.findobj(Legend)
    assert [text.get_text() for text in legend.get_texts()][-1] == "a limit"  # type: ignore[attr-defined]


def test_a_category_without_a_value_has_no_bar() -> None:
    groups = (Group("one", (1.0, float("nan"))), Group("two", (2.0, 3.0), (0.1, 0.2)))
    panel = Bars("bars", Axis("mean step", "s"), ("a", "b"), groups)
    figure = drawn("t", [panel], [])
    check(figure)
    shown = [text.get_text().strip() for text in figure.axes[0].texts]
    assert shown == ["1", "2", "3"]


def test_without_matplotlib_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InvalidOptions, match=r"pip install \"codedgrad\[plot\]\""):
        check_drawing()
