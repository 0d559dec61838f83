from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import Scheme
from codedgrad.delays import Times
from codedgrad.papers import PAPERS, Effort, Exhibit
from codedgrad.papers.coded_reduce.digits import NAME, FoursAndNines, gisette_like
from codedgrad.papers.coded_reduce.failure import failure
from codedgrad.papers.coded_reduce.lab import TreeShape, crossing, where
from codedgrad.papers.coded_reduce.load import load
from codedgrad.papers.coded_reduce.pauses import pauses
from codedgrad.papers.coded_reduce.ring import ring
from codedgrad.papers.coded_reduce.tail import tail
from codedgrad.papers.coded_reduce.times import times
from codedgrad.papers.measuring import Measured
from codedgrad.papers.paper import Cell
from codedgrad.papers.writing import write_exhibit
from codedgrad.schemes import coded_reduce

# functions have the names of their modules
failure_module, live_module, ring_module, tail_module, times_module = (
    importlib.import_module(f"codedgrad.papers.coded_reduce.{name}")
    for name in ("failure", "live", "ring", "tail", "times")
)

FEW = Effort(quick=True, part=0.4)


def by_name(exhibit: Exhibit) -> dict[tuple[Cell, ...], dict[str, Cell]]:
    """Rows by what is left of their first number that is not a setting."""
    names = [column.name for column in exhibit.table.columns]
    keys = sum(name in {"tree", "A", "(n,L) N", "s", "late"} for name in names)
    return {
        row[:keys]: dict(zip(names, row, strict=True)) for row in exhibit.table.rows
    }


def numbers(row: dict[str, Cell], *names: str) -> list[float]:
    return [float(row[name]) for name in names]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def made() -> Callable[[Callable[[Effort], Exhibit]], Exhibit]:
    """Each exhibit is made once."""
    known: dict[str, Exhibit] = {}

    def make(recipe: Callable[[Effort], Exhibit]) -> Exhibit:
        if recipe.__name__ not in known:
            known[recipe.__name__] = recipe(FEW)
        return known[recipe.__name__]

    return make


def test_the_paper_is_listed_and_says_what_is_not_available() -> None:
    paper = PAPERS["coded-reduce"]
    assert [r.name for r in paper.recipes] == [
        "load", "times", "failure", "tail", "ring", "pauses"
    ]  # fmt: skip
    assert [r.name for r in paper.live] == ["live"]
    for unknown in ("EC2", "t2.micro", "tables of times", "27.2 and 7.0", "GISETTE"):
        assert unknown in paper.missing


# -- load and failure ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "s", "r", "S", "plain"),
    [("(4,3) 84", 1, 1 / 14, 21, 0.2619), ("(4,3) 84", 2, 27 / 148, 42, 0.5119),
     ("(12,2) 156", 1, 1 / 42, 13, 0.0897), ("(12,2) 156", 3, 1 / 12, 39, 0.2564),
     ("(12,2) 156", 5, 1 / 6, 65, 0.4231), ("(5,3) 155", 1, 8 / 195, 31, 0.2065)],
)  # fmt: skip
def test_loads_are_those_of_the_formula_and_of_what_is_allocated(
    tree: str, s: int, r: float, S: int, plain: float
) -> None:
    row = by_name(load(FEW))[tree, s]
    assert row["CR"] == pytest.approx(r)
    assert row["CR, as allocated"] == pytest.approx(r)
    assert row["S"] == S
    assert row["GC"] == pytest.approx(plain, abs=5e-5)


@pytest.mark.parametrize(
    ("tree", "late", "cr", "gc"),
    [("(4,3) s=1", 0.05, 2.7e-2, 1.1e-10), ("(12,2) s=1", 0.02, 9.0e-2, 3.7e-6),
     ("(12,2) s=3", 0.05, 2.6e-3, 7.5e-18)],
)  # fmt: skip
def test_a_tree_fails_as_often_as_was_worked_out(
    tree: str, late: float, cr: float, gc: float
) -> None:
    row = by_name(failure(FEW))[tree, late]
    assert numbers(row, "CR", "GC, same alpha") == pytest.approx([cr, gc], rel=0.02)


