"""The least seconds of simulated steps, on the delays that schemes meet."""

import numpy as np
import pytest

from codedgrad.codes.bounds import clairvoyant
from codedgrad.delays import Chain, Dead, ShiftedExponential, Sticky, Times, draw
from codedgrad.schemes import build
from codedgrad.sim import Machine, bounds, bounds_of, clairvoyant_of, compare

LAW = Chain(
    ShiftedExponential(floor=0.3, mean=0.7, fixed_floor=0.1, fixed_mean=0.1),
    Sticky(factor=5, enter=0.1, leave=0.3),
)


def _times(steps: int = 30, workers: int = 6) -> Times:
    return draw(LAW, steps=steps, workers=workers, seed=3)


@pytest.mark.parametrize("machine", [Machine(), Machine(drain=False)], ids=str)
def test_no_exact_scheme_ends_a_step_before_its_bound(machine: Machine) -> None:
    texts = ("uncoded", "uncoded(pieces=4)", "fractional(1)", "cyclic(2)", "two_stage")
    schemes = [build(text, 6) for text in texts]
    results = compare(schemes, LAW, steps=30, runs=2, seed=3, machine=machine)
    limits = bounds_of(schemes, LAW, steps=30, runs=2, seed=3)
    for result, limit in zip(results, limits, strict=True):
        assert limit.whole.shape == result.seconds.shape
        assert np.all(result.seconds >= limit.whole)  # to the last bit: on the grid
        assert np.all(limit.whole >= limit.fluid)


def test_parts_need_not_be_a_multiple_of_the_workers() -> None:
    times = _times()
    ends = clairvoyant_of(times, parts=7)
    part = times.part(7)
    moments = times.fixed[:, :, None] + np.arange(1, 8) * part[:, :, None]
    kth = np.sort(moments.reshape(len(ends), -1), axis=1)[:, 6]
    assert np.array_equal(ends, kth)


def test_equal_workers_leave_nothing_to_gain() -> None:
    [limit] = bounds_of([build("uncoded", 4)], ShiftedExponential(2.0), steps=3)
    [result] = compare([build("uncoded", 4)], ShiftedExponential(2.0), steps=3)
    assert np.array_equal(limit.whole, result.seconds)
    assert np.array_equal(limit.fluid, result.seconds)


def test_blocks_of_steps_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    times = _times()
    at_once = clairvoyant_of(times), clairvoyant_of(times, 12)
    monkeypatch.setattr(bounds, "_CELLS", 40)
    assert np.array_equal(clairvoyant_of(times), at_once[0])
    assert np.array_equal(clairvoyant_of(times, 12), at_once[1])


def test_where_later_orders_take_less_the_bound_is_lower() -> None:
    times, dead = _times(), Dead(2, step=10)
    rng = np.random.default_rng(0)
    quick = Times(times.fixed / 2, times.unit / 4)
    both = dead.change(Times(times.fixed, times.unit, again=quick), rng)
    alone = dead.change(quick, rng)
    for parts in (None, 12):
        ends = clairvoyant_of(both, parts)
        np.testing.assert_allclose(ends, clairvoyant_of(alone, parts), rtol=1e-8)
    slower = Times(times.fixed, times.unit, again=Times(times.fixed * 2, times.unit))
    fluid = clairvoyant(times.fixed, times.unit)
    assert np.array_equal(clairvoyant_of(slower), fluid)
