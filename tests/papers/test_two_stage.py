"""The two-stage paper: exhibits from numbers, and sentences that may say no."""

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from codedgrad.delays import draw
from codedgrad.errors import InvalidOptions
from codedgrad.papers import PAPERS, Effort, Exhibit
from codedgrad.papers.drawing import FigurePanel, drawn
from codedgrad.papers.measuring import Measured
from codedgrad.papers.racing import Race
from codedgrad.papers.two_stage import lab, uplink
from codedgrad.papers.two_stage.digits import Digits, begin, digits, momentum
from codedgrad.papers.writing import facts, write_exhibit
from codedgrad.schemes import uncoded
from codedgrad.schemes.two_stage.model import one_stage
from codedgrad.sim import compare, run_events
from codedgrad.sim.arrays.two_stage import two_stage_model
from codedgrad.uplink.bounds import gap_bound, static_optimum, utility
from codedgrad.uplink.fair import Uplink

# functions have the names of their modules
accuracy, backlog, decoding, link, live, quiet, shares, times, use = (
    importlib.import_module(f"codedgrad.papers.two_stage.{name}")
    for name in (
        *("accuracy", "backlog", "decoding", "link", "live"),
        *("quiet", "shares", "times", "use"),
    )
)

PAPER = PAPERS["two-stage"]
NAMES = [recipe.name for recipe in PAPER.recipes]


@pytest.fixture(scope="module")
def exhibits() -> dict[str, Exhibit]:
    told: list[float] = []
    made = {}
    for recipe in PAPER.recipes:
        told.clear()
        effort = Effort(quick=True, advance=told.append, part=0.1)
        made[recipe.name] = recipe.make(effort)
        assert 0.5 < sum(told) <= 1.01, recipe.name
    return made


# -- all exhibits ----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_an_exhibit_is_named_as_its_recipe_and_says_what_is_not_the_paper(
    name: str, exhibits: dict[str, Exhibit]
) -> None:
    exhibit = exhibits[name]
    assert exhibit.name == name
    assert exhibit.ours
    assert "abstracts" in exhibit.claim or "none that could be read" in exhibit.claim
    assert exhibit.found
    assert all(each.endswith(".") for each in (*exhibit.found, exhibit.setting))


@pytest.mark.parametrize("name", NAMES)
def test_rows_have_a_cell_for_every_column_and_times_are_positive(
    name: str, exhibits: dict[str, Exhibit]
) -> None:
    table = exhibits[name].table
    names = [row[0] for row in table.rows]
    assert len(set(names)) == len(names)
    for row in table.rows:
        assert len(row) == len(table.columns)
        for column, cell in zip(table.columns, row, strict=True):
            if column.unit in ("s", "ms"):
                assert isinstance(cell, float)
                assert cell > 0


@pytest.mark.parametrize("name", ["times", "use", "backlog"])
def test_a_figure_has_its_legend_and_units(
    name: str, exhibits: dict[str, Exhibit]
) -> None:
    exhibit = exhibits[name]
    figure = drawn(exhibit.title, exhibit.panels, exhibit.lines)
    (legend,) = figure.legends
    shown = {text.get_text() for text in legend.get_texts()}
    for panel in exhibit.panels:
        each = panel.curves if isinstance(panel, FigurePanel) else panel.groups
        assert {one.name for one in each} <= shown
    assert all("[" in axes.get_xlabel() for axes in figure.axes)


def test_files_and_facts_are_written(
    tmp_path: Path, exhibits: dict[str, Exhibit]
) -> None:
    exhibit = exhibits["quiet"]
    files = write_exhibit(tmp_path, PAPER, exhibit)
    assert [file.name for file in files] == [
        "two-stage-quiet.png",
        "two-stage-quiet.csv",
        "two-stage-quiet-curves.csv",
    ]
    found = facts([(PAPER, list(exhibits.values()))], seed=1, quick=True)
    assert [each["name"] for each in found["papers"][0]["exhibits"]] == NAMES


def test_the_paper_says_that_none_of_its_numbers_are_known() -> None:
    assert "no number of it could be compared" in PAPER.missing
    assert "from memory" in PAPER.missing


# -- the law and the model -------------------------------------------------------------


