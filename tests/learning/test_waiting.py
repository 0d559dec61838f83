"""What waiting for all would have taken, against truths that a simulation knows."""

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pytest

from codedgrad.core import Record, Scheme
from codedgrad.delays import Times
from codedgrad.learning.savings import Savings, Waiting
from codedgrad.learning.waiting import WaitingForAll
from codedgrad.schemes import build
from codedgrad.sim import Machine, header_of, run_events
from codedgrad.trace import Entry, Trace, ended_steps, reports

Floats = np.ndarray


def simulated(
    scheme: Scheme, fixed: Floats, part: Floats, machine: Machine | None = None
) -> Trace:
    """Run steps in which a worker pays `fixed` once and `part` for every part."""
    machine = machine or Machine(latency=0.001)
    times = Times(fixed=fixed, unit=part * scheme.parts / scheme.workers)
    entries: list[Entry] = []
    run_events(
        scheme,
        times,
        machine,
        watch=lambda event, commands: entries.append(Entry(event, tuple(commands))),
    )
    return Trace(header_of(scheme, times, machine), tuple(entries))


def estimated(trace: Trace, keep_all: bool = False) -> WaitingForAll:
    header = trace.header
    waiting = WaitingForAll(header.workers, header.parts / header.workers, keep_all)
    for record, _ in ended_steps(trace):
        waiting.add(record)
    return waiting


def calm(steps: int, workers: int = 8) -> Floats:
    draw = np.random.default_rng(0).uniform(1.0, 1.02, (steps, workers))
    return np.asarray(draw / 8)  # seconds a part; eight parts are the load


def truth(fixed: Floats, part: Floats) -> float:
    return float((fixed + 8 * part).max(axis=1).mean())


# -- regimes -------------------------------------------------------------------------


def sticky(steps: int) -> tuple[Floats, Floats]:
    """Workers are ten times slow for spells of about ten steps."""
    rng, part = np.random.default_rng(4), calm(steps)
    slow = np.zeros(part.shape, dtype=bool)
    for step in range(1, steps):
        draws = rng.random(part.shape[1])
        slow[step] = np.where(slow[step - 1], draws > 0.1, draws < 0.1 / 7)
    return np.zeros(part.shape), part * np.where(slow, 10.0, 1.0)


def spikes(steps: int) -> tuple[Floats, Floats]:
    """Now and then all parts of a worker in one step take 3 to 20 times as long."""
    rng, part = np.random.default_rng(5), calm(steps)
    hit = rng.random(part.shape) < 0.02
    factors = np.where(hit, rng.uniform(3.0, 20.0, part.shape), 1.0)
    return np.zeros(part.shape), part * factors


def hiccups(steps: int) -> tuple[Floats, Floats]:
    """The same spikes, and every fourth time a worker stumbles for up to 1.6 parts."""
    rng, (fixed, part) = np.random.default_rng(7), spikes(steps)
    hit = rng.random(part.shape) < 0.25
    return np.where(hit, rng.uniform(0.03, 0.2, part.shape), fixed), part


def pauses(steps: int) -> tuple[Floats, Floats]:
    """Now and then a worker stands still before its first part."""
    rng, part = np.random.default_rng(6), calm(steps)
    hit = rng.random(part.shape) < 0.02
    return np.where(hit, rng.uniform(0.5, 5.0, part.shape), 0.0), part


def classes(steps: int) -> tuple[Floats, Floats]:
    part = calm(steps)
    return np.zeros(part.shape), part * np.resize([1.0, 1.5, 2.0, 3.0], 8)


