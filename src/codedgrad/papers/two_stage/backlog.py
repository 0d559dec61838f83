"""The uplink: utility against backlog, by what utility weighs."""

from __future__ import annotations

from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.paper import Column, Effort, Exhibit, Table
from codedgrad.papers.two_stage.uplink import CLAIM, MODEL, MOST, RATES, Delivered, run
from codedgrad.uplink.bounds import gap_bound, static_optimum, utility
from codedgrad.uplink.fair import Uplink

_WEIGHTS = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0)  # V
_NEAR, _FAR = 20.0, 200.0  # V that are compared


def backlog(effort: Effort) -> Exhibit:
    """Return the utility lost, and the backlog, by V."""
    slots = effort.some(60_000, 8000)
    best = utility(static_optimum(RATES, MOST))
    found = {}
    for V in _WEIGHTS:
        found[V] = run(Uplink(len(RATES), V=V, most=MOST, peaks=RATES), slots)
        effort.advance(1 / len(_WEIGHTS))
    gaps = {V: best - sent.utility for V, sent in found.items()}
    return Exhibit(
        "backlog",
        "The uplink: what V buys, and what it costs",
        f"{MODEL}; utility: sum of log(1 + x), x bits delivered a slot; the best "
        f"there is: {best:.4f}; no batteries. {slots} slots, the first fifth dropped; "
        "nothing is random.",
        CLAIM,
        "queues, weights and all numbers. By the usual argument the utility lost is "
        "at most Bc / V, and queues are at most V + 2 Amax.",
        (_laws(gaps, found), _bounds(gaps, found), _loose(gaps)),
        _table(gaps, found),
        _panels(gaps, found),
    )


def _bound(V: float) -> float:
    return gap_bound(V, MOST, RATES)


def _table(gaps: dict[float, float], found: dict[float, Delivered]) -> Table:
    columns = (
        Column("V"),
        Column("utility", "nats", ".4f"),
        Column("lost", "nats", ".4f"),
        Column("V x lost", "nats", ".2f"),
        Column("bound of lost", "nats", ".2f"),
        Column("backlog", "bits", ".0f"),
        Column("longest queue", "bits", ".0f"),
        Column("bound of it", "bits", ".0f"),
    )
    rows = tuple(
        (
            f"{V:g}",
            sent.utility,
            gaps[V],
            V * gaps[V],
            _bound(V),
            sent.backlog,
            sent.longest,
            V + 2 * MOST,
        )
        for V, sent in found.items()
    )
    return Table(columns, rows)


def _panels(
    gaps: dict[float, float], found: dict[float, Delivered]
) -> tuple[FigurePanel, ...]:
    x = Axis("V", "weight of utility", is_log=True, ticks=_WEIGHTS)
    lost = Curve("as found", _WEIGHTS, [gaps[V] for V in _WEIGHTS])
    most = Curve("bound", _WEIGHTS, [_bound(V) for V in _WEIGHTS])
    waits = Curve("as found", _WEIGHTS, [found[V].backlog for V in _WEIGHTS])
    full = [len(RATES) * (V + 2 * MOST) for V in _WEIGHTS]
    ticks = (0.001, 0.01, 0.1, 1.0, 10.0)
    return (
        FigurePanel(
            "utility lost against the best",
            x,
            Axis("utility lost", "nats", is_log=True, ticks=ticks),
            (lost, most),
        ),
        FigurePanel(
            "what waits",
            x,
            Axis("backlog of all workers", "bits", True, ticks=(20.0, 100.0, 500.0)),
            (waits, Curve("bound", _WEIGHTS, full)),
        ),
    )


def _laws(gaps: dict[float, float], found: dict[float, Delivered]) -> str:
    less = gaps[_NEAR] / gaps[_FAR]
    more = found[_FAR].backlog / found[_NEAR].backlog
    holds = less >= 4 and 7 <= more <= 12
    verdict = "go as 1 / V and V do" if holds else "do not go as 1 / V and V"
    return (
        f"utility lost and backlog {verdict}: from V = {_NEAR:g} to {_FAR:g} the one "
        f"falls {less:.1f} times, in steps, and the other grows {more:.1f} times."
    )


def _bounds(gaps: dict[float, float], found: dict[float, Delivered]) -> str:
    kept = all(gaps[V] <= _bound(V) for V in gaps)
    short = all(sent.longest <= V + 2 * MOST for V, sent in found.items())
    verb = "hold" if kept and short else "do not hold"
    least = max(sent.longest / (V + 2 * MOST) for V, sent in found.items())
    return f"the bounds {verb}; queues come up to {least:.2f} of theirs."


def _loose(gaps: dict[float, float]) -> str:
    loose = [_bound(V) / gap for V, gap in gaps.items() if gap > 0]
    return (
        f"the bound of what is lost is {min(loose):.0f} to {max(loose):.0f} times what "
        "is lost: it tells how, not how much."
    )