def test_who_fails_less_at_equal_load_is_counted_in_all_rows_of_the_table() -> None:
    exhibit = failure(FEW)
    rows = by_name(exhibit).values()
    less = sum(cr < gc for cr, gc in (numbers(r, "CR", "GC, same load") for r in rows))
    assert 0 < less < len(rows)
    assert f"in {less} of the {len(rows)} rows" in exhibit.found[1]
    assert "not for (4,3) s = 1 at 1%" in exhibit.found[1]


def test_only_pairs_right_below_the_root_are_too_many() -> None:
    assert "3 of 66 pairs" in failure(FEW).found[2]
    assert "all of them pairs right below the root" in failure(FEW).found[2]


# -- times -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "A", "expected"),
    [("(4,3) s=0", 1.0, (13.03, 6.52, 6.52, 0.614, 6.26)),
     ("(4,3) s=1", 0.1, (9.61, 6.79, 8.75, 0.268, 7.70)),
     ("(4,3) s=1", 10.0, (177.8, 2.94, 0.531, 0.350, 0.812)),
     ("(12,2) s=1", 1.0, (25.75, 6.10, 6.10, 0.335, 6.12)),
     ("(12,2) s=1", 10.0, (157.4, 3.08, 1.06, 0.434, 1.41))],
)  # fmt: skip
def test_times_are_the_reference_numbers(
    made: Callable[..., Exhibit], tree: str, A: float, expected: tuple[float, ...]
) -> None:
    # 240 steps: standard errors up to 1.8 %
    row = by_name(made(times))[tree, A]
    names = ("CR", "GC/CR", "UMW/CR", "RAR/CR", "RAR/CR, t_l=0.5")
    assert numbers(row, *names) == pytest.approx(expected, rel=0.07)


def test_published_factors_are_judged_by_the_limit_and_by_latency(
    made: Callable[..., Exhibit],
) -> None:
    over_gc, bandwidth, latency, _ = made(times).found
    assert "7.0 for (4,3) and 6.5 for (12,2), is never exceeded" in over_gc
    assert "27.2 is not reproduced" in over_gc
    assert "in 0 of 32 settings" in bandwidth
    assert "7.0 needs more than bandwidth" in bandwidth
    assert "0.42 for (4,3), s = 1" in latency


def point(share: float = 1.0, latency: float = 0.0, **rivals: float) -> object:
    found = {name: Measured(rivals.get(name, 1.0)) for name in ("GC", "UMW", "RAR")}
    shape = TreeShape(4, 3)
    return times_module._Point(shape, 1, share, latency, Measured(10.0), found)


def test_what_is_found_of_times_can_be_the_opposite() -> None:
    fast = [point(GC=30.0, RAR=8.0, UMW=2.0), point(latency=0.5, RAR=2.0)]
    over_gc = times_module._over_gc(fast)
    assert "exceeded in 1 settings" in over_gc
    assert "27.2 is within" in over_gc
    bandwidth, latency = times_module._over_ring(fast)
    assert "in 1 of 1 settings" in bandwidth
    assert "7.0 could come from bandwidth" in bandwidth
    assert "in 0 of 1 settings, 2.0 at most" in latency
    assert "nowhere slower" in times_module._over_star(fast)


# -- where it does not pay, and where it does ------------------------------------------


@pytest.mark.parametrize(
    ("tree", "uncoded", "star"),
    [("(4,3) s=1", 0.50, 4.9), ("(4,3) s=2", 0.32, 2.8),
     ("(12,2) s=1", 0.73, 10.6), ("(12,2) s=3", 0.49, 4.4)],
)  # fmt: skip
def test_coding_stops_paying_where_it_was_worked_out(
    made: Callable[..., Exhibit], tree: str, uncoded: float, star: float
) -> None:
    row = by_name(made(tail))[tree,]
    found = numbers(
        row, "faster than uncoded tree up to A", "faster than uncoded star up to A"
    )
    assert found == pytest.approx([uncoded, star], rel=0.04)
    assert row["faster than ring up to A"] is None
    assert row["slower than ring"] == 19


def test_what_is_found_of_tails_can_be_the_opposite() -> None:
    row = tail_module._TailRow(TreeShape(4, 3), 1, None, None, Measured(2.0, 0.1), 3)
    assert "does not stop paying everywhere" in tail_module._uncoded([row])
    assert "nowhere for (4,3)" in tail_module._uncoded([row])
    assert "does not always beat coded trees: in 3 of 19" in tail_module._ring([row])


