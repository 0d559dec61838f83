"""What is planned holds when the alternatives are simulated without the planner."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from codedgrad.advise import Asked, Planned, Source, advice_on, plan, source_from
from codedgrad.advise.plan.breakeven import break_even, percent
from codedgrad.advise.plan.candidates import (
    candidates,
    pieces_for,
    steady_speeds,
)
from codedgrad.advise.plan.planner import settle
from codedgrad.advise.plan.search import Priced
from codedgrad.advise.plan.sources import drawn, resized, source_of_delays
from codedgrad.advise.plan.worker_seconds import best_share, seen_in
from codedgrad.advise.probe.probe import Probe, write_probe
from codedgrad.codes.bounds import clairvoyant
from codedgrad.delays import (
    Delays,
    Matrix,
    Replay,
    ShiftedExponential,
    Times,
    draw,
    read_matrix,
    traces,
    write_matrix,
)
from codedgrad.errors import InvalidOptions, InvalidTrace
from codedgrad.schemes import SCHEMES, build
from codedgrad.sim import Machine, compare, header_of, run_events
from codedgrad.trace import Manifest, Recorder, Trace, read, write_manifest

HEAVY = "shifted-exponential(floor=0.5, mean=0.5)"


def seconds_of(
    text: str, law: Delays, workers: int, steps: int, machine: Machine
) -> float:
    """Simulate one scheme, as a stranger to the planner would."""
    (result,) = compare([build(text, workers)], law, steps=steps, machine=machine)
    return float(result.seconds.mean())


def trace_of(
    text: str, times: Times, folder: Path, machine: Machine | None = None
) -> Trace:
    machine = machine or Machine()
    scheme = build(text, times.workers)
    file = folder / "trace.jsonl"
    with Recorder(file, header_of(scheme, times, machine, 0, "")) as record:
        run_events(scheme, times, machine, watch=record)
    return read(file)


@pytest.fixture(scope="module")
def ar() -> Planned:
    return plan(source_from("AR"), Asked())


@pytest.fixture(scope="module")
def se() -> Planned:
    return plan(source_from("SE"), Asked())


# -- what comes out ------------------------------------------------------------------


def test_one_slow_worker_calls_for_auto_and_is_named(ar: Planned) -> None:
    advice = advice_on(ar)
    assert advice.sentence == "use auto: 1.8 times less time than waiting for all"
    assert advice.chosen.candidate.text == "auto"
    assert advice.slow == ("worker 0 (dp0) takes 2.25 times as long as the others",)
    waiting = next(s for s in advice.ranking if s.candidate.text == "uncoded")
    assert waiting.over_bound == pytest.approx(1.94, abs=0.005)
    assert ar.break_even[0].share == pytest.approx(1.25, abs=0.01)
    assert advice.break_even[0] == (
        "coding pays even if all of a step's time grows with the load (the limit is "
        "125 %); here 100 % does: it pays, but auto takes less time still"
    )
    assert advice.codes.startswith("codes pay against waiting for all, but less: ")


def test_mild_jitter_that_moves_around_is_nothing_for_codes(se: Planned) -> None:
    advice = advice_on(se)
    assert advice.slow == ()
    assert advice.codes.startswith("no code pays here: ")
    assert se.break_even[0].share == pytest.approx(0.07, abs=0.005)
    assert advice.break_even == (
        "coding pays if less than 7 % of a step's time grows with the load; here 100 % "
        "does: it does not pay",
        "that is the limit with tolerance 1; with 2 it is 5 %, with 3 it is 4.1 %, "
        "with 4 it is 3.6 %",
    )


@pytest.mark.parametrize("name", ["AR", "SE"])
def test_no_alternative_on_a_recording_beats_what_is_advised(
    name: str, ar: Planned, se: Planned
) -> None:
    planned = {"AR": ar, "SE": se}[name]
    x = read_matrix(traces()[name]).seconds
    n, machine = x.shape[1], Machine()
    ideal = Machine(drain=False)  # quicker to simulate, and better for codes
    best = seconds_of("auto", Replay(x), n, len(x), machine)
    assert advice_on(planned).chosen.seconds == pytest.approx(best)
    texts = ["uncoded", "two_stage", f"dynamic({n // 2}, 1)", "cyclic(1)"]
    texts += ["fractional(1)", "fractional(3)"]
    waiting = seconds_of("uncoded", Replay(x), n, len(x), machine)
    for text in texts:
        taken = seconds_of(text, Replay(x), n, len(x), ideal)
        assert taken > 1.01 * best
        if name == "SE" and text.startswith(("dyn", "cyc", "frac", "clus")):
            assert taken > waiting  # no code pays


def test_a_calm_cluster_should_wait_for_all() -> None:
    calm = source_of_delays(["shifted-exponential(floor=1, mean=0.005)"])
    advice = advice_on(plan(calm, Asked(steps=20, workers=4)))
    assert advice.sentence == "wait for all: nothing to gain here"
    assert advice.chosen.candidate.text == "uncoded"
    assert advice.codes.startswith("no code pays here")


def test_a_dead_worker_is_not_waited_for() -> None:
    source = source_of_delays([HEAVY, "dead(worker=1, step=5)"])
    planned = plan(source, Asked(steps=20, workers=4))
    advice = advice_on(planned)
    assert advice.sentence.endswith("waiting for all gives up 75 % of the steps")
    assert advice.chosen.gave_up == 0
    assert advice.chosen.candidate.goes_on
    assert "worker 1 is gone since step 5" in advice.slow
    assert planned.break_even[0].share == np.inf
    assert "dead" in str(planned.break_even[0])


def test_one_worker_has_nothing_to_gain() -> None:
    advice = advice_on(plan(source_of_delays([HEAVY]), Asked(steps=5, workers=1)))
    assert advice.sentence == "wait for all: nothing to gain here"
    assert (advice.codes, advice.break_even, advice.left_out) == ("", (), "")


def test_of_two_as_fast_the_one_that_outlives_a_worker_comes_first(
    ar: Planned,
) -> None:
    scores = {s.candidate.text: s for s in ar.found.scores}
    auto, waiting = scores["auto"], scores["uncoded"]
    near = replace(scores["auto"], seconds=auto.seconds * 1.005)
    slow = replace(waiting, seconds=99.0)
    other = replace(auto.candidate, text="other", scheme=waiting.candidate.scheme)
    for gap, first in ((1.005, "auto"), (1.08, "auto"), (1.2, "other")):
        fast = replace(auto, candidate=other, seconds=auto.seconds / gap)
        found = replace(ar.found, scores=(fast, auto, slow))
        advice = advice_on(replace(ar, found=found))
        assert advice.ranking[0].candidate.text == first
        said = "other took 0.93 of the time of auto, which may be chance"
        assert advice.equals.startswith(said) == (gap == 1.08)
        assert ("takes 1.2 times as long as that" in advice.default) == (gap == 1.2)
    fast = replace(auto, candidate=other)
    found = replace(ar.found, scores=(fast, near, slow))
    advice = advice_on(replace(ar, found=found))
    assert advice.chosen.candidate.text == "auto"
    assert advice.equals == (
        "as fast as auto, within 1 %: other, which is held up if a worker dies"
    )


# -- leaving out ---------------------------------------------------------------------


@pytest.mark.parametrize(("drain", "share"), [(True, 1.0), (False, 0.3)])
def test_what_is_left_out_could_not_have_won(drain: bool, share: float) -> None:
    source = source_of_delays([HEAVY])
    machine = Machine(drain=drain, latency=0.01)
    planned = plan(source, Asked(share=share, steps=16, workers=6, machine=machine,
                                 latency=0.01))  # fmt: skip
    best = min(score.seconds for score in planned.found.scores)
    law = Replay(drawn(source.law, steps=16, workers=6, seed=0).seconds, share)
    assert planned.found.left_out
    for left in planned.found.left_out:
        taken = seconds_of(left.candidate.text, law, 6, 16, machine)
        assert left.least > best
        assert taken >= left.least - 1e-9, left.candidate.text
        assert taken > best


def test_bounds_are_below_what_is_simulated(ar: Planned, se: Planned) -> None:
    for planned in (ar, se):
        for score in planned.found.scores:
            assert score.over_bound >= 1 - 1e-9
        times = planned.times
        mean = clairvoyant(times.fixed, times.unit).mean()
        assert planned.found.bound == pytest.approx(mean)


# -- break-even ----------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [1, 2])
def test_a_code_pays_below_the_break_even_share_and_not_above(tolerance: int) -> None:
    x = draw(ShiftedExponential(0.5, 0.5), steps=200, workers=8, seed=3).unit
    star = break_even(Times(np.zeros(x.shape), x))[tolerance - 1].share
    assert 0 < star < 1
    machine, text = Machine(drain=False), f"cyclic({tolerance}, rule=threshold)"
    for share, pays in ((star - 0.01, True), (star + 0.01, False)):
        law = Replay(x, share)
        coded = seconds_of(text, law, 8, 200, machine)
        waiting = seconds_of("uncoded", law, 8, 200, machine)
        assert (coded < waiting) is pays


@pytest.mark.parametrize("drain", [True, False])
def test_what_is_said_of_the_limit_never_contradicts_the_simulation(
    drain: bool,
) -> None:
    x = draw(ShiftedExponential(0.5, 0.5), steps=40, workers=6, seed=3).unit
    source = Source("drawn", Matrix(np.arange(40), x, list("abcdef")))
    endings = set()
    for share in (0.02, 0.3, 0.45, 0.55, 0.65, 1.0):
        asked = Asked(share=share, machine=Machine(drain=drain))
        planned = plan(source, asked)
        advice = advice_on(planned)
        waiting = next(s for s in advice.ranking if s.candidate.text == "uncoded")
        code = next(s for s in advice.ranking if s.candidate.is_code)
        pays = code.seconds <= 0.97 * waiting.seconds
        line = advice.break_even[0]
        ending = line.partition(" does: ")[2]
        assert f"here {percent(share)} does: " in line
        if ending.startswith("it pays") or "and takes" in ending:
            assert pays
        else:
            assert not pays
        limit = re.search("less than ([0-9.]+) %", line)
        assert limit is not None
        if ending.startswith("it ") and abs(share - float(limit[1]) / 100) > 0.01:
            assert ending.startswith("it pays") is (share < float(limit[1]) / 100)
        endings.add(ending.split(":")[0].split(",")[0])
    assert {"it pays", "it does not pay"} <= endings


def test_below_the_limit_and_not_faster_is_explained() -> None:
    # Twice the work takes nearly as long as waiting for the slower of two.
    x = np.tile([1.0, 1.9], (30, 1))
    source = Source("two", Matrix(np.arange(30), x, ["a", "b"]))
    asked = Asked(share=0.88, machine=Machine(drain=False))
    [line] = advice_on(plan(source, asked)).break_even
    assert line.startswith(
        "coding pays if less than 90 % of a step's time grows with the load; here 88 % "
        "does: by this limit it pays, but saves less than 3.0 % of a step: "
    )


def test_a_dead_worker_and_equal_workers_have_no_limit_to_compare_with() -> None:
    dead = source_of_delays([HEAVY, "dead(worker=1, step=0)"])
    told = advice_on(plan(dead, Asked(steps=10, workers=4))).break_even
    assert told == ("coding pays: waiting for all never ends, as a worker is dead",)
    equal = Source("equal", Matrix(np.arange(30), np.ones((30, 3)), list("abc")))
    told = advice_on(plan(equal, Asked(share=0.5))).break_even
    assert told == ("coding never pays here: no worker is later than the others",)


def test_where_nobody_is_late_no_share_is_small_enough() -> None:
    equal = Times(np.zeros((2, 3)), np.ones((2, 3)))
    assert [one.share for one in break_even(equal)] == [0.0, 0.0]
    assert "never" in str(break_even(equal)[0])


# -- candidates ----------------------------------------------------------------------


def _times(workers: int, steps: int = 12) -> Times:
    law = ShiftedExponential(1.0, 0.1)
    return draw(law, steps=steps, workers=workers, seed=0)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 12, 32])
def test_candidates_fit_are_exact_and_can_be_built_from_their_text(
    workers: int,
) -> None:
    found = candidates(_times(workers), network=workers == 12)
    assert found[0].text == "uncoded"
    texts = [one.text for one in found]
    assert len(set(texts)) == len(texts)
    for one in found:
        again = build(one.text, workers)
        assert again.exact
        assert (again.name, again.parts) == (one.scheme.name, one.scheme.parts)
        assert 0 < one.storage <= 1
        assert one.reason
    assert ("auto" in texts) == (workers > 1)
    assert any(text.startswith("coded_reduce") for text in texts) == (workers == 12)


def test_the_scheme_auto_is_there() -> None:
    assert "auto" in SCHEMES


def test_shares_by_speed_are_for_speeds_that_last() -> None:
    rng = np.random.default_rng(0)
    x = 1 + 0.02 * rng.random((20, 4))
    x[:, 0] *= 2
    steady = Times(np.zeros(x.shape), x)
    speeds = steady_speeds(steady)
    assert speeds is not None
    assert speeds[0] == pytest.approx(0.5, abs=0.02)
    assert sum("proportional" in c.text for c in candidates(steady)) == 2
    turned = np.concatenate([x[:10], x[10:, ::-1]])
    assert steady_speeds(Times(np.zeros(x.shape), turned)) is None
    assert steady_speeds(_times(4, steps=3)) is None
    labels = [c.label for c in candidates(steady) if "proportional" in c.text]
    assert labels[0] == "proportional(tolerance=0, speeds=..., parts=32)"


@pytest.mark.parametrize(
    ("seconds", "share", "overhead", "pieces"),
    [
        (1.0, 1.0, None, 8),
        (1.0, 1.0, 0.0, 32),
        (1.0, 1.0, 1e-9, 32),
        (1.0, 1.0, 0.002, 16),
        (1.0, 0.25, 0.002, 8),
        (1.0, 1.0, 1.0, 4),
        (1.0, 0.0, 0.002, 4),
    ],
)
def test_parts_per_worker_weigh_what_they_cost_against_what_is_waited_for(
    seconds: float, share: float, overhead: float | None, pieces: int
) -> None:
    assert pieces_for(seconds, share, overhead)[0] == pieces


def test_more_parts_cost_their_overhead() -> None:
    law = Replay(np.array([[1.0, 2.0]]), share=0.5)
    rng = np.random.default_rng(0)
    times = Priced(law, parts=8, overhead=0.1).sample(rng, 1, 2)
    np.testing.assert_allclose(times.unit, [[0.8, 1.3]])


# -- sources -------------------------------------------------------------------------


def test_an_uncoded_trace_gives_back_what_was_replayed(tmp_path: Path) -> None:
    x = read_matrix(traces()["AR"]).seconds[:12]
    trace = trace_of("uncoded", Times(0.25 * x, 0.75 * x), tmp_path)
    seen = seen_in(trace)
    np.testing.assert_allclose(seen.matrix.seconds, x)
    assert (seen.share, seen.bounds, seen.filled) == (None, 0.0, 0.0)


@pytest.mark.parametrize("share", [1.0, 0.6, 0.1])
@pytest.mark.parametrize("text", ["uncoded(pieces=4)", "fractional(1, pieces=4)"])
def test_parts_reported_one_by_one_tell_the_share(
    text: str, share: float, tmp_path: Path
) -> None:
    x = draw(ShiftedExponential(1.0, 0.1), steps=12, workers=4, seed=0).unit
    times = Times((1 - share) * x, share * x)
    seen = seen_in(trace_of(text, times, tmp_path, Machine(drain=False)))
    assert seen.share == pytest.approx(share, abs=0.01)
    assert np.median(seen.matrix.seconds / x) == pytest.approx(1, abs=0.02)


def test_loads_that_differ_from_step_to_step_tell_the_share() -> None:
    rng = np.random.default_rng(1)
    groups = []
    for _ in range(12):
        loads = rng.choice([0.5, 1.0, 2.0], 8)
        x = 3 * np.exp(0.05 * rng.standard_normal(8))
        groups.append(np.column_stack([loads, x * (0.7 + 0.3 * loads)]).tolist())
    assert best_share(groups) == pytest.approx(0.3, abs=0.05)
    assert best_share([[(1.0, 2.0), (1.0, 2.1)]] * 20) is None


def test_who_was_not_waited_for_took_at_least_so_long(tmp_path: Path) -> None:
    x = np.ones((12, 4))
    x[:, 0] = 5.0
    machine = Machine(drain=False)
    trace = trace_of("fractional(1)", Times(np.zeros(x.shape), x), tmp_path, machine)
    seen = seen_in(trace)
    assert seen.bounds == 0.25
    assert np.all(seen.matrix.seconds <= x + 1e-6)
    assert np.all(seen.matrix.seconds[:, 0] >= 1.0)
    source = source_from(tmp_path / "trace.jsonl")
    assert "25 % of the times are lower bounds" in source.remarks[0]


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_late_worker_that_drains_into_the_next_step_does_not_look_slower(
    share: float, tmp_path: Path
) -> None:
    x = np.ones((20, 4))
    x[:, 0] = 1.3
    times = Times((1 - share) * x, share * x)
    seen = seen_in(trace_of("fractional(1)", times, tmp_path), share)
    assert seen.bounds < 0.05  # a late worker says how long its last part took
    np.testing.assert_allclose(seen.matrix.seconds[:, 1:], 1.0, atol=1e-6)
    late = seen.matrix.seconds[:, 0]
    assert np.median(late) == pytest.approx(1.3, abs=1e-6)
    if share == 1.0:  # else what it pays once a step is shared out among parts
        np.testing.assert_allclose(late, 1.3, atol=1e-6)


def test_a_lower_bound_below_what_a_worker_takes_mostly_says_nothing(
    tmp_path: Path,
) -> None:
    x = np.ones((10, 4))
    x[:, 0] = 3.0
    x[5:, 1] = 9.0  # both of a pair are late, so the faster one is waited for
    machine = Machine(drain=False)
    trace = trace_of("fractional(1)", Times(np.zeros(x.shape), x), tmp_path, machine)
    seconds = seen_in(trace).matrix.seconds
    np.testing.assert_allclose(seconds[5:, 0], 3.0, atol=1e-6)
    np.testing.assert_allclose(seconds[:5, 0], 3.0, atol=1e-6)  # dropped after 2 s


def test_a_worker_that_was_gone_is_taken_at_its_median(tmp_path: Path) -> None:
    unit = np.ones((10, 4))
    unit[6:, 2] = np.inf
    trace = trace_of("fractional(1)", Times(np.zeros(unit.shape), unit), tmp_path)
    seen = seen_in(trace)
    assert seen.filled == pytest.approx(0.1)
    assert np.all(np.isfinite(seen.matrix.seconds))


def test_the_folder_of_a_run_is_read_by_its_trace(tmp_path: Path) -> None:
    x = np.ones((4, 2)) * [1.0, 2.0]
    (tmp_path / "trace").mkdir()
    trace_of("uncoded", Times(np.zeros(x.shape), x), tmp_path / "trace")
    (tmp_path / "trace" / "trace.jsonl").rename(tmp_path / "trace/0001-00000000.jsonl")
    write_manifest(
        tmp_path,
        Manifest(
            scheme="uncoded",
            workers=2,
            parts=2,
            engine="local",
            seed=0,
            samples=8,
            batch_size=8,
            steps_per_epoch=1,
        ),
    )
    source = source_from(tmp_path)
    assert source.matrix is not None
    np.testing.assert_allclose(source.matrix.seconds, x)


def test_a_trace_that_cannot_be_is_refused_with_its_name(tmp_path: Path) -> None:
    x = np.ones((2, 2))
    trace_of("uncoded", Times(np.zeros(x.shape), x), tmp_path)
    file = tmp_path / "trace.jsonl"
    many = file.read_text().replace('"workers":2', '"workers":2000000', 1)
    file.write_text(many)
    with pytest.raises(InvalidTrace, match=r"trace.jsonl: has 2000000 workers"):
        source_from(file)


def test_a_probe_brings_its_share_its_latency_and_the_price_of_a_part(
    tmp_path: Path,
) -> None:
    rows = [[1.0, 1.0], [1.0, 1.0]]
    probe = Probe(
        engine="local",
        job="digits",
        workers=2,
        seconds=rows,
        doubled=[[1.5, 1.5]] * 2,
        pieces=8,
        cut=[[1.07, 1.07]] * 2,
        round_trips=[[0.02, 0.02]],
        uploads=[[0.04, 0.04]],
        message=1000,
    )
    write_probe(tmp_path / "probe.json", probe)
    source = source_from(tmp_path / "probe.json")
    assert source.matrix is not None
    np.testing.assert_allclose(source.matrix.seconds, 0.98)
    assert source.share == pytest.approx(0.5 / 0.98)
    assert source.overhead == pytest.approx(0.01)
    assert source.latency == pytest.approx(0.01)
    setting = settle(source, Asked())
    assert setting.field.machine.latency == pytest.approx(0.01)
    assert any("measured by the probe" in note for note in setting.notes)
    planned = plan(source, Asked(steps=2))
    assert planned.pieces == 5
    assert source.remarks == ()
    unsteady = msgspec.structs.replace(probe, cut=[[1.0, 1.0], [3.0, 3.0]] * 5)
    write_probe(tmp_path / "unsteady.json", unsteady)
    assert "differ by a factor of" in warned(source_from(tmp_path / "unsteady.json"))


def test_copies_of_workers_stand_for_more_and_every_so_many_for_fewer() -> None:
    matrix = read_matrix(traces()["AR"])
    more = resized(matrix, 10)
    assert more.seconds.shape == (44, 10)
    for copy in range(10):
        column = np.sort(matrix.seconds[:, copy % 4])
        np.testing.assert_array_equal(np.sort(more.seconds[:, copy]), column)
    assert resized(matrix, 2).workers == ("dp0", "dp2")


# -- warnings ------------------------------------------------------------------------


def warned(source: Source, **asked: object) -> str:
    return " ".join(settle(source, Asked(**asked)).warnings)  # type: ignore[arg-type]


def test_what_was_assumed_is_said(tmp_path: Path) -> None:
    source = source_from("AR")
    assert "--share 1" in warned(source)
    assert "--share 1" not in warned(source, share=0.5)
    assert "gaps" in warned(source)
    assert "extrapolates" in warned(source, workers=8)
    assert "extrapolates" not in warned(source, workers=4)
    assert "repeats" in warned(source, steps=45)
    assert "repeats" in warned(source, runs=2)
    assert "repeats" not in warned(source, steps=44)
    assert "Only" not in warned(source)
    write_matrix(tmp_path / "few.csv", range(5), np.ones((5, 2)), ["a", "b"])
    few = warned(source_from(tmp_path / "few.csv"))
    assert "Only 5 steps" in few
    assert "gaps" not in few


def test_a_fitted_law_draws_as_many_steps_as_wanted() -> None:
    setting = settle(source_from("AR"), Asked(fitted=True, steps=300, share=1.0))
    assert setting.field.steps == 300
    assert setting.matrix is not None
    assert setting.matrix.seconds.shape == (300, 4)
    assert setting.path is None
    assert setting.notes[0].startswith("Fitted: ")
    with pytest.raises(InvalidOptions, match="--fitted: is for recordings"):
        settle(source_of_delays([HEAVY]), Asked(fitted=True))


def test_a_law_with_a_share_is_drawn_once_and_the_same_for_all() -> None:
    source = source_of_delays([HEAVY])
    setting = settle(source, Asked(share=0.25, steps=10, runs=3, workers=3))
    assert (setting.field.steps, setting.field.runs) == (30, 1)
    times = setting.times()
    np.testing.assert_allclose(times.unit, (times.unit + times.fixed) / 4, atol=1e-8)
    plain = settle(source, Asked(steps=10, runs=3, workers=3))
    assert (plain.field.runs, plain.matrix, plain.share) == (3, None, None)
    dead = source_of_delays([HEAVY, "dead(worker=0)"])
    with pytest.raises(InvalidOptions, match="dead"):
        settle(dead, Asked(share=0.5, workers=2))


def test_a_recording_named_as_delays_is_a_recording() -> None:
    assert source_of_delays(["AR"]).path == "AR"
    changed = source_of_delays(["AR", "dead(worker=0)"])
    assert changed.matrix is None
    assert len(changed.tables) == 2


@pytest.mark.parametrize("name", ["none", "none.txt", "none.csv", "none.jsonl"])
def test_what_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none"):
        source_from(tmp_path / name)


def test_a_trace_without_steps_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    times = Times(np.zeros((1, 2)), np.ones((1, 2)))
    Recorder(file, header_of(build("uncoded", 2), times, Machine(), 0, "")).close()
    with pytest.raises(InvalidTrace, match="no step"):
        source_from(file)


def test_numbers_of_steps_come_from_the_recording() -> None:
    x = np.ones((30, 4)) + 0.01 * np.random.default_rng(0).random((30, 4))
    x[15:, 1] *= 2
    names = ("a", "b", "c", "d")
    source = Source("own", Matrix(np.arange(100, 130), x, names), share=1.0)
    advice = advice_on(plan(source, Asked()))
    (said,) = advice.slow
    assert said.startswith("worker 1 (b) takes 2 times as long as the others since")
    assert said.endswith("step 115")