def test_slowness_lasts_or_is_drawn_anew_and_the_first_stage_is_the_same() -> None:
    same, anew = (
        draw(lab.law(lasts=lasts), steps=40, workers=lab.WORKERS, seed=3)
        for lasts in (True, False)
    )
    assert same.again is None
    assert anew.again is not None
    np.testing.assert_array_equal(same.unit, anew.unit)
    assert not np.array_equal(anew.again.unit, anew.unit)


def test_without_a_code_the_model_takes_what_the_simulator_takes() -> None:
    law = lab.law(lasts=True)
    drawn_times = draw(law, steps=60, workers=lab.WORKERS, seed=5)
    ours = one_stage(drawn_times.part(lab.PARTS), lab.PARTS, 0, "cyclic")
    (there,) = compare([uncoded(lab.WORKERS)], law, steps=60, seed=5)
    np.testing.assert_allclose(ours, there.seconds[0], atol=1e-6)


@pytest.mark.parametrize("name", times._CASES)
def test_two_stages_by_the_model_take_what_the_events_take(name: str) -> None:
    first, code, reuse = times._CASES[name]
    scheme = lab.staged(first, 1, code, reuse=reuse)
    drawn_times = draw(lab.law(), steps=40, workers=lab.WORKERS, seed=2)
    went = two_stage_model(scheme, drawn_times)
    events = run_events(scheme, drawn_times, lab.AT_ONCE)
    np.testing.assert_array_equal(went.seconds, events.seconds)


def test_schemes_that_run_by_events_know_their_numbers() -> None:
    made = lab.schemes()
    assert list(made) == list(lab.SCHEMES)
    assert {scheme.workers for scheme in made.values()} == {lab.WORKERS}
    assert list(lab.schemes(lab.UNCODED)) == [lab.UNCODED]


# -- time and work ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs() -> Any:
    return times._runs(0.1, 3000, seed=7)


def test_the_table_of_times_is_that_of_the_specification(runs: Any) -> None:
    known = {
        ("cyclic", "anew", 0): (15.66, 24.0),
        ("cyclic", "anew", 1): (16.01, 48.0),
        ("fractional", "anew", 1): (7.23, 48.0),
        ("fractional", "anew", 2): (7.76, 72.0),
        ("fresh, M1 = 8", "anew", 0): (7.50, 24.0),
        ("fresh, M1 = 8, cyclic", "anew", 1): (6.78, 26.7),
        ("fresh, M1 = 8", "anew", 1): (6.46, 26.7),
        ("re-use, M1 = 8", "anew", 1): (5.49, 27.3),
        ("re-use, M1 = 12", "lasts", 0): (3.98, 24.0),
        ("re-use, M1 = 12", "anew", 1): (4.42, 28.3),
    }
    for key, (mean, work) in known.items():
        run = runs[key]
        error = run.seconds.std() / math.sqrt(len(run.seconds))
        assert abs(run.seconds.mean() - mean) < 5 * error, key  # both are samples
        assert run.work == pytest.approx(work, abs=0.6), key


def test_what_is_found_of_times_follows_the_numbers(runs: Any) -> None:
    assert "fresh, M1 = 8 mostly in work" in times._bought(runs)
    assert "beats holding 4 of 12 back: in 6 of 6" in times._held_back(runs)
    assert "lasts s = 0 suffices" in times._suffices(runs)
    assert "drawn anew s = 0 does not suffice" in times._suffices(runs)
    assert "takes less time than a cyclic code" in times._codes(runs)


def test_what_is_found_of_times_may_be_that_a_claim_does_not_hold(runs: Any) -> None:
    slow = {
        key: times._SchemeRun(9 * run.seconds, run.work)
        if key[0] in ("re-use, M1 = 12", "fractional")
        else run
        for key, run in runs.items()
    }
    assert "re-use, M1 = 12 only in work" in times._bought(slow)
    assert "does not always beat" in times._held_back(slow)
    assert "does not always take less time" in times._codes(slow)
    eager = dict(runs)
    eager["re-use, M1 = 12", "lasts", 0] = runs["cyclic", "anew", 3]
    assert "lasts s = 0 does not suffice" in times._suffices(eager)


