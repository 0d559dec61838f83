"""What clusters are worth: by how many are slow, how fine they are, what lasts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.core import Scheme
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.gc_dc.lab import (
    BOUND,
    FINEST,
    KNOWN,
    MODEL,
    USUAL,
    WORDS,
    ClusterLab,
    largest,
    moving,
)
from codedgrad.papers.gc_dc.settings import (
    CLUSTERS,
    IMPERFECT,
    PERFECT,
    REACH,
    WORKERS,
    A,
    B,
    Exactly,
    Spells,
    spells,
)
from codedgrad.papers.measuring import Measured, mean, ratio
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table, listed
from codedgrad.schemes import clustered, cyclic, fractional

# -- how many are slow -----------------------------------------------------------------


def stragglers(effort: Effort) -> Exhibit:
    """Return the mean step by how many workers are slow, known to an oracle."""
    counts = range(11)
    lab = ClusterLab(
        effort, effort.some(40, 10), 0, effort.some(300, 60), 1 / len(counts)
    )
    schemes: dict[str, Scheme] = {
        "GC": cyclic(WORKERS, 1, rule="threshold"),
        "GC-SC": clustered(WORKERS, CLUSTERS, 1, rule="threshold"),
        FINEST: fractional(WORKERS, 1, rule="threshold"),
        "GC-DC, perfect": moving(2, PERFECT, shifts="row"),
    }
    rows: list[list[float]] = []
    for slow in counts:
        law = Exactly(slow)
        taken = [*lab.seconds(list(schemes.values()), law), lab.bound(law, 2)]
        rows.append([mean(each).value for each in taken])
    names = (*schemes, BOUND)
    by_name = dict(zip(names, zip(*rows, strict=True), strict=True))
    panel = FigurePanel(
        "who is slow is known",
        Axis("slow workers in every step", f"of {WORKERS}", ticks=tuple(counts)),
        Axis("mean step", "s", limits=(0.0, 1.05 * max(by_name["GC"]))),
        tuple(Curve(name, list(counts), values) for name, values in by_name.items()),
        (float(CLUSTERS), "one slow worker for every cluster"),
    )
    return Exhibit(
        "stragglers",
        "As many slow workers as can be spread cost little, one more costs a lot",
        f"{USUAL}, r = 2, rule threshold; in every step so many workers, drawn anew, "
        f"are slow. {MODEL} {lab}.",
        "slow workers are spread over clusters as evenly as possible; no such figure "
        "could be read.",
        "all of it.",
        (_jump(by_name["GC-DC, perfect"], by_name["GC-SC"]), _finer(by_name)),
        Table(
            (Column("slow workers", "count"), *(Column(name, "s") for name in names)),
            tuple((slow, *each) for slow, each in zip(counts, rows, strict=True)),
        ),
        (panel,),
    )


def _jump(dc: Sequence[float], sc: Sequence[float]) -> str:
    """Say where one more slow worker costs most; the first is not a jump."""
    jump = 2 + int(np.argmax([b / a for a, b in itertools.pairwise(dc[1:])]))
    of_sc = [d / s for d, s in zip(dc, sc, strict=True)]
    best = int(np.argmin(of_sc))
    where = "one more than" if jump == CLUSTERS + 1 else "and not right after"
    return (
        f"the largest jump of GC-DC is at {jump} slow workers, {where} the {CLUSTERS} "
        f"that can be spread: {dc[jump - 1]:.2f} s, then {dc[jump]:.2f} s; it gains "
        f"most over GC-SC at {best}, {of_sc[best]:.2f} of it."
    )


def _finer(by_name: dict[str, tuple[float, ...]]) -> str:
    dc, fine = by_name["GC-DC, perfect"], by_name[FINEST]
    slower = [str(n) for n, seconds in enumerate(fine) if seconds >= dc[n]]
    but = f", not at {listed(slower)}" if slower else ""
    return (
        f"{FINEST}, static, is faster than GC-DC in {CLUSTERS} clusters at "
        f"{len(dc) - len(slower)} of {len(dc)} counts{but}."
    )


# -- the strongest static clusters -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Size:
    """Clusters of one size: mean steps over those of GC, and what they cost."""

    setting: str
    clusters: int
    static: float
    imperfect: float
    perfect: float
    slower: int  # steps in which the finest were
    steps: int
    stored: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of the table."""
        ratios = self.static, self.imperfect, self.perfect
        share = 100.0 * self.slower / self.steps
        return (self.setting, self.clusters, *ratios, share, self.stored)


