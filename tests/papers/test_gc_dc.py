"""What is found about dynamic clusters, from few numbers and from made-up ones."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from codedgrad.delays import draw
from codedgrad.papers import Exhibit
from codedgrad.papers.gc_dc import clusters, times
from codedgrad.papers.gc_dc.lab import BOUND, FINEST, KNOWN, moving
from codedgrad.papers.gc_dc.settings import (
    FAST,
    FLOOR,
    SLOW,
    WORKERS,
    A,
    B,
    Exactly,
    Unequal,
    waits,
)
from codedgrad.papers.measuring import Measured

Make = Callable[[str, str], Exhibit]


def column(made: Exhibit, header: str) -> list[float]:
    names = [each.header for each in made.table.columns]
    return [row[names.index(header)] for row in made.table.rows]  # type: ignore[misc]


def ratios(values: Sequence[float]) -> dict[str, Measured]:
    names = (BOUND, *KNOWN, "GC-SC", "GC")
    found = dict(zip(names, map(Measured, values), strict=True))
    seen = dict.fromkeys(("GC-DC, who was late", "GC-DC, learnt"), Measured(0.5))
    return found | seen


# -- the settings ----------------------------------------------------------------------


def test_the_settings_are_those_of_the_tables() -> None:
    assert (A.r, A.enter, A.leave) == (2, 0.02, 0.08)
    assert (B.r, B.enter, B.leave) == (3, 0.05, 0.05)
    assert A.delays.fast.mean * 10 == A.delays.slow.mean == SLOW


def test_exactly_so_many_workers_are_slow() -> None:
    times_ = draw(Exactly(4), steps=500, workers=WORKERS, seed=0)
    assert times_.truth is not None
    slow = times_.truth.slow
    assert np.all(slow.sum(axis=1) == 4)
    assert slow.mean(axis=0) == pytest.approx(0.2, abs=0.08)  # any of them
    assert times_.unit[slow].mean() == pytest.approx(FLOOR + SLOW, rel=0.1)
    assert times_.unit[~slow].mean() == pytest.approx(FLOOR + FAST, rel=0.1)


def test_unequal_workers_keep_their_speed_for_a_run() -> None:
    times_ = draw(Unequal(), steps=2000, workers=WORKERS, seed=0)
    assert times_.truth is not None
    assert not times_.truth.slow.any()
    typical = times_.truth.typical
    assert np.all(typical == typical[0])
    assert typical.min() >= FLOOR + 1 / 20
    assert typical.max() <= FLOOR + 1
    assert times_.unit.mean(axis=0) == pytest.approx(typical[0], rel=0.12)


def test_waiting_for_some_is_an_order_statistic() -> None:
    size = {"workers": 5, "steps": 30, "runs": 2, "seed": 3}
    found = waits(A.delays, 2, 4, **size)
    for run in range(2):
        unit = draw(A.delays, steps=30, workers=5, seed=3, run=run).unit
        np.testing.assert_array_equal(found[run], 2 * np.sort(unit, axis=1)[:, 3])


def test_clusters_are_those_of_the_setting_unless_said() -> None:
    scheme = moving(3, "oracle")
    assert (scheme.workers, scheme.grid.clusters, scheme.load) == (20, 5, 3)
    assert moving(2, "oracle", workers=24, clusters=8).workers == 24


# -- the exhibits ----------------------------------------------------------------------


def test_nothing_is_faster_than_the_bound_nor_slower_than_one_code(
    exhibit: Make,
) -> None:
    made = exhibit("gc-dc", "completion")
    names = column(made, "scheme")
    for setting in ("A", "B"):
        counted = dict(
            zip(names, column(made, f"{setting} threshold [GC = 1]"), strict=True)
        )
        known = [counted[name] for name in ("GC-SC", *KNOWN)]  # of the same runs
        assert counted[BOUND] <= min(known)
        assert max(known) <= counted["GC"] == 1
    seconds = column(made, "A threshold: mean step [s]")
    sooner = column(made, "A decodable: mean step [s]")
    assert all(s <= t for s, t in zip(sooner[:2], seconds[:2], strict=True))


def test_fractional_repetition_is_never_slower_than_coarser_clusters(
    exhibit: Make,
) -> None:
    made = exhibit("gc-dc", "refined")
    assert set(column(made, "finest slower [% of steps]")) == {0.0}
    assert "in no step were the finest" in made.found[0]
    static = column(made, "static [GC = 1]")
    assert static[:4] == sorted(static[:4], reverse=True)
    assert column(made, "stored by dynamic [parts]") == [20, 20, 12, 6, 24, 24, 18, 9]


def test_slow_workers_are_counted_from_none_to_ten(exhibit: Make) -> None:
    made = exhibit("gc-dc", "stragglers")
    assert column(made, "slow workers [count]") == list(range(11))
    bound, gc = column(made, f"{BOUND} [s]"), column(made, "GC [s]")
    dc = column(made, "GC-DC, perfect [s]")
    assert all(b <= d <= g for b, d, g in zip(bound, dc, gc, strict=True))


def test_all_laws_of_speed_are_compared_with_one_code(exhibit: Make) -> None:
    made = exhibit("gc-dc", "speeds")
    for case in ("no spells, r=2", "A's, r=2", "B's, r=3"):
        of_gc = column(made, f"{case} [GC = 1]")
        assert of_gc[0] == 1
        assert 0 < min(of_gc) < max(of_gc[1:]) < 1


def test_the_counter_setting_is_called_so(exhibit: Make) -> None:
    made = exhibit("gc-dc", "memory")
    assert made.title.startswith("Where it does not pay")
    assert column(made, "mean spell [steps]")[0] == 1.25


# -- what is said ----------------------------------------------------------------------


def test_an_order_that_does_not_hold_is_said_not_to() -> None:
    right, wrong = ratios([0.2, 0.3, 0.4, 0.5, 1.0]), ratios([0.2, 0.3, 0.6, 0.5, 1.0])
    assert "holds in A and B" in times._ordered([right, right])
    assert "takes 60 % (A) and 60 % (B) less time" in times._ordered([right, right])
    assert "does not hold here" in times._ordered([right, wrong])


def test_repetition_may_be_slower_than_dynamic_clusters() -> None:
    of = ratios([0.2, 0.3, 0.4, 0.5, 1.0])
    said = times._against_repetition(
        {
            "threshold": of | {FINEST: Measured(0.25)},
            "decodable": of | {FINEST: Measured(0.35)},
        }
    )
    assert "it is faster by rule threshold (0.25 and 0.30 of GC)" in said
    assert "and is not faster by rule decodable (0.35 and 0.30 of GC)" in said


def test_the_jump_is_where_it_is() -> None:
    sc = [1.0] * 11
    late = [0.4, 0.5, 0.5, 0.5, 0.5, 0.5, 1.2, 1.3, 1.4, 1.5, 1.6]
    early = [0.4, 0.5, 0.5, 1.2, 1.2, 1.2, 1.2, 1.3, 1.4, 1.5, 1.6]
    assert "at 6 slow workers, one more than the 5" in clusters._jump(late, sc)
    assert "at 3 slow workers, and not right after" in clusters._jump(early, sc)


def test_counts_at_which_repetition_is_slower_are_listed() -> None:
    dc = {"GC-DC, perfect": (0.5, 0.5, 0.5)}
    assert "at 3 of 3 counts." in clusters._finer(dc | {FINEST: (0.4, 0.4, 0.4)})
    said = clusters._finer(dc | {FINEST: (0.4, 0.6, 0.6)})
    assert "at 1 of 3 counts, not at 1 and 2." in said


def test_a_step_in_which_the_finest_were_slower_would_be_told() -> None:
    sizes = [clusters._Size("A", n, 0.5, 0.4, 0.3, 0, 10, 6) for n in (5, 10)]
    worse = [clusters._Size("B", 8, 0.5, 0.4, 0.3, 2, 10, 6)]
    assert "in no step" in clusters._finest(sizes, sizes)[0]
    assert "in 2 steps (does not hold here)" in clusters._finest(sizes, worse)[0]


@pytest.mark.parametrize(
    ("imperfect", "verdict"), [(0.52, "does not pay"), (0.40, "does pay (unexpected)")]
)
def test_without_memory_a_gain_would_be_told(imperfect: float, verdict: str) -> None:
    none = {
        "GC-SC": Measured(0.52, 0.01),
        "GC-DC, imperfect": Measured(imperfect, 0.01),
        "GC-DC, perfect": Measured(0.35, 0.01),
    }
    assert f"without memory GC-DC {verdict}" in clusters._memory(none, none)[0]