@pytest.mark.parametrize(
    ("time", "work", "said"),
    [
        (1.1, 0.5, "only in work"),
        (1.1, 1.5, "nowhere"),
        (0.5, 1.5, "only in time"),
        (0.9, 0.5, "mostly in work"),
        (0.5, 0.9, "mostly in time"),
        (0.6, 0.6, "in time and work alike"),
    ],
)
def test_a_gain_is_where_the_ratios_say(time: float, work: float, said: str) -> None:
    assert times._where(time, work) == said


def test_other_probabilities_are_in_the_file_and_not_on_the_screen() -> None:
    table = times.times(Effort(part=0.01)).table
    hidden = [column for column in table.columns if not column.is_shown]
    assert {column.name.split(":")[0] for column in hidden} == {"p = 0.05", "p = 0.2"}


# -- digits and accuracy ---------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Digits:
    pictures, labels = digits().train
    some = pictures[:41], labels[:41]
    return Digits(some, some)


def test_the_gradient_of_a_part_is_that_of_its_loss(small: Digits) -> None:
    gradient, x = small.gradient(4), begin(64, seed=2)
    _, count, sums = gradient(x, 1, 0)
    assert count == 10
    along = np.random.default_rng(0).standard_normal(x.size)
    ahead, behind = (gradient(x + h * along, 1, 0)[0] for h in (1e-5, -1e-5))
    assert (ahead - behind) / 2e-5 == pytest.approx(float(sums @ along), rel=1e-6)


@pytest.mark.parametrize("parts", [1, 3, 12])
def test_parts_add_up_to_the_whole_whatever_their_number(
    small: Digits, parts: int
) -> None:
    x = begin(64, seed=1)
    gradient = small.gradient(parts)
    each = [gradient(x, part, 0) for part in range(parts)]
    loss, count, sums = small.gradient(1)(x, 0, 0)
    assert sum(one[1] for one in each) == count == 41
    assert sum(one[0] for one in each) == pytest.approx(loss)
    np.testing.assert_allclose(sum(one[2] for one in each), sums, atol=1e-10)


def test_momentum_keeps_most_of_its_last_step() -> None:
    update, x = momentum(2), np.zeros(2)
    first = update(x, np.ones(2), 0)
    second = update(first, np.zeros(2), 1)
    np.testing.assert_allclose(second - first, 0.9 * (first - x))


def test_without_digits_one_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InvalidOptions, match="codedgrad\\[demo\\]"):
        digits()


def test_every_scheme_is_as_accurate_after_as_many_steps(
    exhibits: dict[str, Exhibit],
) -> None:
    *_, last = exhibits["accuracy"].found
    assert last.startswith("after equal steps accuracies differ by 0.0 points")


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(0.5, "is ahead of"), (1.5, "is behind"), (1.01, "cannot be told from")],
)
def test_who_is_ahead_is_said_only_if_it_can_be_told(ratio: float, said: str) -> None:
    assert accuracy._stands(Measured(ratio, 0.1)) == said


# -- use of workers and link -----------------------------------------------------------


def test_shares_are_shares_and_no_code_wastes_nothing(
    exhibits: dict[str, Exhibit],
) -> None:
    table = exhibits["use"].table
    place = {column.name: i for i, column in enumerate(table.columns)}
    for row in table.rows:
        for name in ("busy", "wasted", "link in use"):
            assert 0 <= row[place[name]] <= 100  # type: ignore[operator]  # numbers
    assert table.rows[0][place["wasted"]] == 0
    assert table.rows[0][place["heard"]] == lab.WORKERS


def _used(busy: float, wasted: float, messages: float, seconds: float) -> Any:
    steps = np.full((1, 4), seconds) + np.arange(4) / 100
    run = SimpleNamespace(seconds=steps)
    return SimpleNamespace(
        busy=Measured(busy, 1.0),
        wasted=wasted,
        messages=messages,
        ideal=run,
        linked=run,
        drained=run,
    )