def refined(effort: Effort) -> Exhibit:
    """Return static and dynamic clusters of all sizes, at the same load."""
    lab = ClusterLab(effort, effort.some(60, 12), 0, effort.some(300, 100), 1 / 8)
    in_a = _sizes(lab, A, 20, (1, 2, 5, 10))
    in_b = _sizes(lab, B, 24, (1, 2, 4, 8))
    columns = (
        Column("setting"),
        Column("clusters", "count"),
        Column("static", "GC = 1"),
        Column("dynamic, imperfect", "GC = 1"),
        Column("dynamic, perfect", "GC = 1"),
        Column("finest slower", "% of steps", ".1f"),
        Column("stored by dynamic", "parts"),
    )
    return Exhibit(
        "refined",
        "The finest static clusters, fractional repetition, are never slower",
        "settings A (20 workers, r = 2) and B (24 workers, r = 3); the load is the "
        "same for all, 1 cluster is GC, the finest are fractional repetition; reach up "
        f"to {REACH}, rule threshold, storage by cluster. {MODEL} {lab}.",
        "GC-DC is better than GC at the same load; which number of clusters is best, "
        "or taken, could not be read.",
        "that clusters are to be compared with the finest: where a coarser one has "
        "heard enough, each of the fine ones in it has heard somebody.",
        tuple(_finest(in_a, in_b)),
        Table(columns, tuple(size.cells for size in (*in_a, *in_b))),
        (_by_size(in_a), _by_size(in_b)),
    )


def _sizes(
    lab: ClusterLab, setting: Spells, workers: int, sizes: Sequence[int]
) -> list[_Size]:
    taken = {}
    for size in sizes:
        reach, r = min(REACH, size), setting.r
        others = [
            moving(r, state, workers=workers, clusters=size, reach=reach)
            for state in (IMPERFECT, PERFECT)
        ]
        static = clustered(workers, size, r - 1, rule="threshold")
        taken[size] = lab.seconds([static, *others], setting.delays)
    gc, finest = taken[sizes[0]][0], taken[sizes[-1]][0]
    found = []
    for size, times in taken.items():
        static_, imperfect, perfect = (ratio(each, gc).value for each in times)
        slower = int((finest > times[0]).sum())
        stored = min(REACH, size) * workers // size
        found.append(
            _Size(
                str(setting),
                size,
                static_,
                imperfect,
                perfect,
                slower,
                finest.size,
                stored,
            )
        )
    return found


def _by_size(sizes: Sequence[_Size]) -> FigurePanel:
    counts = [float(size.clusters) for size in sizes]
    curves = (
        Curve("static", counts, [size.static for size in sizes]),
        Curve("dynamic, imperfect", counts, [size.imperfect for size in sizes]),
        Curve("dynamic, perfect", counts, [size.perfect for size in sizes]),
    )
    x = Axis("clusters", "count", is_log=True, ticks=tuple(counts))
    y = Axis("mean step", "GC = 1", limits=(0.0, 1.05))
    return FigurePanel(f"setting {sizes[0].setting}", x, y, curves)


