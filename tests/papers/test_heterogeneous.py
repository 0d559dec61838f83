"""What is found about unequal workers, against closed forms and other code."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from codedgrad.codes import bounds, expected, heterogeneous
from codedgrad.papers import Exhibit
from codedgrad.papers.drawing import Curve
from codedgrad.papers.heterogeneous import errors
from codedgrad.papers.heterogeneous.adam import _at_best, _same, tracks
from codedgrad.papers.heterogeneous.exact import _COPIES, _Timed, _verdict
from codedgrad.papers.heterogeneous.load import _LossRow, _tuned
from codedgrad.papers.heterogeneous.settings import (
    BUDGETS,
    Contender,
    drawn,
    everything,
    fair,
    late,
    part_weights,
    published,
    published_weights,
    regular,
    steps_needed,
)
from codedgrad.papers.heterogeneous.steps import _ahead, _order
from codedgrad.papers.heterogeneous.task import LeastSquaresTask
from codedgrad.torch import two_track

Make = Callable[[str, str], Exhibit]
P = late(regular(10), BUDGETS[0])


def rows(made: Exhibit) -> dict[str, tuple[float, ...]]:
    return {str(row[0]): row[1:] for row in made.table.rows}  # type: ignore[misc]


# -- the task --------------------------------------------------------------------------


def test_with_everybody_heard_it_is_gradient_descent() -> None:
    task, sizes = LeastSquaresTask(10), np.array([0.05, 0.5])
    x, path = np.zeros((2, 20)), []
    for _ in range(30):
        x = x - sizes[:, None] * (x @ task.curvature - task.h.sum(axis=0))
        path.append(x - task.optimum)
    gaps = np.array(path)
    start = task.optimum @ task.optimum
    everybody = np.ones((30, 1, 10))
    np.testing.assert_allclose(
        task.distances(everybody, sizes)[:, :, 0],
        np.square(gaps).sum(axis=2) / start,
        rtol=1e-9,
        atol=1e-20,
    )
    loss = np.einsum("tsd,de,tse->ts", gaps, task.curvature, gaps)
    first = task.optimum @ task.curvature @ task.optimum
    found = task.losses(everybody, sizes)[:, :, 0]
    np.testing.assert_allclose(found, loss / first, rtol=1e-9, atol=1e-20)


def test_the_optimum_does_not_depend_on_how_samples_are_cut() -> None:
    np.testing.assert_allclose(
        LeastSquaresTask(10).optimum, LeastSquaresTask(100).optimum
    )


def test_what_diverges_stays_finite() -> None:
    found = LeastSquaresTask(10).distances(np.ones((50, 1, 10)), np.array([100.0]))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("two", [False, True])
def test_adam_is_that_of_torch_with_its_two_tracks(two: bool) -> None:
    runs, count, rate = 3, 25, 0.05
    task, (first, second) = LeastSquaresTask(10), tracks(P, runs, count, seed=1)
    kappa = bounds.shrink(P.tolist())
    x = torch.zeros((runs, 20), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=rate)
    if two:
        optimizer = two_track(optimizer, kappa)
    losses = []
    for c in first:
        H = np.einsum("rj,jde->rde", c, task.H)
        gradient = np.einsum("rde,re->rd", H, x.detach().numpy()) - c @ task.h
        x.grad = torch.from_numpy(gradient)
        optimizer.step()
        gap = x.detach().numpy() - task.optimum
        losses.append(np.einsum("rd,de,re->r", gap, task.curvature, gap))
    start = task.optimum @ task.curvature @ task.optimum
    found = task.adam(first, second if two else first, np.array([rate]))[:, 0]
    np.testing.assert_allclose(found, np.array(losses) / start, rtol=1e-8)


def test_the_second_decoding_is_a_multiple_of_the_first() -> None:
    first, second = tracks(P, 4, 5, seed=0)
    np.testing.assert_allclose(second, bounds.shrink(P.tolist()) * first, atol=1e-12)


# -- the schemes -----------------------------------------------------------------------


def test_all_schemes_meet_the_same_workers_whatever_else_is_compared() -> None:
    few = published_weights(10, 1.5, runs=3, slow_runs=1, steps=6)
    more = published_weights(10, 1.5, runs=5, slow_runs=2, steps=6)
    assert {name: each.shape for name, each in few.items()} == {
        name: (6, 1 if name == "OD" else 3, 10) for name in published(10)
    }
    for name, each in few.items():
        np.testing.assert_array_equal(each, more[name][:, : each.shape[1]])


def test_unbiased_schemes_give_every_part_its_weight_on_average() -> None:
    # 5 standard errors of 20,000 patterns.
    p = late(regular(10), 1.5)
    for name in ("interval", "OSGC I", "SGC", "all parts at all workers"):
        found = drawn(fair()[name], p, 200, 100, seed=0).reshape(-1, 10)
        error = found.std(axis=0) / np.sqrt(len(found))
        assert np.all(np.abs(found.mean(axis=0) - 1) <= 5 * error + 1e-12), name


def test_gd_hears_everybody() -> None:
    heard = np.zeros((2, 10), dtype=np.bool_)
    assert np.all(part_weights(everything(P, 0), heard) == 1)


def test_steps_needed_are_those_of_the_best_size_on_other_runs() -> None:
    found = steps_needed(fair()["GD"], P, runs=2, sizes=np.array([0.01, 0.8, 50.0]))
    assert (found.steps, found.size) == (2, 0.8)
    never = steps_needed(
        Contender(everything), P, runs=2, most=3, sizes=np.array([0.001, 0.01])
    )
    assert np.isinf(never.steps)


# -- the exhibits ----------------------------------------------------------------------


def test_the_errors_are_those_of_the_worked_table(exhibit: Make) -> None:
    found = rows(exhibit("heterogeneous", "negative"))
    for name, values in {
        "SGC, 2 copies": (0, 0.04375, 0.21877, 0, 0.37117, 1.85583),
        "OSGC I (common)": (6, 0.02058, 0.51041, 5, 0.13000, 6.26691),
        "OSGC II (chain)": (8, 0.02058, 3.23646, 9, 0.13000, 27.90382),
        "interval": (0, 0.02058, 0.10482, 0, 0.13000, 0.77524),
        "interval, normalised": (0, 0.0, 0.12577, 0, 0.00525, 1.04159),
        "everything everywhere": (0, 0.02058, 0.02058, 0, 0.13000, 0.13000),
    }.items():
        assert found[name] == pytest.approx(values, abs=1e-5), name


@pytest.mark.parametrize(
    ("allocation", "count"), [("common", 1), ("chain", 2), ("interval", 0)]
)
def test_negative_coefficients_are_those_of_the_worked_example(
    allocation: str, count: int
) -> None:
    code = heterogeneous(4, [0.1, 0.2, 0.4, 0.5], allocation=allocation)
    assert errors.negatives(code) == count


def test_schemes_one_and_two_are_said_to_carry_negative_coefficients(
    exhibit: Make,
) -> None:
    said = exhibit("heterogeneous", "negative").found
    assert said[0].startswith("schemes I and II carry negative coefficients")
    assert "interval 0 and 0" in said[0]
    assert "all three err alike" in said[1]


def test_equal_workers_gain_nothing(exhibit: Make) -> None:
    made = exhibit("heterogeneous", "equal")
    first = made.table.rows[0]
    assert first == pytest.approx((0.0, 1.0, 1.0, 4 / 3, 2.0, 1.0))
    for row in made.table.rows:
        assert row[2] == pytest.approx(row[5])  # the closed form
    assert "there is no gain where gradients are alike" in made.found[0]


def test_the_published_order_is_found_on_the_four_points(exhibit: Make) -> None:
    made = exhibit("heterogeneous", "steps")
    assert [panel.heading for panel in made.panels] == [
        "10 workers, budget 1.1 s",
        "10 workers, budget 1.5 s",
        "100 workers, budget 1.1 s",
        "100 workers, budget 1.5 s",
    ]
    found = rows(made)
    for point in range(4):
        ends = {name: values[point] for name, values in found.items()}
        assert ends["GD"] < min(ends["interval"], ends["SGC"])
        assert max(ends["interval"], ends["SGC"]) < min(
            ends[name] for name in ("EHD", "BGC", "OD", "IS-SGD")
        )
    assert "would give 0.77 and 0.98" in made.found[2]


def test_loads_are_the_copies_of_a_part(exhibit: Make) -> None:
    made = exhibit("heterogeneous", "load")
    loads = [row[1] for row in made.table.rows if row[0] == "interval"]
    assert loads == pytest.approx([1.09, 1.18, 1.45, 1.9])
    for parts, load in ((20, 1.45), (10, 1.9)):
        code = heterogeneous(10, P, parts=parts)
        assert code.work / parts == pytest.approx(load)
    gd = rows(made)["GD"]
    assert gd[1] == pytest.approx(gd[2])  # it is the exact gradient
    assert gd[3] == 2


def test_two_tracks_are_found_to_be_a_larger_rate(exhibit: Make) -> None:
    made = exhibit("heterogeneous", "adam")
    assert set(rows(made)) == {
        "GD",
        "SGC",
        "interval, one track",
        "interval, two tracks",
    }
    assert "is the same (relative difference up to" in made.found[1]


def test_the_exact_sum_is_compared_in_seconds(exhibit: Make) -> None:
    found = rows(exhibit("heterogeneous", "exact"))
    assert found["interval, 1.1 s"][1] == 1.1
    several = [found[f"exact, {copies} copies"][1] for copies in (2, 5, 10)]
    assert found["exact, wait for all"][1] > several[0] > several[1] > several[2] > 1
    for name, (_, step, needed, time, *_) in found.items():
        if np.isfinite(time):
            assert time == pytest.approx(step * needed), name


def test_closed_form_and_enumeration_agree_on_any_probabilities() -> None:
    p = np.random.default_rng(0).uniform(0.05, 0.9, 8)
    _, alike, _, _, law = errors._against_sgc(p)
    assert alike == pytest.approx(law)
    found = expected(heterogeneous(8, p), p)
    assert found.aligned == pytest.approx(bounds.unbiased_error(p.tolist()))


# -- what is said ----------------------------------------------------------------------


def test_an_order_that_does_not_hold_is_said_not_to() -> None:
    loss = {"GD": 0.1, "OSGC I": 0.2, "SGC": 0.3, "EHD": 0.4, "BGC": 0.5, "OD": 0.6,
            "IS-SGD": 0.7}  # fmt: skip
    right = {name: np.full((2, 3), value) for name, value in loss.items()}
    wrong = right | {"OD": np.full((2, 3), 0.25)}
    assert "holds at all four" in _order([right] * 4)
    assert "does not hold at all four" in _order([right, right, right, wrong])
    names = ["a", "b", "c", "d"]
    assert "at all four" in _ahead(names, [right] * 4)
    even = right | {"OSGC I": right["SGC"]}
    assert "nowhere" in _ahead(names, [even] * 4)
    assert "at 2 of four" in _ahead(names, [right, right, even, even])


def test_tuned_steps_may_leave_interval_behind_or_ahead() -> None:
    def found(interval: float | None) -> str:
        names = ("SGC", "EHD", "BGC", "OD", "IS-SGD")
        others = [_LossRow(name, 2.0, 0.1, 0.1, 8.0, 0.4) for name in names]
        ours = [
            _LossRow(n, 1.9, 0.1, 0.1, interval, 0.4) for n in ("interval", "OSGC I")
        ]
        return _tuned([*others, *ours])

    assert "interval is ahead of the best baseline, SGC (8)" in found(7.0)
    assert "interval is not ahead of the best baseline" in found(8.0)
    assert "not ahead" in found(None)


def test_tracks_that_differ_would_be_told() -> None:
    assert "is the same" in _same(1e-9, 0.5)
    assert "is not the same" in _same(1e-3, 0.5)
    one, two = "interval, one track", "interval, two tracks"
    table = (("GD", 0.1, 1e-9, 0.5), (one, 0.1, 0.02, 0.1))
    assert "no gain is left" in _at_best((*table, (two, 0.1, 0.0199, 0.1)))
    assert "a gain is left" in _at_best((*table, (two, 0.1, 0.01, 0.1)))


def test_a_code_that_pays_is_said_to() -> None:
    curve = Curve("x", [0.0], [1.0])

    def found(seconds: float) -> str:
        own = {"interval, 2 s": _Timed(1.9, seconds, 1, curve)}
        own |= {_COPIES[d]: _Timed(d, 5.0 / d, 2, curve) for d in (1, 2, 5, 10)}
        return _verdict("here", own)

    assert "here OSGC pays against" in found(4.9)
    assert "here OSGC does not pay against" in found(5.0)
