"""Static clustering against its table, closed forms, and what must hold on every path.

GC is `cyclic`, SC is `clustered`; stop rule threshold, workers that cancel at once.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.integrate import quad

from codedgrad.codes.decoders import OneStep
from codedgrad.core import Scheme
from codedgrad.delays import Delays, Markov, ShiftedExponential
from codedgrad.papers.gc_dc import settings
from codedgrad.papers.gc_dc.settings import AT_ONCE, Spells
from codedgrad.schemes import CodedScheme, clustered, cyclic, fractional, uncoded
from codedgrad.schemes.stop_rules import First
from codedgrad.sim import Result, compare

K, P = settings.WORKERS, settings.CLUSTERS
FLOOR, FAST_MEAN = settings.FLOOR, settings.FAST


@dataclass(frozen=True)
class Setting:
    """A reference setting and what is to be expected of it."""

    spells: Spells
    mean_gc: float
    sc_over_gc: float

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return self.spells.name

    @property
    def r(self) -> int:
        return self.spells.r

    @property
    def delays(self) -> Markov:
        return self.spells.delays

    @property
    def schemes(self) -> tuple[CodedScheme, CodedScheme]:
        return (
            cyclic(K, self.r - 1, rule="threshold"),
            clustered(K, P, self.r - 1, rule="threshold"),
        )


SETTINGS = (
    Setting(settings.A, mean_gc=2.127, sc_over_gc=0.520),
    Setting(settings.B, mean_gc=4.234, sc_over_gc=0.360),
)


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Result]]:
    """240 runs of 300 steps of GC and SC, for both settings."""
    return {
        setting.name: compare(
            setting.schemes,
            setting.delays,
            steps=300,
            runs=240,
            seed=1,
            machine=AT_ONCE,
        )
        for setting in SETTINGS
    }


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_clusters_shorten_the_mean_step_as_much_as_the_table_says(
    setting: Setting, runs: dict[str, list[Result]]
) -> None:
    gc, sc = runs[setting.name]
    ratio = sc.seconds.mean() / gc.seconds.mean()
    print(f"{setting}: SC/GC {ratio:.4f}, expected {setting.sc_over_gc}")
    assert ratio == pytest.approx(setting.sc_over_gc, abs=0.01)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_mean_step_of_gradient_coding_is_that_of_the_table(
    setting: Setting, runs: dict[str, list[Result]]
) -> None:
    # Runs are independent, steps are not: the error is that of the means of runs.
    # 3 standard errors: 0.3 % of seeds fail, were the table's figure exact.
    means = runs[setting.name][0].seconds.mean(axis=1)
    error = means.std(ddof=1) / math.sqrt(len(means))
    print(f"{setting}: GC {means.mean():.4f} +- {error:.4f} s of {setting.mean_gc}")
    assert abs(means.mean() - setting.mean_gc) <= 3 * error
    assert 3 * error <= 0.05 * setting.mean_gc


# -- without stragglers: T = r (alpha + E / mu), E exponential -------------------------


def order_statistic(wait_for: int, workers: int, x: float) -> float:
    """P(at least `wait_for` of `workers` unit exponentials are below x)."""
    done = -math.expm1(-x)
    return sum(
        math.comb(workers, j) * done**j * (1 - done) ** (workers - j)
        for j in range(wait_for, workers + 1)
    )


def mean_seconds(r: int, clusters: int, wait_for: int, workers: int) -> float:
    """Mean of the slowest cluster, when each waits for so many of its workers."""
    excess, _ = quad(
        lambda x: 1.0 - order_statistic(wait_for, workers, x) ** clusters, 0, 60
    )
    return r * (FLOOR + FAST_MEAN * excess)


def harmonic(n: int) -> float:
    return math.fsum(1 / i for i in range(1, n + 1))


def lower_bound(r: int) -> CodedScheme:
    """All of the load, and the first K - P (r - 1) answers: perfectly spread."""
    code = cyclic(K, r - 1).code
    quick = replace(code, decoder=OneStep(code.B, copies=r))  # its weights are not used
    return CodedScheme("lower bound", quick, First(K - P * (r - 1)))


CLOSED_FORMS = [
    ("GC r=2", cyclic(K, 1, rule="threshold"), mean_seconds(2, 1, K - 1, K), 0.53955),
    ("SC r=2", clustered(K, P, 1, rule="threshold"), mean_seconds(2, P, 3, 4), 0.40206),
    ("LB r=2", lower_bound(2), mean_seconds(2, 1, K - P, K), 0.28288),
    ("GC r=3", cyclic(K, 2, rule="threshold"), mean_seconds(3, 1, K - 2, K), None),
    ("SC r=3", clustered(K, P, 2, rule="threshold"), mean_seconds(3, P, 2, 4), None),
    ("FRC r=2", fractional(K, 1, rule="threshold"), mean_seconds(2, 10, 1, 2), None),
    ("uncoded", uncoded(K), mean_seconds(1, 1, K, K), None),
]


def test_the_integrals_agree_with_the_harmonic_sums_and_the_figures_known() -> None:
    for _, _, mean, known in CLOSED_FORMS:
        if known is not None:
            assert mean == pytest.approx(known, abs=5e-6)
    by_sums = {
        "GC r=2": 2 * (FLOOR + FAST_MEAN * (harmonic(20) - harmonic(1))),
        "LB r=2": 2 * (FLOOR + FAST_MEAN * (harmonic(20) - harmonic(5))),
        "GC r=3": 3 * (FLOOR + FAST_MEAN * (harmonic(20) - harmonic(2))),
        "FRC r=2": 2 * (FLOOR + FAST_MEAN * harmonic(10) / 2),
        "uncoded": FLOOR + FAST_MEAN * harmonic(20),
    }
    for name, _, mean, _ in CLOSED_FORMS:
        assert mean == pytest.approx(by_sums.get(name, mean), rel=1e-9)


def test_without_stragglers_the_means_are_those_of_the_closed_forms() -> None:
    # 4 standard errors, seven means: 1 seed in 2,000 fails.
    law = ShiftedExponential(floor=FLOOR, mean=FAST_MEAN)
    schemes = [scheme for _, scheme, _, _ in CLOSED_FORMS]
    results = compare(schemes, law, steps=40_000, seed=2, machine=AT_ONCE)
    for (name, _, mean, _), result in zip(CLOSED_FORMS, results, strict=True):
        seconds = result.seconds.ravel()
        error = seconds.std(ddof=1) / math.sqrt(seconds.size)
        print(f"{name}: {seconds.mean():.5f} +- {error:.5f} s of {mean:.5f}")
        assert abs(seconds.mean() - mean) <= 4 * error, name


# -- on every sample path --------------------------------------------------------------

LAW = ShiftedExponential(floor=0.1, mean=1.0, fixed_mean=0.2)


def seconds(*schemes: Scheme, delays: Delays = LAW, steps: int = 400) -> list[object]:
    results = compare(schemes, delays, steps=steps, seed=5, machine=AT_ONCE)
    return [result.seconds for result in results]


@pytest.mark.parametrize("rule", ["threshold", "decodable"])
@pytest.mark.parametrize(("workers", "tolerance"), [(4, 1), (6, 2), (9, 3), (20, 2)])
def test_one_cluster_is_the_cyclic_code(
    workers: int, tolerance: int, rule: str
) -> None:
    one, plain = seconds(
        clustered(workers, 1, tolerance, rule=rule),
        cyclic(workers, tolerance, rule=rule),
    )
    np.testing.assert_array_equal(one, plain)


@pytest.mark.parametrize("rule", ["threshold", "decodable"])
@pytest.mark.parametrize("clusters", [1, 2, 4, 12])
def test_clusters_that_tolerate_nobody_are_uncoded(clusters: int, rule: str) -> None:
    coded, plain = seconds(clustered(12, clusters, 0, rule=rule), uncoded(12))
    np.testing.assert_array_equal(coded, plain)


@pytest.mark.parametrize("rule", ["threshold", "decodable"])
@pytest.mark.parametrize("r", [1, 2, 3, 4, 6])
def test_clusters_as_large_as_the_load_are_fractional(r: int, rule: str) -> None:
    coded, plain = seconds(
        clustered(12, 12 // r, r - 1, rule=rule), fractional(12, r - 1, rule=rule)
    )
    np.testing.assert_array_equal(coded, plain)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_no_clustering_beats_its_lower_bound_and_none_is_worse_than_one_cluster(
    setting: Setting,
) -> None:
    least, sc, gc = seconds(
        lower_bound(setting.r), *reversed(setting.schemes), delays=setting.delays
    )
    assert np.all(least <= sc)
    assert np.all(sc <= gc)
    assert np.any(least < sc)
    assert np.any(sc < gc)


@pytest.mark.parametrize("pieces", [1, 3])
def test_asking_whether_it_decodes_is_never_slower_than_counting(pieces: int) -> None:
    pairs: list[tuple[CodedScheme, CodedScheme]] = []
    for workers, tolerance in [(4, 1), (5, 2), (6, 3), (8, 3), (10, 1), (12, 5)]:
        pairs += [(
            cyclic(workers, tolerance, pieces=pieces),
            cyclic(workers, tolerance, rule="threshold", pieces=pieces),
        )]  # fmt: skip
    for workers, clusters, tolerance in [(8, 2, 1), (12, 3, 1), (12, 2, 3), (20, 5, 2)]:
        pairs += [(
            clustered(workers, clusters, tolerance, pieces=pieces),
            clustered(workers, clusters, tolerance, rule="threshold", pieces=pieces),
        )]  # fmt: skip
    pairs += [(fractional(8, 3), fractional(8, 3, rule="threshold"))]
    sooner = 0
    for decodable, threshold in pairs:
        early, late = seconds(decodable, threshold, steps=200)
        print(f"{decodable}: {np.mean(early):.4f} s, counting {np.mean(late):.4f} s")
        assert np.all(early <= late), decodable
        sooner += bool(np.any(early < late))
    assert sooner > 3  # else the claim is empty
