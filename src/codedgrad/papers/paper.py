"""What a paper is here: what it says, and exhibits that are made anew.

An exhibit is a table and a figure with lines under them: in which setting, what the
paper claims, what is our reconstruction, and what was found. What was found is said by
the numbers just made, and may be that a claim does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from codedgrad.papers.drawing import Bars, FigurePanel

Cell: TypeAlias = str | int | float | None
"""Of a table; None where there is nothing to say."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work to put into an exhibit, and where its chance comes from.

    Attributes:
        quick: For a look, and not for a figure to keep.
        seed: Of everything random.
        advance: Told the share of the exhibit that was done since it was last told.
        part: Of the work; below 1 for a test.
    """

    quick: bool = False
    seed: int = 1
    advance: Callable[[float], None] = lambda share: None
    part: float = 1.0

    def some(self, full: int, quick: int) -> int:
        """Return how many runs, or steps, to take; at least 2.

        Example:
            >>> Effort().some(60, quick=8), Effort(quick=True).some(60, quick=8)
            (60, 8)
            >>> Effort(quick=True, part=0.1).some(60, quick=8)
            2
        """
        return max(2, round((quick if self.quick else full) * self.part))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: What it says.
        unit: In which unit; empty for words.
        form: How people are shown its numbers.
        is_shown: Whether people are shown it at all; files have all columns.
    """

    name: str
    unit: str = ""
    form: str = ".3f"
    is_shown: bool = True

    @property
    def header(self) -> str:
        """Its name and unit."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def text(self, cell: Cell) -> str:
        """Return a cell as people are shown it.

        Example:
            >>> column = Column("mean step", "s")
            >>> column.text(0.12345), column.text(7), column.text(None)
            ('0.123', '7', '-')
        """
        if isinstance(cell, float):
            return format(cell, self.form) if math.isfinite(cell) else "-"
        return "-" if cell is None else str(cell)


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers in rows.

    Attributes:
        columns: The first one names a row.
        rows: A cell for every column.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A table and a figure, and what to read from them.

    Attributes:
        name: Short, for the names of files.
        title: One line.
        setting: What the numbers hang on, with the stop rule.
        claim: What the paper says; or that it says nothing.
        ours: What is our reconstruction.
        found: Sentences made from the numbers.
        table: What people are shown, and one file.
        panels: The figure.
        has_curves: Whether the figure shows more than the table: then its curves are
            a file of their own.
    """

    name: str
    title: str
    setting: str
    claim: str
    ours: str
    found: tuple[str, ...]
    table: Table
    panels: tuple[FigurePanel | Bars, ...]
    has_curves: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """What stands under the table and under the figure."""
        return (
            f"Setting: {self.setting}",
            f"Paper: {self.claim}",
            f"Ours: {self.ours}",
            *(f"Found: {sentence}" for sentence in self.found),
        )

    @property
    def curves(self) -> Table | None:
        """The points of all curves, one a row; None if the table has them."""
        if not self.has_curves:
            return None
        drawn = [panel for panel in self.panels if isinstance(panel, FigurePanel)]
        rows = tuple(
            (panel.heading, curve.name, float(at), float(value))
            for panel in drawn
            for curve in panel.curves
            for at, value in zip(curve.x, curve.y, strict=True)
        )
        x = " or ".join(dict.fromkeys(panel.x.label for panel in drawn))
        y = " or ".join(dict.fromkeys(panel.y.label for panel in drawn))
        return Table((Column("panel"), Column("curve"), Column(x), Column(y)), rows)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an exhibit is made.

    Attributes:
        name: Of the exhibit.
        cost: About how many seconds it takes if it is to be quick, for a progress bar.
        make: Makes it.
    """

    name: str
    cost: float
    make: Callable[[Effort], Exhibit]


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper, and what is made anew of it.

    Attributes:
        name: On the command line.
        title: Its own.
        citation: Who wrote it, and where it is.
        says: What it claims, as far as we could read it.
        ours: What is not the authors', in general.
        missing: Which of its data and machines are not available here.
        recipes: Exhibits that are simulated.
        live: Exhibits from real processes.
    """

    name: str
    title: str
    citation: str
    says: str
    ours: str
    missing: str
    recipes: tuple[Recipe, ...]
    live: tuple[Recipe, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What stands above its exhibits."""
        return (
            self.citation,
            f"It says: {self.says}",
            f"Ours: {self.ours}",
            f"Not available: {self.missing}",
        )


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them.

    Example:
        >>> listed(["A"]), listed(["A", "B", "C"])
        ('A', 'A, B and C')
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