def test_what_is_found_of_use_may_go_either_way() -> None:
    good, bad = _used(90, 5, 5, 1.0), _used(20, 50, 20, 3.0)
    for two, one, said in (
        (good, bad, ("planned keep workers", "waste less than", "no more messages")),
        (
            bad,
            good,
            ("can be told to keep", "do not always waste less", "more messages"),
        ),
    ):
        found = dict.fromkeys(lab.ONE_STAGE, one) | dict.fromkeys(use._TWO, two)
        found["uncoded"] = one
        sentences = use._idle(found), use._wasted(found), use._link(found)
        for sentence, part in zip(sentences, said, strict=True):
            assert part in sentence
    found = dict.fromkeys(lab.ONE_STAGE, bad) | {lab.RE_USED: good, lab.FEW: bad}
    assert "is still faster" in use._draining(found)
    assert "rather than all costs time" in use._copies(found)
    found |= {lab.RE_USED: bad, lab.ONE_STAGE[1]: good}
    assert "is not faster" in use._draining(found)
    assert "costs no time that could be told" in use._copies(found)


# -- decoding --------------------------------------------------------------------------


def _costs(one: Callable[[int], float], ours: Callable[[int], float]) -> Any:
    workers = [8, 16, 32, 64]
    kinds = {kind: [ours(n) for n in workers] for kind in decoding._SHORT}
    for kind, share in (
        (decoding._ALL, 1.0),
        (decoding._FRESH, 1 / 3),
        (decoding._RE_USED, 0.9),
    ):
        kinds[kind] = [one(round(share * n)) for n in workers]
    return kinds, workers


def test_the_power_of_growth_is_found() -> None:
    costs, workers = _costs(lambda n: 1e-6 * n**3, lambda n: 1e-4)
    assert "grows with the workers, as n^3.0" in decoding._grows(costs, workers)
    assert "is lighter with fresh helpers" in decoding._lighter(costs)
    assert "hardly lighter, 0.74" in decoding._lighter(costs)
    assert "Little of the argument" in decoding._structured(costs, workers)


def test_decoding_that_does_not_grow_is_called_so() -> None:
    costs, workers = _costs(lambda n: 1e-4, lambda n: 1e-3)
    assert "does not grow much" in decoding._grows(costs, workers)
    assert "is not lighter" in decoding._lighter(costs)
    assert "quicker one up to n = 64" in decoding._structured(costs, workers)


def test_patterns_have_as_many_late_workers_as_a_code_tolerates() -> None:
    rng = np.random.default_rng(0)
    for n in (8, 16):
        assert len(decoding._heard(decoding.cyclic(n, 1), rng)) == n - 1
        assert len(decoding._heard(decoding.fractional(n, 1), rng)) == n // 2


# -- the uplink ------------------------------------------------------------------------


def test_the_uplink_delivers_no_more_than_the_link_can_carry() -> None:
    sent = uplink.run(Uplink(4, V=20.0, most=uplink.MOST, peaks=uplink.RATES), 2000)
    used = sum(x / r for x, r in zip(sent.rates, uplink.RATES, strict=True))
    assert 0.98 < used <= 1.001
    best = utility(static_optimum(uplink.RATES, uplink.MOST))
    assert 0 < best - sent.utility < gap_bound(20.0, uplink.MOST, uplink.RATES)
    assert best - sent.utility == pytest.approx(0.0754, abs=0.002)
    assert sent.longest <= 20.0 + 2 * uplink.MOST


def test_laws_of_the_uplink_may_be_found_not_to_hold() -> None:
    def sent(backlog: float, longest: float) -> uplink.Delivered:
        return uplink.Delivered((1.0, 1.0, 1.0, 1.0), backlog, backlog, longest, 0.0)

    gaps = {20.0: 0.1, 200.0: 0.01}
    found = {20.0: sent(50.0, 20.0), 200.0: sent(480.0, 300.0)}
    assert "go as 1 / V and V do" in backlog._laws(gaps, found)
    assert "the bounds do not hold" in backlog._bounds(gaps, found)
    flat = {20.0: sent(50.0, 20.0), 200.0: sent(50.0, 20.0)}
    assert "do not go as" in backlog._laws(gaps, flat)
    assert "the bounds hold" in backlog._bounds(gaps, flat)


