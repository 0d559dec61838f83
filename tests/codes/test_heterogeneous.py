"""Codes for workers of individual reliability: facts, decoders, robustness."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest

from codedgrad.codes import (
    Code,
    bounds,
    decode,
    expected,
    heterogeneous,
    refined,
    stochastic,
)
from codedgrad.codes.decoders import (
    Debiased,
    Fixed,
    GramLeastSquares,
    LeastSquares,
    Normalised,
    OneStep,
    Prescribed,
)
from codedgrad.codes.families.allocation import odds, shares
from codedgrad.codes.families.heterogeneous import DECODINGS
from codedgrad.codes.sparse import combine, tidy
from codedgrad.errors import InvalidCode
from codedgrad.schemes.stop_rules import Decodable
from codedgrad.testing import check_code

P = np.array([0.1, 0.2, 0.4, 0.5])
T15 = np.exp(-0.5 * np.linspace(0.1, 2, 10))
KINDS = [(a, d) for a in ("interval", "common", "chain") for d in DECODINGS]


def _patterns(workers: int) -> np.ndarray:
    return (np.arange(2**workers)[:, None] >> np.arange(workers)) & 1 == 1


def _law(heard: np.ndarray, p: np.ndarray) -> np.ndarray:
    return np.prod(np.where(heard, 1 - p, p), axis=1)


@pytest.mark.parametrize(("allocation", "decoding"), KINDS)
@pytest.mark.parametrize("parts", [2, 4, 9])
def test_a_code_passes_the_conformance_suite(
    allocation: str, decoding: str, parts: int
) -> None:
    code = heterogeneous(4, P, parts=parts, allocation=allocation, decoding=decoding)
    assert code.parts == parts
    assert code.tolerance is None
    check_code(code)


@pytest.mark.parametrize("correlation", [None, 0.0, 0.5, 0.9, -0.05])
@pytest.mark.parametrize("parts", [3, 10, 26])
def test_fixed_weights_are_right_on_average(
    correlation: float | None, parts: int
) -> None:
    code = heterogeneous(10, T15, parts=parts, correlation=correlation)
    np.testing.assert_allclose(expected(code, T15).weights, 1)


def test_the_coefficients_of_a_worker_sum_to_1() -> None:
    for allocation in ("interval", "common", "chain"):
        code = heterogeneous(10, T15, allocation=allocation, parts=13)
        np.testing.assert_allclose(code.B.sum(axis=1), 1)


def test_a_worker_whose_mass_cancels_keeps_coefficients_of_a_common_size() -> None:
    from codedgrad.codes.families.heterogeneous import _means

    B, gauge = _means(tidy(np.array([[1.0, -1.0], [0.0, 2.0], [1e-9, -1e-9]])))
    np.testing.assert_allclose(B.toarray(), [[0.5, -0.5], [0, 1], [0.5, -0.5]])
    np.testing.assert_allclose(gauge, [2, 2, 2e-9])


def test_copies_are_fewer_than_two_with_as_many_parts_as_workers() -> None:
    assert heterogeneous(10, T15).work == 19
    assert heterogeneous(10, T15, parts=26).work / 26 == pytest.approx(1.346, abs=1e-3)


def test_whatever_the_gradients_full_replication_reaches_the_least_error() -> None:
    """No unbiased fixed weights do better, for any inner products at all."""
    rng, heard = np.random.default_rng(0), _patterns(4)
    law, full = _law(heard, P), shares(P, 4)[:, None] / np.ones((1, 4)) / 4
    for _ in range(5):
        G = rng.standard_normal((4, 6))
        G = G @ G.T
        least = G.sum() * bounds.unbiased_error(P)
        gap = (heard / (1 - P)) @ full - 1
        assert law @ np.einsum("bj,jl,bl->b", gap, G, gap) == pytest.approx(least)
        other = heterogeneous(4, P)
        gap = combine(other.decoder.weights(heard), other.B) - 1
        assert law @ np.einsum("bj,jl,bl->b", gap, G, gap) >= least


@pytest.mark.parametrize("p", [P, T15, np.full(6, 0.3)], ids=["four", "ten", "equal"])
def test_the_gain_over_balanced_codes_is_a_ratio_of_means(p: np.ndarray) -> None:
    k, delta = p.size, p / (1 - p)
    ours = expected(heterogeneous(k, p), p).aligned
    balanced = expected(stochastic(k, 2, p, placement="cyclic"), p).aligned
    assert balanced == pytest.approx(delta.sum() / k**2)
    assert balanced / ours == pytest.approx(delta.mean() * (1 / delta).mean())
    assert balanced / ours >= 1 - 1e-12


def test_equal_workers_need_no_copies() -> None:
    code = heterogeneous(6, 0.3)
    np.testing.assert_allclose(code.B.toarray(), np.eye(6), atol=1e-12)
    weights = code.decoder.weights(np.ones((1, 6), dtype=bool))
    np.testing.assert_allclose(weights, 1 / 0.7)


@pytest.mark.parametrize("copies", [2, 3])
def test_inverse_odds_are_the_best_weights_for_orthogonal_gradients(
    copies: int,
) -> None:
    options = {"placement": "cyclic", "weights": "inverse-odds"}
    code = stochastic(10, copies, T15, **options)
    held = code.B.toarray() != 0
    best = np.mean(1 / (odds(T15) @ held))
    assert expected(code, T15).orthogonal == pytest.approx(best)
    same = stochastic(10, copies, 0.4, **options)
    floor = 0.4 / (copies * (1 - 0.4))  # of any unbiased code of fixed weights
    assert expected(same, 0.4).orthogonal == pytest.approx(floor)
    equal = stochastic(10, copies, 0.4, placement="cyclic")
    np.testing.assert_allclose(same.B.toarray(), equal.B.toarray())


def test_random_placements_may_have_inverse_odds_too() -> None:
    code = stochastic(10, 3, T15, weights="inverse-odds", seed=4)
    assert code.placement == stochastic(10, 3, T15, seed=4).placement
    found = expected(code, T15)
    np.testing.assert_allclose(found.weights, 1)
    assert found.orthogonal < expected(stochastic(10, 3, T15, seed=4), T15).orthogonal


@pytest.mark.parametrize(
    ("workers", "budget", "error", "gain"),
    [(10, 1.1, 0.915, 1.65), (10, 1.5, 0.138, 1.94), (100, 1.1, 0.0893, 1.71),
     (100, 1.5, 0.0133, 2.02)],
)  # fmt: skip
def test_the_gain_for_random_workers(
    workers: int, budget: float, error: float, gain: float
) -> None:
    """Means of 4000 draws, as are those compared with: 1 % is 3 standard errors."""
    psi = np.random.default_rng(0).uniform(0.1, 2, (4000, workers))
    p = np.exp(-(budget - 1) * psi)
    s = (1 - p) / p
    assert np.mean(1 / s.sum(axis=1)) == pytest.approx(error, rel=0.01)
    ratios = np.mean(1 / s, axis=1) * np.mean(s, axis=1)
    assert np.mean(ratios) == pytest.approx(gain, rel=0.015)


def test_the_shrink_of_the_second_track() -> None:
    assert bounds.shrink(P) == pytest.approx(0.939394, abs=5e-7)
    assert bounds.shrink(P, strength=10) == pytest.approx(0.993590, abs=5e-7)
    # It is the scale of least error: 1 / (1 + S) where gradients are alike.
    S = odds(P).sum()
    errors = [(1 - k) ** 2 + k**2 / S for k in np.linspace(0.5, 1.2, 701)]
    assert min(errors) == pytest.approx(1 / (1 + S), rel=1e-4)
    best = (1 - bounds.shrink(P)) ** 2 + bounds.shrink(P) ** 2 / S
    assert best == pytest.approx(1 / (1 + S))


@pytest.mark.parametrize("decoding", ["fixed", "debiased"])
@pytest.mark.parametrize("allocation", ["interval", "common"])
def test_sums_of_many_steps_are_unbiased(decoding: str, allocation: str) -> None:
    """10,000 steps; every part within 3 standard errors of 1.

    Of all seeds one in ten would raise a false alarm somewhere; this one does not.
    """
    code = heterogeneous(10, T15, decoding=decoding, allocation=allocation)
    heard = np.random.default_rng(0).random((10_000, 10)) >= T15
    c = combine(code.decoder.weights(heard), code.B)
    errors = (c.mean(axis=0) - 1) / (c.std(axis=0) / 100)
    assert np.abs(errors).max() < 3


def test_normalised_weights_of_parts_sum_to_their_number() -> None:
    heard = _patterns(10)
    code = heterogeneous(10, T15, decoding="normalised", parts=7)
    c = combine(code.decoder.weights(heard), code.B)
    np.testing.assert_allclose(c[1:].sum(axis=1), 7)
    assert not np.any(c[0])


def test_normalised_weights_do_not_mind_a_common_error_of_the_estimates() -> None:
    heard = _patterns(10)
    right = Normalised(heterogeneous(10, T15).B, 1 / (1 - T15))
    wrong = Normalised(heterogeneous(10, T15).B, 3 / (1 - T15))
    np.testing.assert_allclose(right.weights(heard), wrong.weights(heard))


def test_messages_that_cancel_are_not_scaled_up() -> None:
    B = tidy(np.array([[1.0, 0.0], [0.0, -1.0]]))
    decoder = Normalised(B)
    np.testing.assert_array_equal(decoder.weights(_patterns(2))[[0, 2, 3]], 0)
    np.testing.assert_array_equal(decoder.weights(_patterns(2))[1], [2, 0])


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("allocation", ["interval", "common", "chain"])
def test_gram_weights_are_those_of_the_formula(rho: float, allocation: str) -> None:
    B = heterogeneous(7, T15[:7], allocation=allocation).B
    decoder, dense = GramLeastSquares(B, rho), B.toarray()
    G = (1 - rho) * np.eye(7) + rho
    for heard in _patterns(7)[::5]:
        A = dense[heard]
        want = np.linalg.pinv(A @ G @ A.T, rcond=1e-13) @ A @ G @ np.ones(7)
        got = decoder.weights(heard[None])[0]
        assert not np.any(got[~heard])
        np.testing.assert_allclose(got[heard] @ A, want @ A, atol=1e-6)


def test_gram_weights_have_the_least_error_pattern_by_pattern() -> None:
    heard, rho = _patterns(10), 0.5
    codes = {d: heterogeneous(10, T15, decoding=d) for d in DECODINGS}

    def errors(code: Code) -> np.ndarray:
        gap = combine(code.decoder.weights(heard), code.B) - 1
        return (1 - rho) * np.square(gap).sum(axis=1) + rho * gap.sum(axis=1) ** 2

    best = errors(codes.pop("gram"))
    del codes["debiased"]  # it has other coefficients
    for code in codes.values():
        assert np.all(best <= errors(code) + 1e-9)


def test_gram_weights_are_kept_by_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = heterogeneous(6, T15[:6], decoding="gram").decoder
    heard = _patterns(6)[20:30]
    first = decoder.weights(heard)
    monkeypatch.setattr(LeastSquares, "_solve", None)
    np.testing.assert_array_equal(decoder.weights(heard), first)


def test_a_cap_is_kept_unless_mass_is_divided_for_a_correlation() -> None:
    p = np.array([0.01] + [0.9] * 9)

    def largest(correlation: float | None) -> float:
        code = heterogeneous(10, p, cap=1.5, correlation=correlation)
        return float(np.max(code.decoder.weights(np.ones((1, 10), bool)) * (1 - p)))

    assert largest(None) == pytest.approx(1.5)
    assert largest(0.9) > 1.9  # it also holds the other half of its last part


def test_the_gram_decoder_takes_the_correlation_it_is_told() -> None:
    told = heterogeneous(6, T15[:6], decoding="gram", correlation=0.8)
    same = GramLeastSquares(told.B, 0.8)
    heard = _patterns(6)
    np.testing.assert_array_equal(told.decoder.weights(heard), same.weights(heard))
    # Below 0 it would make next to nothing of what was heard.
    below = heterogeneous(6, T15[:6], decoding="gram", correlation=-0.15)
    plain = LeastSquares(below.B)
    np.testing.assert_allclose(below.decoder.weights(heard), plain.weights(heard))


@pytest.mark.parametrize("allocation", ["interval", "common", "chain"])
@pytest.mark.parametrize("rho", [0.0, 0.4, 0.9])
def test_a_known_correlation_lowers_the_error_at_it(
    allocation: str, rho: float
) -> None:
    told = heterogeneous(10, T15, allocation=allocation, correlation=rho)
    plain = heterogeneous(10, T15, allocation=allocation)
    assert told.placement == plain.placement
    assert expected(told, T15).error(rho) < expected(plain, T15).error(rho)


def test_a_debiased_code_is_judged_by_its_own_matrix() -> None:
    plain = heterogeneous(4, P, decoding="optimal")
    code = heterogeneous(4, P, decoding="debiased")
    everybody = np.ones((1, 4), dtype=bool)
    assert plain.decodable(range(4))
    assert not code.decodable(range(4))
    np.testing.assert_array_equal(
        code.decoder.weights(everybody), plain.decoder.weights(everybody)
    )
    mean = expected(plain, P).weights
    np.testing.assert_allclose(code.B.toarray() * mean, plain.B.toarray())
    assert not isinstance(code.decoder, LeastSquares)
    tally = Decodable().start(code)  # it would take a `LeastSquares` at its matrix
    assert not any([tally.hear(message) for message in range(4)])


def test_many_workers_are_debiased_by_a_sample() -> None:
    p = np.linspace(0.1, 0.7, 20)
    code = heterogeneous(20, p, decoding="debiased", seed=3)
    again = heterogeneous(20, p, decoding="debiased", seed=3)
    other = heterogeneous(20, p, decoding="debiased", seed=4)
    np.testing.assert_array_equal(code.B.data, again.B.data)
    assert np.any(code.B.data != other.B.data)
    found = expected(code, p, seed=9)
    np.testing.assert_allclose(found.weights, 1, atol=0.05)


def test_with_nobody_ever_late_the_sum_is_exact() -> None:
    for decoding in DECODINGS:
        code = heterogeneous(6, 0.0, decoding=decoding)
        assert decode(code, range(6)).is_exact
    mixed = heterogeneous(6, [0.0, 0.3, 0.0, 0.2, 0.0, 0.6])
    np.testing.assert_allclose(
        expected(mixed, [0.0, 0.3, 0.0, 0.2, 0.0, 0.6]).weights, 1
    )


@pytest.mark.parametrize(
    ("steps", "off"), [(20, 0.34), (50, 0.22), (200, 0.11), (1000, 0.052)]
)
def test_observed_lateness_does_nearly_as_well_as_the_true_one(
    steps: int, off: float
) -> None:
    """Mean of 60 estimates; the numbers compared with are of another such sample."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(60):
        estimate = (rng.binomial(steps, T15) + 1) / (steps + 2)
        found.append(expected(heterogeneous(10, estimate), T15))
    bias = np.mean([np.abs(one.weights - 1).max() for one in found])
    assert bias == pytest.approx(off, rel=0.15)
    error = np.mean([one.aligned for one in found])
    assert error == pytest.approx(bounds.unbiased_error(T15), rel=0.04)