REGIMES = {
    "sticky": sticky,
    "spikes": spikes,
    "hiccups": hiccups,
    "pauses": pauses,
    "classes": classes,
}
SCHEMES = [
    "auto", "two_stage(pieces=8)", "fractional(tolerance=1, pieces=8)",
    "cyclic(tolerance=1, pieces=8)", "uncoded(pieces=8)",
]  # fmt: skip


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("regime", REGIMES)
def test_the_estimate_is_within_15_percent_of_the_truth(regime: str, name: str) -> None:
    fixed, part = REGIMES[regime](100)
    means = estimated(simulated(build(name, 8), fixed, part)).means()
    ratio = means.waiting.estimate / truth(fixed, part)
    print(f"{regime}, {name}: {ratio:.3f} of the truth")
    assert 0.85 < ratio < 1.15
    assert means.waiting.low <= means.waiting.estimate <= means.waiting.high


@pytest.mark.parametrize("name", SCHEMES)
def test_a_machine_that_stands_still_makes_no_slow_worker_a_pause(name: str) -> None:
    # Now and then all workers pause for 3.5 parts, as where the machine is a guest.
    fixed, part = spikes(100)
    stall = np.random.default_rng(8).random(100) < 0.1
    fixed[stall] = 3.5 * part.min()
    told = estimated(simulated(build(name, 8), fixed, part)).means().waiting
    assert told.estimate == pytest.approx(truth(fixed, part), rel=0.15)


def test_what_saved_nothing_is_not_said_to_have_saved() -> None:
    part = calm(40)
    savings = estimated(simulated(build("auto", 8), np.zeros(part.shape), part)).means()
    assert abs(savings.saved) < 0.02 * savings.seconds


# -- a slow machine, or a pause ------------------------------------------------------


def first_estimates(part: Floats, fixed: Floats | None = None) -> Sequence[Waiting]:
    fixed = np.zeros(part.shape) if fixed is None else fixed
    waiting = estimated(simulated(build("auto", 8), fixed, part), keep_all=True)
    return list(waiting.estimates().values())


def test_one_slow_part_between_normal_ones_is_a_pause() -> None:
    part, fixed = calm(30), np.zeros((30, 8))
    fixed[20, 3] = 4.0
    told = first_estimates(part, fixed)[20]
    assert told.estimate == pytest.approx(5.0, rel=0.05)
    assert told.high > 20  # if its other parts had been as slow


def test_slow_parts_in_steps_that_follow_each_other_are_a_slow_machine() -> None:
    part = calm(30)
    part[20:, 3] *= 10
    told = [each.estimate for each in first_estimates(part)]
    assert told[19] == pytest.approx(1.0, rel=0.05)
    assert told[20:29] == pytest.approx([10.0] * 9, rel=0.1)


def test_pauses_in_a_row_look_like_a_slow_machine_but_the_range_holds_them() -> None:
    part, fixed = calm(30), np.zeros((30, 8))
    fixed[20:24, 3] = 1.2
    told = first_estimates(part, fixed)[20:23]
    assert all(each.estimate > 10 for each in told)  # as slow neighbours say
    assert [each.low for each in told] == pytest.approx([2.2] * 3, rel=0.05)


def test_a_worker_that_is_given_nothing_may_have_recovered() -> None:
    # two_stage leaves out a worker that was slow, and so never sees it recover.
    part, scheme = calm(20), build("two_stage(pieces=8)", 8)
    part[2:8, 3] *= 10
    trace = simulated(scheme, np.zeros(part.shape), part)
    waiting = estimated(trace, keep_all=True)
    loads, told = dict(waiting.loads()), waiting.estimates()
    unseen = [step for step in range(8, 20) if not loads[step][3].is_seen]
    assert len(unseen) > 5
    for step in unseen:
        assert told[step].estimate == pytest.approx(10.0, rel=0.1)
        assert told[step].low == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("latency", [0.0, 0.02])
