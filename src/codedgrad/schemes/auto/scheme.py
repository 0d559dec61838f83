"""Lists of parts that are planned again inside the step. The default."""

from __future__ import annotations

from dataclasses import dataclass

from codedgrad.codes.arguments import whole
from codedgrad.core.history import History
from codedgrad.core.plan import Traits
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.auto.forecast import Paces
from codedgrad.schemes.auto.plan import LivePlan
from codedgrad.schemes.auto.reassign import PartLayout
from codedgrad.schemes.options import in_all, title

# Parts for each worker, the same on every machine: the order of samples depends on it,
# so a number that `train` measured would make training depend on the clock. Users who
# want a measured number ask `codedgrad probe`.
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
    layout: PartLayout
    early: bool
    exact = True  # it never gives a sum with a residual

    @property
    def workers(self) -> int:
        """How many workers it needs."""
        return self.layout.workers

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.layout.parts

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts each worker may be asked for."""
        return self.layout.placement

    @property
    def tolerance(self) -> int:
        """Late workers survived exactly: all but one that hold a part."""
        return self.layout.copies - 1

    @property
    def traits(self) -> Traits:
        """Lists are re-planned from progress reports, and a giver keeps its sum."""
        load = max(map(len, self.layout.blocks))
        return Traits(needs_progress=True, needs_rows=2, load=load)

    def plan(self, step: int, history: History) -> LivePlan:
        """Return the plan of a step, from the times of those before."""
        paces = history.follow(Paces(self.layout.pieces))
        return LivePlan(self.layout, paces.forecast(), self.early)

    def __str__(self) -> str:
        return self.name


def auto(
    workers: int,
    pieces: int = _PIECES,
    *,
    copies: int | str = "all",
    early: bool = True,
    parts: int | None = None,
) -> Auto:
    """Plan ordered lists of parts again inside the step, whenever that ends it sooner.

    Source: ours.

    Args:
        workers: Number of workers.
        pieces: Parts for each worker at the uncoded load.
        copies: Workers that may be asked for a part, and so need its data: a number,
            or `all`.
        early: Whether lists are looked at before anybody runs dry, where not everybody
            may be asked for everything.
        parts: Parts in all; None: `pieces` for each worker.
    """
    n = whole("auto", "workers", workers, least=1)
    total, said = in_all("auto", n, pieces, parts, usual=_PIECES)
    if isinstance(copies, str) and copies != "all":
        raise InvalidScheme(f"auto: copies is {copies}", f"1 to {n}, or all")
    held = n if copies == "all" else whole("auto", "copies", copies, least=1)
    if held > n:
        raise InvalidScheme(f"auto: {held} copies for {n} workers", f"at most {n}")
    if not isinstance(early, bool):
        raise InvalidScheme(f"auto: early is {early}", "true or false")
    name = title(
        "auto",
        **said,
        copies=None if copies == "all" else held,
        early=None if early else False,
    )
    return Auto(name, PartLayout(n, total, held), early)
