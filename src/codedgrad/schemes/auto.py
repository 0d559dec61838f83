"""Lists of parts that are planned again inside the step. The default."""

from __future__ import annotations

from dataclasses import dataclass

from codedgrad.codes.arguments import whole
from codedgrad.core.history import History
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.handing import Layout
from codedgrad.schemes.pacing import Paces
from codedgrad.schemes.replanning import LivePlan

__all__ = ["Auto", "auto"]

_PIECES = 8


@dataclass(frozen=True)
class Auto:
    """Lists of parts that are planned again inside the step.

    Attributes:
        name: As on the command line, with its options.
        layout: Which parts each worker may be asked for.
        early: Whether a ring is looked at before anybody runs dry.
    """

    name: str
    layout: Layout
    early: bool

    @property
    def workers(self) -> int:
        """How many workers it needs."""
        return self.layout.workers

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.layout.workers * self.layout.pieces

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts each worker may be asked for."""
        return self.layout.placement

    @property
    def exact(self) -> bool:
        """It never gives a sum with a residual."""
        return True

    @property
    def tolerance(self) -> int:
        """Late workers survived exactly: all but one of those who hold a part."""
        return self.layout.copies - 1

    def plan(self, step: int, history: History) -> LivePlan:
        """Return the plan of a step, from the times of those before."""
        forecast = history.follow(Paces(self.layout.pieces)).forecast()
        return LivePlan(self.layout, forecast, self.early)

    def __str__(self) -> str:
        return self.name


def auto(
    workers: int,
    pieces: int = _PIECES,
    *,
    copies: int | str = "all",
    early: bool = True,
) -> Auto:
    """Plan ordered lists of parts again inside the step, whenever that ends it sooner.

    Args:
        workers: Number of workers.
        pieces: Parts for each worker at the uncoded load.
        copies: Workers that may be asked for a part: a number, or `all`.
        early: Whether lists are looked at before anybody runs dry, where not everybody
            may be asked for everything.
    """
    n = whole("auto", "workers", workers, least=1)
    c = whole("auto", "pieces", pieces, least=1)
    held = n if copies == "all" else whole("auto", "copies", copies, least=1)
    if held > n:
        raise InvalidScheme(f"auto: {held} copies for {n} workers", f"at most {n}")
    given = [f"pieces={c}"] * (c != _PIECES) + [f"copies={held}"] * (copies != "all")
    given += ["early=false"] * (not early)
    name = f"auto({', '.join(given)})" if given else "auto"
    return Auto(name, Layout(n, c, held), early)
