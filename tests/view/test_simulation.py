"""What a comparison says: ratios, their noise, sentences, tables, plots."""

import builtins
import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

from codedgrad.core import Scheme, Traits
from codedgrad.errors import InvalidOptions
from codedgrad.schemes import build, uncoded
from codedgrad.sim import Bounds, Machine, Network, Result, mean_error, ratio
from codedgrad.view import (
    about_bounds,
    check_plot,
    compared,
    facts,
    plot,
    table,
    verdict,
)
from codedgrad.view.comparison import load_of, percent
from codedgrad.view.distances import Distance, distance

WORKERS = 4


def _result(seconds: object, scheme: str = "uncoded", residual: float = 0.0) -> Result:
    array = np.atleast_2d(np.asarray(seconds, dtype=np.float64))
    made: Scheme = build(scheme, WORKERS)
    ones = np.ones_like(array)
    return Result(made, array, residual * ones, 4 * ones, 4 * ones, array, False)


def _noisy(mean: float, seed: int, runs: int = 1, steps: int = 200) -> np.ndarray:
    return mean + np.random.default_rng(seed).normal(0, 0.1, (runs, steps))


def _verdict(*results: Result) -> str:
    return verdict(compared(results))


@pytest.mark.parametrize(
    ("scheme", "load"),
    [
        ("uncoded(pieces=3)", 1.0),
        ("cyclic(2)", 3.0),
        ("dynamic(2, 1)", 2.0),  # it stores 4
        ("dynamic(2, 1, storage=cluster)", 2.0),
        ("heterogeneous(budget=1, pieces=4)", 9 / 4),  # twice the mean, and a border
        ("heterogeneous(budget=1, pieces=4, cap=inf)", 4.0),
        ("heterogeneous(budget=1, pieces=4, allocation=common)", 14 / 4),
    ],
)
def test_the_load_is_what_is_computed_and_not_what_is_stored(
    scheme: str, load: float
) -> None:
    made = build(scheme, WORKERS)
    assert load_of(made) == load
    assert load_of(made) <= max(map(len, made.placement)) * WORKERS / made.parts


def test_the_ratio_is_that_of_the_means() -> None:
    found = ratio(_result([2.0, 4.0, 6.0]), _result([1.0, 2.0, 3.0]))
    assert found.value == 2.0
    assert found.error == pytest.approx(0.0, abs=1e-15)
    assert found.blocks == 3


def test_its_standard_error_is_the_spread_of_many_such_ratios() -> None:
    # 150 comparisons: the spread is known to 6 %, 25 % is four times that
    found = [
        ratio(_result(_noisy(1.0, i, 8, 20)), _result(_noisy(2.0, 999 + i, 8, 20)))
        for i in range(150)
    ]
    spread = np.std([each.value for each in found])
    guess = math.sqrt(np.mean([each.error**2 for each in found]))
    assert guess == pytest.approx(spread, rel=0.25)
    assert all(each.over_runs and each.blocks == 8 for each in found)


def test_equal_schemes_are_rarely_called_different() -> None:
    clear = [
        ratio(_result(_noisy(1.0, i)), _result(_noisy(1.0, 5000 + i))).is_clear
        for i in range(200)
    ]
    assert sum(clear) < 26  # 10 expected; as many once in 100,000 times


def test_runs_without_chance_count_as_one() -> None:
    alike = np.repeat(_noisy(1.0, 0), 5, axis=0)
    found = ratio(_result(alike), _result(np.repeat(_noisy(1.0, 1), 5, axis=0)))
    assert found.blocks == 10
    assert not found.over_runs
    assert found.error > 0


def test_only_steps_that_both_finished_are_compared() -> None:
    found = ratio(_result([1.0, 1.0, math.inf]), _result([2.0, math.inf, 7.0]))
    assert found.value == 0.5
    assert math.isnan(found.error)
    assert not found.is_clear
    assert str(found) == "0.500"
    nothing = ratio(_result([1.0, math.inf]), _result([math.inf, 1.0]))
    assert str(nothing) == "-"
    assert not nothing.is_clear


def test_the_standard_error_of_a_mean() -> None:
    steps = _noisy(1.0, 3, steps=10)  # ten blocks of one step: the textbook formula
    textbook = np.std(steps, ddof=1) / math.sqrt(10)
    assert mean_error(_result(steps)) == pytest.approx(textbook)
    assert math.isnan(mean_error(_result([1.0])))
    assert math.isnan(mean_error(_result([math.inf])))