def test_a_ring_is_beaten_by_latency_and_not_by_bandwidth() -> None:
    rows = by_name(ring(FEW))
    assert numbers(rows["(4,3) s=1",], "CR faster from t_l", "7.0 times from t_l") == (
        pytest.approx([0.043, 0.42], abs=2e-3)
    )
    sizes = [numbers(row, "CR faster up to")[0] for row in rows.values()]
    assert sizes[:2] == pytest.approx([290, 192], abs=1)
    assert "the ring is faster" in ring(FEW).found[0]


def test_what_is_found_of_rings_can_be_the_opposite() -> None:
    row = ring_module._RingRow(TreeShape(4, 3), 1, 1.5, 0.0, math.inf, 1e3, 1e9)
    assert "the ring is not always faster" in ring_module._bandwidth([row])
    assert "no latency makes RAR" in ring_module._published([row])
    assert "are not below in all of them, 10 MB in some" in ring_module._size([row])


def test_coding_pays_where_workers_pause(made: Callable[..., Exhibit]) -> None:
    # one step in 37 is long: with 480 of them the mean is known to 4 %
    rows = by_name(made(pauses))
    bare, one, two = (rows[f"(4,3) s={s}",] for s in (0, 1, 2))
    names = ("CR", "GC/CR", "UMW/CR", "RAR/CR")
    assert numbers(bare, *names) == pytest.approx([104.3, 1.01, 1.01, 0.98], rel=0.03)
    assert numbers(one, *names) == pytest.approx([17.4, 4.89, 6.04, 5.85], rel=0.16)
    assert numbers(two, *names) == pytest.approx([21.4, 3.98, 4.91, 4.76], rel=0.03)
    assert "coding pays" in made(pauses).found[0]


def test_a_ring_is_overtaken_at_the_pauses_that_were_worked_out(
    made: Callable[..., Exhibit],
) -> None:
    found = made(pauses).found[2].split("in t_c, ")[1].split(" and ")
    places = [float(each.split()[0]) for each in found]
    assert places == pytest.approx([12, 27], rel=0.04)


# -- crossings -------------------------------------------------------------------------


def bent(x: float) -> Measured:
    """Flat, then steep: a straight line between neighbours would be far off."""
    return Measured(0.95 if x < 17.0 else 0.95 * (x / 17.0) ** 3, 0.01)


@pytest.mark.parametrize("grid", [(1.0, 10.0, 100.0), (5.0, 16.0, 30.0, 40.0)])
def test_a_crossing_does_not_hang_on_where_one_looks(grid: tuple[float, ...]) -> None:
    place = crossing(grid, bent)
    assert place is not None
    assert place.value == pytest.approx(17.0 * 0.95 ** (-1 / 3), rel=0.01)


@pytest.mark.parametrize("level", [0.5, 1.5])
def test_what_is_always_or_never_faster_crosses_nowhere(level: float) -> None:
    place = crossing((1.0, 2.0), lambda x: Measured(level))
    assert place is None
    assert where(place) == "nowhere"


# -- on real processes -----------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> FoursAndNines:
    return gisette_like(seed=1, features=100)


def test_the_set_has_the_size_it_is_said_to_have() -> None:
    data = gisette_like(seed=1)
    assert data.train[0].shape == (240, 5000)
    assert data.test[0].shape == (121, 5000)
    assert set(data.train[1]) == {-1.0, 1.0}


def test_the_set_can_be_learnt_but_not_with_labels_that_are_dealt_out(
    small: FoursAndNines,
) -> None:
    labels = np.random.default_rng(0).permutation(small.train[1])
    dealt = FoursAndNines((small.train[0], labels), small.test)
    assert descended(small, 60) > 0.85
    assert descended(dealt, 60) < 0.75


def descended(data: FoursAndNines, steps: int) -> float:
    x, gradient, rate = np.zeros(data.train[0].shape[1]), data.gradient(1), data.rate
    for step in range(steps):
        _, count, sums = gradient(x, 0, step)
        x = x - rate * sums / count
    return data.judge(x)[0]