def test_a_cap_bounds_what_one_worker_carries() -> None:
    p = [0.001, 0.5, 0.5, 0.5]
    assert len(heterogeneous(4, p).placement[0]) == 4
    capped = heterogeneous(4, p, cap=1.5)
    assert len(capped.placement[0]) == 2
    np.testing.assert_allclose(expected(capped, p).weights, 1)


@pytest.mark.parametrize("decoding", DECODINGS)
def test_a_code_can_be_cut_finer_and_sent_elsewhere(decoding: str) -> None:
    code = heterogeneous(4, P, decoding=decoding)
    same = pickle.loads(pickle.dumps(code))
    heard = _patterns(4)
    np.testing.assert_array_equal(
        same.decoder.weights(heard), code.decoder.weights(heard)
    )
    assert expected(refined(code, 2), P).aligned == pytest.approx(
        expected(code, P).aligned
    )


def test_weights_by_rule_have_a_common_base_and_others_have_not() -> None:
    kinds = {d: heterogeneous(4, P, decoding=d).decoder for d in DECODINGS}
    assert {d for d, one in kinds.items() if isinstance(one, Prescribed)} == {
        "fixed", "normalised", "gram", "debiased",
    }  # fmt: skip
    for kind in (Fixed, OneStep, Normalised, GramLeastSquares, Debiased):
        assert issubclass(kind, Prescribed)
    assert not issubclass(LeastSquares, Prescribed)