def test_the_verdict_names_the_fastest_and_those_as_good() -> None:
    first, one = _result(_noisy(2, 1)), _result(_noisy(1, 2), "fractional(1)")
    two, slow = _result(_noisy(1, 3), "cyclic(1)"), _result(_noisy(1.5, 4), "cyclic(2)")
    said = _verdict(first, one, slow)
    assert (
        said == "Fastest: fractional(tolerance=1), 50 % less time a step than uncoded."
    )
    assert "No clear difference to " in _verdict(first, one, two)


def test_the_verdict_admits_that_there_is_nothing_to_gain() -> None:
    first, other = _result(_noisy(1, 1)), _result(_noisy(2, 2), "cyclic(1)")
    assert _verdict(first, other) == (
        "Nothing to gain: uncoded is fastest; the best of the others, "
        "cyclic(tolerance=1), takes 2.01 times as long."
    )
    better, waiting = _result(_noisy(0.5, 3), "fractional(1)"), _result(_noisy(2, 4))
    assert _verdict(better, first, other) == (
        "Fastest: fractional(tolerance=1); the best of the others, uncoded, takes "
        "1.97 times as long."
    )
    third = _result(_noisy(1, 5), "cyclic(1)")
    assert ", takes 1.97 times as long, uncoded 3.97 times." in _verdict(
        better, third, waiting
    )
    close = _result(_noisy(1, 7), "cyclic(1)")
    assert _verdict(first, close).startswith("No clear difference between uncoded and")
    assert _verdict(first) == "Only one scheme: there is nothing to compare it with."


def test_the_verdict_does_not_prefer_a_scheme_that_drops_data() -> None:
    first, exact = _result(_noisy(2, 1)), _result(_noisy(1.5, 2), "cyclic(1)")
    drops = _result(_noisy(1, 3), "ignore(3)", residual=1.0)
    said = _verdict(first, exact, drops)
    assert said.startswith("Fastest: cyclic(tolerance=1), 25 % less time")
    assert "ignore(count=3) is faster" in said
    assert "0 % of its steps are, its mean residual is 25 % of the parts." in said
    assert _verdict(first, drops).startswith("No other scheme did as much as uncoded.")


def test_the_verdict_looks_at_steps_given_up_before_time() -> None:
    first = _result([1.0, 1.0, math.inf, math.inf])
    other = _result([2.0, 2.0, 2.0, 2.0], "cyclic(1)")
    assert _verdict(first, other) == (
        "uncoded gave up 50 % of its steps; cyclic(tolerance=1) finished all of them, "
        "in 2 s on average."
    )
    dead = _result([math.inf] * 4)
    assert _verdict(dead, dead) == "No scheme finished a single step."


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.004, "0.4 %"),
        (0.99999, "99.9 %"),
        (0.5, "50 %"),
    ],
)
def test_a_percentage_never_rounds_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text


def _shown(
    results: Sequence[Result], bounds: Sequence[Bounds] | None = None
) -> list[str]:
    console = Console(width=80)
    with console.capture() as shown:
        console.print(table(compared(results, bounds)))
    return shown.get().splitlines()


def test_the_table_has_one_number_of_decimals_and_marks_what_is_unclear() -> None:
    lines = _shown([_result([11.0, 11.0]), _result([0.5, 0.5]), _result([11.0, 11.0])])
    cells = ["uncoded", "1.0x", "11.0000", "11.0000", "1", "1.00", "100.0"]
    assert lines[-3].split() == cells
    assert "0.5000" in lines[-2]
    assert "1.000 ±0.000~" in lines[-1]


def test_the_table_fits_80_columns_whatever_the_names() -> None:
    long = "bernoulli(copies=3, count=4, pieces=12)"
    results = [_result(_noisy(1234, 1)), _result(_noisy(99, 2), long, residual=0.5)]
    lines = _shown(results)
    assert max(map(len, lines)) <= 80
    assert "residual" in lines[0]
    assert "0.125" not in lines[-2]


def _bounds(fluid: object, whole: object) -> Bounds:
    both = (np.atleast_2d(np.asarray(x, dtype=np.float64)) for x in (fluid, whole))
    return Bounds(*both)


def test_the_distance_to_the_best_is_that_of_the_sums_of_finished_steps() -> None:
    result = _result([[2.0, 4.0], [6.0, math.inf]])
    found = distance(
        result, _bounds([[1.0, 2.0], [1.0, 9.0]], [[2.0, 2.0], [4.0, 9.0]])
    )
    assert found == Distance(fluid=3.0, whole=1.5, is_comparable=True)
    never = distance(_result([math.inf]), _bounds([1.0], [1.0]))
    assert math.isnan(never.fluid)
    at_once = distance(_result([0.0]), _bounds([0.0], [0.0]))
    assert math.isnan(at_once.whole)
    budget = distance(
        _result([2.0, 2.0], "ignore(3)"), _bounds([1, np.inf], [1, np.inf])
    )
    assert budget == Distance(fluid=2.0, whole=2.0, is_comparable=False)