@pytest.mark.parametrize("warm_up", [1.0, 1.6])
def test_a_worker_that_is_slow_from_the_first_step_shows_one_part_a_step(
    warm_up: float, latency: float
) -> None:
    # Its first part of all takes longer still, as first parts of real jobs do, and an
    # order is on its way for half a part.
    part = calm(12)[:, :4]
    part[:, 2] *= 10
    fixed = np.zeros(part.shape)
    fixed[0, 2] = (warm_up - 1) * part[0, 2]
    trace = simulated(build("auto", 4), fixed, part, Machine(latency=latency))
    means = estimated(trace).means()
    assert means.waiting.estimate == pytest.approx(10.1, rel=0.1)


@pytest.mark.parametrize("factor", [2, 4, 8, 10, 16, 30])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_among_a_few_workers_the_slow_one_is_not_the_typical_one(
    workers: int, factor: int
) -> None:
    part = calm(20, workers)
    part[:, -1] *= factor
    fixed = np.zeros(part.shape)
    waiting = estimated(simulated(build("auto", workers), fixed, part))
    told = waiting.means().waiting
    assert told.estimate == pytest.approx(truth(fixed, part), rel=0.15)
    [(worker, times)] = waiting.slow()
    assert worker == workers - 1
    assert times == pytest.approx(factor, rel=0.05)


def test_what_others_did_after_a_slow_part_is_believed_of_everybody() -> None:
    # Worker 5 is four times slow for a step and shows two such parts; worker 3 is
    # twenty times slow for a step and shows one, which is then not taken for a pause.
    part = calm(30)
    part[10, 5] *= 4
    without = part.copy()
    part[20, 3] *= 20
    told = first_estimates(part)[20]
    assert told.estimate == pytest.approx(20.0, rel=0.1)
    assert first_estimates(without)[20].estimate == pytest.approx(1.0, rel=0.05)


def test_a_worker_that_stands_still_is_charged_to_the_step_it_stood_still_in() -> None:
    part, fixed = calm(12), np.zeros((12, 8))
    fixed[4, 2] = 1000.0
    told = [each.estimate for each in first_estimates(part, fixed)]
    elapsed = sum(told[:4]) + 8  # the worker was not seen again in the steps since
    assert told[4] > 6
    assert told[5:] == pytest.approx([1.02] * 7, rel=0.05)
    assert sum(told) > elapsed


# -- batches that are smaller than others --------------------------------------------


def test_a_short_last_batch_makes_no_worker_late_and_changes_no_estimate() -> None:
    # Every eighth step has a few samples: most parts are empty, those of worker 0 not.
    part = calm(40)
    part[:, 5] *= 10
    truth_ = (8 * part).max(axis=1)
    part[7::8] = 1e-4
    part[7::8, 0] = 3e-4
    told = reports(simulated(build("auto", 8), np.zeros(part.shape), part))
    short = [step for step in told.steps if step.step % 8 == 7]
    assert all(step.late == () for step in short)
    whole = [step for step in told.steps if step.step % 8 != 7]
    assert all(step.late == (5,) for step in whole[2:])
    found = [step.waiting.estimate for step in whole[2:]]
    assert np.mean(found) == pytest.approx(truth_.mean(), rel=0.1)


def test_a_job_that_becomes_quicker_is_learnt_anew() -> None:
    part = calm(60)
    part[30:] /= 4
    part[30:, 2] *= 10
    told = reports(simulated(build("auto", 8), np.zeros(part.shape), part))
    assert all(step.late == (2,) for step in told.steps[36:])


# -- losses --------------------------------------------------------------------------


def test_a_worker_that_is_away_is_not_counted_and_that_is_said() -> None:
    part = calm(20)
    part[10:, 6] = np.inf
    fixed = np.zeros(part.shape)
    savings = estimated(simulated(build("auto", 8), fixed, part)).means()
    assert savings.gone == 10
    assert savings.waiting.estimate == pytest.approx(1.0, rel=0.05)
    assert str(savings).endswith("; workers that were gone in 10 steps are not counted")


# -- one figure everywhere -----------------------------------------------------------