def test_the_gradient_is_that_of_the_loss_whatever_the_parts(
    small: FoursAndNines,
) -> None:
    x = np.random.default_rng(2).standard_normal(100) / 10
    whole, by_parts = small.gradient(1), small.gradient(7)
    loss, count, sums = whole(x, 0, 0)
    parts = [by_parts(x, part, 0) for part in range(7)]
    assert sum(part[0] for part in parts) == pytest.approx(loss)
    assert sum(part[1] for part in parts) == count == 240
    np.testing.assert_allclose(sum(part[2] for part in parts), sums)
    step = np.zeros(100)
    step[3] = 1e-6
    slope = (whole(x + step, 0, 0)[0] - whole(x - step, 0, 0)[0]) / 2e-6
    assert slope == pytest.approx(sums[3], rel=1e-4)


def test_on_real_processes_a_tree_learns_what_a_single_process_does(
    small: FoursAndNines,
) -> None:
    times = Times(np.zeros((3, 12)), np.full((3, 12), 1e-3))
    shares: list[float] = []
    effort = Effort(advance=shares.append)
    tree = coded_reduce(12, 3, 1)
    run = live_module._run(tree, small, small.rate, times, effort)
    assert run.deviation < 1e-10
    assert len(run.seconds) == 2  # the first is off the clock
    assert len(run.score) == len(run.loss) == 3
    assert run.loss[0] > run.loss[1] > run.loss[2]
    assert run.load == pytest.approx(4 / 15)
    assert sum(shares) == pytest.approx(1 / 5)  # of five schemes


def test_all_schemes_have_the_same_delays_after_a_step_without_any(
    small: FoursAndNines, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Times] = {}

    def run(
        scheme: Scheme, data: FoursAndNines, rate: float, times: Times, effort: Effort
    ) -> object:
        given[scheme.name] = times
        seconds, scores = np.full(40, 0.1), np.linspace(0.5, 0.9, 41)
        return live_module._LiveRun(0.1, seconds, scores, 1 - scores, 0.0)

    monkeypatch.setattr(live_module, "_run", run)
    exhibit = live_module.live(Effort(quick=True), small)
    first, *others = given.values()
    assert len(given) == 5
    assert not first.fixed[0].any()
    assert not first.unit[0].any()
    assert first.fixed[1:].any()
    for each in others:
        np.testing.assert_array_equal(each.fixed, first.fixed)
        np.testing.assert_array_equal(each.unit, first.unit)
    assert f"12 worker processes of one machine, {NAME} (4 against 9" in exhibit.setting
    assert "off the clock" in exhibit.setting
    assert len(exhibit.table.rows) == 5
    assert exhibit.curves is not None


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [(0.5, "is faster than"), (2.0, "is not faster than"), (1.0, "as far as can be")],
)
def test_who_is_faster_is_only_said_where_it_can_be_told(
    seconds: float, verdict: str
) -> None:
    noise = np.random.default_rng(0).uniform(0.9, 1.1, (2, 40))
    one, other = (
        live_module._LiveRun(0.1, each, np.zeros(41), np.zeros(41), 0.0)
        for each in (seconds * noise[0], noise[1])
    )
    assert verdict in live_module._against({"A": one, "B": other}, "A", "B")


def test_the_clock_starts_after_the_step_that_is_off_it() -> None:
    loss = np.array([1.0, 1.0, 0.0])
    run = live_module._LiveRun(0.1, np.array([1.0, 2.0]), np.zeros(3), loss, 0.0)
    assert run.clock.tolist() == [0.0, 1.0, 3.0]
    assert run.to_goal == 3.0


# -- files -----------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [load, failure, ring, times, tail, pauses])
def test_every_row_has_a_cell_for_every_column(
    recipe: Callable[[Effort], Exhibit], made: Callable[..., Exhibit]
) -> None:
    table = made(recipe).table
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_exhibits_are_drawn_and_written(
    made: Callable[..., Exhibit], tmp_path: Path
) -> None:
    exhibit = made(ring)
    files = write_exhibit(tmp_path, PAPERS["coded-reduce"], exhibit)
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert len(files[1].read_text().splitlines()) == 1 + len(exhibit.table.rows)
    assert "published, at most" in files[2].read_text()