def test_the_table_shows_distances_and_marks_what_cannot_be_compared() -> None:
    results = [_result([3.0, 3.0]), _result([1.0, 1.0], "ignore(3)", residual=0.5)]
    lines = _shown(results, [_bounds([2.0, 2.0], [2.5, 2.5])] * 2)
    assert max(map(len, lines)) <= 80
    assert "/fluid" in lines[1]
    assert "/whole" in lines[1]
    assert "p99" not in lines[0]
    uncoded_line, ignore_line = lines[2], lines[3]
    assert uncoded_line.split()[4:6] == ["1.500", "1.200"]
    assert "0.500* 0.400*" in ignore_line
    exact = _shown(results[:1], [_bounds([2.0, 2.0], [2.5, 2.5])])
    cells = ["uncoded", "1.0x", "3.000", "1.500", "1.200", "1.00", "100.0"]
    assert exact[-1].split() == cells


def test_the_table_with_distances_fits_80_columns_whatever_the_names() -> None:
    long = "bernoulli(copies=3, count=4, pieces=12)"
    results = [_result(_noisy(12345, 1)), _result(_noisy(99, 2), long, residual=0.5)]
    results.append(_result(_noisy(12345, 3), "cyclic(1)"))  # unclear
    bounds = [_bounds(np.full((1, 200), 9.0), np.full((1, 200), 9.5))] * 3
    lines = _shown(results, bounds)
    assert max(map(len, lines)) <= 80
    assert "1371.6" in "".join(lines)  # nothing is cut short
    assert "…" not in "".join(lines)


def test_what_the_bounds_leave_out_is_said() -> None:
    fair, not_fair = Distance(1.5, 1.2, True), Distance(0.9, 0.8, False)
    [ideal] = about_bounds([fair], Machine(drain=False), gave_up=False)
    assert ideal.startswith("/fluid: step over the least possible")
    real = Machine(latency=0.1)
    what, leaves_out, mark = about_bounds([fair, not_fair], real, gave_up=True)
    assert what.endswith("both over steps that gave a sum")
    assert "no draining or latency: they stop and send" in leaves_out
    assert mark.startswith("* not comparable")
    network = Machine(drain=False, network=Network(port=0.1))
    assert "no network" in about_bounds([fair], network, gave_up=False)[1]


def test_the_facts_name_what_differs_between_schemes() -> None:
    rows = compared(
        [_result([1.0]), _result([1.0], "cyclic(1, rule=threshold, pieces=2)")]
    )
    machine = Machine(drain=False, latency=0.25)
    assert facts(rows, "in words", machine, seed=3) == [
        "4 workers, parts: 4 (uncoded), 8 (cyclic), 1 steps x 1 run, seed 3",
        "delays: in words",
        "stop rule: decodable (uncoded), threshold (cyclic); "
        "late workers stop at once, latency 0.25 s; fast path",
    ]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_plot_is_a_file_and_nothing_else_is_left(tmp_path: Path, ending: str) -> None:
    dead = _result(np.full((1, 200), math.inf))
    results = [dead, _result(_noisy(1, 1), "cyclic(1)"), _result(_noisy(90, 2))]
    file = tmp_path / f"times.{ending}"
    plot(results, file, ["what", "it is"])
    assert file.stat().st_size > 5000
    assert list(tmp_path.iterdir()) == [file]


def test_a_plot_of_a_great_many_steps_is_a_small_file(tmp_path: Path) -> None:
    file = tmp_path / "times.svg"
    plot([_result(_noisy(1, 1, steps=100_000))], file, ["what"])
    assert file.stat().st_size < 300_000
    assert "cannot" not in file.read_text()


def test_a_plot_of_steps_that_all_take_the_same_time(tmp_path: Path) -> None:
    plot([_result([1.0])], tmp_path / "times.png", ["what"])
    plot([_result([math.inf])], tmp_path / "none.png", ["what"])


@pytest.mark.parametrize("name", ["times.gif", "times", "none/times.png", "folder.png"])
def test_a_file_that_cannot_be_drawn_is_refused_at_once(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InvalidOptions, match="--plot"):
        check_plot(tmp_path / name)


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object) -> ModuleType:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidOptions, match=r'try pip install "codedgrad\[plot\]"'):
        check_plot(tmp_path / "times.png")


def test_a_scheme_without_a_rule_has_its_own() -> None:
    class Bare:
        name, workers, parts, tolerance, traits = "bare", 4, 4, None, Traits()
        placement = uncoded(4).placement

    one = _result([1.0])
    bare = Result(Bare(), one.seconds, one.residual, *[one.work] * 3, by_events=True)
    assert compared([bare])[0].rule == "its own"