def test_the_slowest_gets_more_by_a_larger_beta_and_batteries_need_their_level(
    exhibits: dict[str, Exhibit],
) -> None:
    rows = {row[0]: row for row in exhibits["shares"].table.rows}
    policies = [
        Uplink(4, V=5.0, beta=beta, most=uplink.MOST, peaks=uplink.RATES)
        for beta in (1.0, 20.0)
    ]
    little, more = (uplink.run(policy, 3000).rates[0] for policy in policies)
    assert little < 0.05 < 0.1 < more
    assert rows["max rate"][1] == 0
    assert rows["theta as derived"][-1] == 0  # never short of energy
    assert rows["theta = 0"][1:5] == (0, 0, 0, 0)
    assert rows["theta = 0"][5] is None  # nobody has anything: nothing to be fair with


def test_a_loss_of_utility_is_named_with_its_size() -> None:
    full, half = (uplink.Delivered((x,) * 4, 0.0, 0.0, 0.0, 0.0) for x in (1.0, 0.4142))
    assert shares._costs(full, full) == "costs nothing"
    assert shares._costs(half, full) == "costs 50 % of it"


# -- where it does not pay -------------------------------------------------------------


def test_where_nobody_straggles_two_stages_gain_nothing_and_holding_back_costs(
    exhibits: dict[str, Exhibit],
) -> None:
    held, harmless, one, excess = exhibits["quiet"].found
    assert "costs time where nobody straggles" in held
    assert "gains next to nothing" in harmless
    assert "one stage is worse off" in one
    assert "is enough for stage 2 to gain" in excess


def test_what_pays_is_said_from_where_on() -> None:
    def point(ratio: float) -> Any:
        return 1.0, {"x": Measured(ratio, 0.001)}, {}

    points = {0.0: point(1.2), 0.1: point(0.9), 0.2: point(0.96), 0.3: point(0.5)}
    assert quiet._pays_from(points, "x") == "from p = 0.3 on"
    assert quiet._pays_from({0.0: point(1.2)}, "x") == "nowhere"


def test_messages_that_take_long_turn_the_tables(exhibits: dict[str, Exhibit]) -> None:
    slow, waited = exhibits["messages"].found
    assert "it does not pay" in slow
    assert "it loses at 2 s" in waited


def test_it_is_said_where_two_stages_are_no_slower() -> None:
    steps = np.array([[1.0, 1.1, 1.2]])
    of = {lab.RE_USED: steps, "fractional, s = 1": 2 * steps, lab.UNCODED: 3 * steps}
    found = dict.fromkeys(link._LENGTHS, of)
    assert "up to 2 s" in link._slow(found)
    assert "it is no slower" in link._slow(found)
    assert "does not lose" in link._waited(found)


def test_a_fair_link_costs_time_or_not_as_the_numbers_say() -> None:
    steps = np.array([[1.0, 1.1, 1.2]])
    dear = {"fair": {"x": 2 * steps}, "max rate": {"x": steps}}
    assert "costs time" in link._cost(dear, ["x"])
    assert "max rate for x: it is the same for all" in link._against(dear, ["x"])
    same = {"fair": {"x": steps}, "max rate": {"x": steps}}
    assert "costs no time" in link._cost(same, ["x"])
    assert "any for x" in link._against(same, ["x"])


# -- real processes --------------------------------------------------------------------


def test_what_real_processes_measured_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = []

    def run(race: Race) -> dict[str, Any]:
        taken.append(race)
        return {
            label: _trial(i, race.times.steps) for i, label in enumerate(race.schemes)
        }

    monkeypatch.setattr(Race, "run", run)
    data: Any = SimpleNamespace(
        name="dots", goal=0.5, train=(None, np.zeros(100)), test=None
    )
    exhibit = live.live(Effort(quick=True, part=0.1), data)
    (race,) = taken
    assert race.times.unit.shape == (5, live.WORKERS)
    assert len(exhibit.table.rows) == len(race.schemes)
    assert "two stages, given is slower than fractional" in exhibit.found[0]
    assert "differ by 0.0 points" in exhibit.found[-1]


def _trial(number: int, steps: int) -> Any:
    return SimpleNamespace(
        seconds=(1.0 + number) * np.linspace(1.0, 1.2, steps),
        score=np.linspace(0, 1, steps),
        deviation=1e-7,
        seconds_to=lambda goal: 1.0,
    )


def test_every_scheme_of_the_live_race_has_the_same_parts() -> None:
    from codedgrad.schemes import build

    made = [build(words, live.WORKERS) for words in live._SCHEMES.values()]
    assert {scheme.parts for scheme in made} == {live.PARTS}