def test_what_is_kept_changes_nothing() -> None:
    fixed, part = spikes(700)
    trace = simulated(build("fractional(1)", 8), fixed, part)
    some, every = estimated(trace), estimated(trace, keep_all=True)
    assert len(some.estimates()) == 512
    assert len(every.estimates()) == 700
    one, other = some.means(), every.means()
    assert (one.steps, one.gone, one.seconds) == (other.steps, 0, other.seconds)
    assert astuple(one.waiting) == pytest.approx(astuple(other.waiting), rel=1e-12)


def test_the_reports_of_a_trace_add_up_to_its_savings() -> None:
    fixed, part = spikes(60)
    told = reports(simulated(build("auto", 8), fixed, part))
    mean = np.mean([step.waiting.estimate for step in told.steps])
    assert told.savings.waiting.estimate == pytest.approx(mean, rel=1e-12)
    loads = [max(load.seconds for load in row if load) for row in told.loads]
    assert np.mean(loads) == pytest.approx(mean, rel=1e-12)


def test_a_slow_worker_is_late_also_where_others_do_its_parts() -> None:
    part = calm(20)
    part[:, 3] *= 10
    told = reports(simulated(build("auto", 8), np.zeros(part.shape), part))
    assert all(step.late == (3,) for step in told.steps[2:])
    calm_ = reports(simulated(build("auto", 8), np.zeros(part.shape), calm(20)))
    assert all(step.late == () for step in calm_.steps)


def test_slow_workers_have_the_factor_that_they_are_slow() -> None:
    part = calm(20)
    part[:, 3] *= 10
    part[:, 5] *= 2
    waiting = estimated(simulated(build("auto", 8), np.zeros(part.shape), part))
    (first, tenfold), (second, twofold) = waiting.slow()
    assert (first, second) == (3, 5)
    assert tenfold == pytest.approx(10, rel=0.05)
    assert twofold == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(
    ("seconds", "estimate", "said"),
    [
        (1.0, 1.005, "nothing saved"),
        (1.0, 1.5, "saved 0.5 s a step"),
        (1.5, 1.0, "lost 0.5 s a step"),
    ],
)
def test_a_loss_is_called_so(seconds: float, estimate: float, said: str) -> None:
    savings = Savings(3, seconds, Waiting(estimate, estimate, estimate))
    assert str(savings).endswith(said)


@pytest.mark.parametrize("estimate", [0.8, 1.0])
def test_less_than_a_bound_proves_no_loss(estimate: float) -> None:
    savings = Savings(3, 1.0, Waiting(estimate, estimate, estimate, is_bound=True))
    assert str(savings).endswith(
        f"at least {estimate:.3g} s: what was saved is not known"
    )


@pytest.mark.parametrize(
    ("workers", "cores", "said"),
    [
        (4, 0, ""),
        (4, 4, ""),
        (4, 2, "4 workers share 2 cores: if they compute all the time, waiting for "
         "all would have taken less"),
    ],
)  # fmt: skip
def test_workers_that_share_cores_are_a_caveat(
    workers: int, cores: int, said: str
) -> None:
    waiting = Waiting(2.0, 2.0, 2.0)
    savings = Savings(3, 1.0, waiting, workers=workers, cores=cores)
    ending = f"; {said}" if said else ""
    assert str(savings).endswith(f"saved 1 s a step{ending}")


def test_no_step_saves_nothing() -> None:
    assert WaitingForAll(2, 1.0).means().steps == 0
    assert not WaitingForAll(2, 1.0).slow()


def test_a_step_without_a_sum_is_in_no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    part = calm(4)
    trace = simulated(build("uncoded(pieces=8)", 8), np.zeros(part.shape), part)
    waiting = WaitingForAll(8, 8.0)
    found: list[Record] = [record for record, _ in ended_steps(trace)]
    found[-1].combined = False
    for record in found:
        waiting.add(record)
    assert waiting.means().steps == 3