def test_fixed_weights_are_1_unless_told_otherwise() -> None:
    B, heard = tidy(np.eye(2)), np.array([[True, False], [True, True]])
    np.testing.assert_array_equal(Fixed(B).weights(heard), heard)
    np.testing.assert_array_equal(Fixed(B, 0.5).weights(heard), heard / 2)
    own = Fixed(B, np.array([3.0, 4.0])).weights(heard)
    np.testing.assert_array_equal(own, [[3, 0], [3, 4]])


def test_names_say_what_was_asked_for() -> None:
    assert str(heterogeneous(3, 0.25)) == (
        "heterogeneous(workers=3, straggle=0.25, parts=3, allocation='interval', "
        "decoding='fixed')"
    )
    code = heterogeneous(4, P, decoding="gram", correlation=0.5, cap=2.0, parts=5)
    assert str(code) == (
        "heterogeneous(workers=4, straggle=one per worker, parts=5, "
        "allocation='interval', decoding='gram', correlation=0.5, cap=2)"
    )


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: heterogeneous(0, 0.1), "workers = 0 is out of range"),
        (lambda: heterogeneous(3, [0.1]), "straggle has shape (1,), workers = 3"),
        (lambda: heterogeneous(3, 1.0), "straggle = 1.0 is not in [0, 1)"),
        (lambda: heterogeneous(3, 0.1, parts=0), "parts = 0 is out of range"),
        (
            lambda: heterogeneous(3, 0.1, allocation="ring"),
            "try allocation in ['interval', 'common', 'chain']",
        ),
        (
            lambda: heterogeneous(3, 0.1, decoding="best"),
            "try decoding in ['fixed', 'normalised', 'optimal', 'gram', 'debiased']",
        ),
        (
            lambda: heterogeneous(3, 0.1, correlation=2),
            "heterogeneous: correlation = 2 is none; try a number from -1 to 1",
        ),
        (lambda: heterogeneous(3, 0.1, cap=0.5), "cannot carry 3 parts"),
        (lambda: heterogeneous(3, 0.1, decoding="debiased", seed=-1), "seed = -1"),
        (
            lambda: heterogeneous(2, 1 - 1e-9, decoding="debiased"),
            "not to be made 1; try decoding='fixed'",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(build: Callable, text: str) -> None:
    with pytest.raises(InvalidCode) as raised:
        build()
    assert text in str(raised.value)