def _finest(in_a: Sequence[_Size], in_b: Sequence[_Size]) -> list[str]:
    slower = sum(size.slower for size in (*in_a, *in_b))
    never = "in no step" if not slower else f"in {slower} steps (does not hold here)"
    fine, usual = in_a[-1], in_a[-2]
    verb = "beats" if fine.static < usual.imperfect else "does not beat"
    gains = [sizes[-1].imperfect / sizes[-1].static for sizes in (in_a, in_b)]
    return [
        f"{never} were the finest static clusters slower than coarser ones.",
        f"static {FINEST} ({fine.static:.2f} of GC in A) {verb} GC-DC in "
        f"{usual.clusters} clusters with imperfect knowledge ({usual.imperfect:.2f}).",
        f"forming the finest clusters anew, imperfect, takes {gains[0]:.2f} (A) and "
        f"{gains[1]:.2f} (B) of the time of {FINEST}, for {fine.stored} and "
        f"{in_b[-1].stored} parts stored by a worker instead of 2 and 3.",
    ]


# -- the counter-setting ---------------------------------------------------------------


def memory(effort: Effort) -> Exhibit:
    """Return the mean step by how long slowness lasts: without memory, no gain."""
    lengths = (1.25, 2.0, 4.0, 8.0, 16.0, 32.0)  # 1.25 steps: no memory at all
    runs, seen_in = effort.some(240, 60), effort.some(12, 3)
    lab = ClusterLab(effort, runs, seen_in, effort.some(300, 100), 1 / 12)
    known: dict[str, Scheme] = {
        "GC-SC": clustered(WORKERS, CLUSTERS, 1, rule="threshold"),
        FINEST: fractional(WORKERS, 1, rule="threshold"),
        **{name: moving(2, state) for name, state in KNOWN.items()},
    }
    seen: dict[str, Scheme] = {"GC-DC, learnt": moving(2, "hidden")}
    gc = cyclic(WORKERS, 1, rule="threshold")
    laws = [spells(0.25 / length, 1 / length) for length in lengths]
    found = [lab.ratios(gc, known, seen, law)[1] for law in laws]
    names = ("GC-SC", *seen, *reversed(KNOWN), FINEST)
    panel = FigurePanel(
        "a fifth of the workers is slow at any moment",
        Axis("mean length of a slow spell", "steps", is_log=True, ticks=lengths),
        Axis("mean step", "GC = 1", limits=(0.0, 0.7)),
        tuple(Curve(n, lengths, [of[n].value for of in found]) for n in names),
    )
    return Exhibit(
        "memory",
        "Where it does not pay: slowness that is gone in the next step",
        f"{USUAL}, r = 2, rule threshold; a fifth of the workers is slow at any "
        f"moment, for longer and longer; 1.25 steps is without any memory. {MODEL} "
        f"{lab}, learnt by events in {seen_in} of them; {largest(found)}.",
        "GC-DC relies on straggling that is correlated in time.",
        f"all of it. {WORDS}",
        tuple(_memory(found[0], found[-1])),
        _by_length(lengths, names, found),
        (panel,),
    )


def _by_length(
    lengths: Sequence[float], names: Sequence[str], found: list[dict[str, Measured]]
) -> Table:
    columns = [Column("mean spell", "steps", "g")]
    for name in names:
        error = Column(f"{name}: standard error", "GC = 1", is_shown=False)
        columns += [Column(name, "GC = 1"), error]
    rows = tuple(
        (length, *(cell for name in names for cell in (of[name].value, of[name].error)))
        for length, of in zip(lengths, found, strict=True)
    )
    return Table(tuple(columns), rows)


def _memory(none: dict[str, Measured], long: dict[str, Measured]) -> list[str]:
    static = none["GC-SC"].value
    error = none["GC-DC, imperfect"].error / static
    gain = none["GC-DC, imperfect"].value / static
    later = long["GC-DC, imperfect"].value / long["GC-SC"].value
    verdict = "does pay (unexpected)" if gain < 1 - 2 * error else "does not pay"
    return [
        f"without memory GC-DC {verdict}: imperfect, {gain:.3f} of GC-SC (standard "
        f"error about {error:.3f}); with spells of 32 steps {later:.2f}.",
        "what is missing is knowledge: an oracle still takes "
        f"{none['GC-DC, perfect'].value / static:.2f} of GC-SC there.",
    ]
