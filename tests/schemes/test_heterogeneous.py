"""The heterogeneous code as a scheme: what it learns, and what it does about it."""

import math
from itertools import pairwise

import numpy as np
import pytest

from codedgrad.codes import Code
from codedgrad.codes.expected_error import expected
from codedgrad.codes.families.heterogeneous import weighed
from codedgrad.core import History, Scheme
from codedgrad.delays import Delays, ShiftedExponential, Times
from codedgrad.errors import CodedgradError, InvalidCode
from codedgrad.schemes import CodedScheme, Heterogeneous, build, heterogeneous, uncoded
from codedgrad.schemes.heterogeneous import reliability_layout as allocating
from codedgrad.sim import Simulator, compare, train

BUDGET = 1.0
MILD = np.linspace(0.05, 0.5, 10)
HARD = np.exp(-0.5 * np.linspace(0.1, 2.0, 10))  # 1 + Exp(psi) by 1.5 s
REGIMES = pytest.mark.parametrize("late", [MILD, HARD], ids=["mild", "hard"])


def deadline(late: np.ndarray, steps: int, seed: int = 0) -> Times:
    """Times by which worker i misses the budget with probability `late[i]`."""
    missed = np.random.default_rng(seed).random((steps, late.shape[-1])) < late
    return Times(fixed=np.where(missed, 2.0, 0.5), unit=np.zeros(missed.shape))


def odds(late: np.ndarray) -> float:
    return float(np.sum((1 - late) / late))


def after(scheme: Scheme, times: Times) -> Simulator:
    simulator = Simulator(scheme)
    for step in simulator.run(times):
        assert step.combined
    return simulator


def code_of(simulator: Simulator, scheme: Heterogeneous | CodedScheme) -> Code:
    assert isinstance(scheme, Heterogeneous)
    return simulator.coordinator.history.follow(scheme.design).code


# -- learning whom to rely on ----------------------------------------------------------


@REGIMES
@pytest.mark.parametrize("seed", [0, 1])
def test_from_a_cold_start_200_steps_are_enough(late: np.ndarray, seed: int) -> None:
    scheme = heterogeneous(10, budget=BUDGET, cap=math.inf)
    code = code_of(after(scheme, deadline(late, 201, seed)), scheme)
    learnt = expected(code, late)
    cold = expected(code_of(Simulator(scheme), scheme), late)
    off, off_cold = (np.abs(e.weights - 1).max() for e in (learnt, cold))
    print(
        f"error {learnt.aligned:.5f}, least {1 / odds(late):.5f}, at the start "
        f"{cold.aligned:.5f}; weights off by {off:.2f}, at the start {off_cold:.2f}"
    )
    assert learnt.aligned <= 1.25 / odds(late)
    assert off < 0.5 * off_cold  # at the start all are taken for alike


def test_the_default_cap_costs_little_and_keeps_loads_within_bounds() -> None:
    scheme = heterogeneous(10, budget=BUDGET)
    code = code_of(after(scheme, deadline(HARD, 201)), scheme)
    assert isinstance(scheme, Heterogeneous)
    assert code.load <= scheme.traits.load == 3
    assert expected(code, HARD).aligned <= 1.25 / odds(HARD)


def test_who_becomes_unreliable_is_noticed_and_who_recovers_too() -> None:
    scheme = heterogeneous(10, budget=BUDGET, cap=math.inf, forget=0.97)
    late = np.repeat([MILD, MILD[::-1]], 200, axis=0)
    code = code_of(after(scheme, deadline(late, 400)), scheme)
    assert expected(code, MILD[::-1]).aligned <= 1.4 / odds(MILD)


def test_a_worker_that_is_gone_is_given_next_to_nothing() -> None:
    times = deadline(np.full(6, 0.1), 120)
    times = Times(np.where(np.arange(6) == 2, np.inf, times.fixed), times.unit)
    scheme = heterogeneous(6, budget=BUDGET, cap=math.inf)
    simulator = after(scheme, times)
    tracker = simulator.coordinator.history.follow(scheme.design)
    assert tracker.straggle[2] > 0.9
    assert tracker._shares[2] < 0.1 * min(np.delete(tracker._shares, 2))


def test_a_late_message_that_comes_after_all_is_still_late() -> None:
    times = Times(fixed=np.tile([0.1, 0.1, 1.2], (30, 1)), unit=np.zeros((30, 3)))
    scheme = heterogeneous(3, budget=1.0)
    tracker = after(scheme, times).coordinator.history.follow(scheme.design)
    assert tracker.straggle[2] > 0.9
    assert max(tracker.straggle[:2]) < 0.1


def test_new_allocations_only_move_borders() -> None:
    """Everybody keeps one stretch of parts, and the stretches keep their order."""
    scheme = heterogeneous(10, budget=BUDGET, cap=math.inf, pieces=3)
    assert isinstance(scheme, Heterogeneous)
    simulator = Simulator(scheme)
    codes = {}
    for _ in simulator.run(deadline(HARD, 150)):
        code = code_of(simulator, scheme)
        codes[id(code)] = code
    assert len(codes) > 3
    for code in codes.values():
        ends = [(parts[0], parts[-1]) for parts in code.placement if parts]
        whole = [p for p in code.placement if p]
        assert all(len(p) == p[-1] - p[0] + 1 for p in whole)
        assert all(a[1] <= b[0] for a, b in pairwise(ends))
        assert (ends[0][0], ends[-1][1]) == (0, 29)


def test_small_changes_move_nothing() -> None:
    scheme = heterogeneous(10, budget=BUDGET)
    tracker = after(scheme, deadline(MILD, 301)).coordinator.history.follow(
        scheme.design
    )
    print(f"{tracker.made} allocations in 300 steps")
    assert 3 < tracker.made < 150


def mean_residual(text: str, law: Delays, steps: int = 300) -> float:
    """Return the residual for each part, over the last third of the steps."""
    scheme = build(text, workers=10)
    [result] = compare([scheme], law, steps=steps)
    return float(result.residual[0, -steps // 3 :].mean() / scheme.parts)


@pytest.mark.quick("-fixed", ", cap=1-normalised", ", pieces=3-debiased")
@pytest.mark.parametrize("decoding", ["fixed", "normalised", "debiased"])
@pytest.mark.parametrize("options", ["", ", cap=1", ", pieces=3"])
def test_where_nobody_is_late_the_sum_becomes_exact(
    decoding: str, options: str
) -> None:
    law = ShiftedExponential(floor=1.0, mean=0.1)
    text = f"heterogeneous(budget=9, decoding={decoding}{options})"
    assert mean_residual(text, law) < 0.01  # at the start all are thought to be late


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("budget", [1.5, 2.5])
def test_more_work_than_there_is_time_for_is_given_to_nobody(
    budget: float, pieces: int
) -> None:
    """All are alike, and a part takes most of the budget: stay with one for each."""
    law = ShiftedExponential(floor=0.8, mean=0.2)
    ours = mean_residual(f"heterogeneous(budget={budget}, pieces={pieces})", law)
    ignored = mean_residual(f"ignore(budget={budget})", law)
    print(f"residual {ours:.4f} for each part, {ignored:.4f} by ignoring")
    assert ours < ignored + 0.03


def test_a_correlation_that_is_learnt_to_be_nothing_is_used() -> None:
    """Not looking at it is to take gradients for alike, not for unlike."""
    design = heterogeneous(6, budget=BUDGET, straggle=0.3, correlation="learnt").design
    tracker = design.start(6)
    before = tracker.code
    tracker._likeness.correlation = 0.0
    simulator = after(uncoded(6), deadline(np.zeros(6), 1))
    tracker.update(simulator.coordinator.history.records[-1])
    assert tracker.made == 2
    assert tracker.code is not before


def test_a_code_that_cannot_be_debiased_does_not_end_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[InvalidCode] = []

    def watched(*given: object) -> Code:
        try:
            return weighed(*given)
        except InvalidCode as error:
            met.append(error)
            raise

    monkeypatch.setattr(allocating, "weighed", watched)
    text = "heterogeneous(count=4, allocation=chain, decoding=debiased, pieces=2)"
    scheme = build(text, workers=6)
    for seed in range(12):
        law = ShiftedExponential(floor=0.2, mean=1.0)
        [result] = compare([scheme], law, steps=40, seed=seed)
        assert np.isfinite(result.seconds).all()
        if met:
            return
    pytest.fail("no code was met that cannot be debiased")


def test_what_is_known_beforehand_is_a_plain_code() -> None:
    scheme = heterogeneous(4, budget=1.0, straggle=[0.1, 0.2, 0.4, 0.5])
    assert isinstance(scheme, CodedScheme)
    assert scheme.placement == ((0, 1), (2, 3), (3,), (3,))


# -- unbiased --------------------------------------------------------------------------


@pytest.mark.long
def test_over_many_steps_every_part_weighs_1_on_average() -> None:
    """10,000 steps through the coordinator; 3 standard errors for each of 10 parts.

    Were it right, one seed in 37 would fail; this one does not.
    """
    steps = 10_000
    scheme = heterogeneous(10, budget=BUDGET, straggle=MILD.tolist(), cap=math.inf)
    assert isinstance(scheme, CodedScheme)
    B = scheme.code.B.toarray()
    simulator = Simulator(scheme)
    weights = np.zeros((steps, 10))
    for number, step in enumerate(simulator.run(deadline(MILD, steps, seed=3))):
        state = simulator.coordinator.history.records[-1].state
        for message, weight in step.weights:
            worker = state.messages[message].worker
            weights[number] += weight * B[worker]
    error = weights.std(axis=0, ddof=1) / math.sqrt(steps)
    print(((weights.mean(axis=0) - 1) / error).round(1))
    assert np.all(np.abs(weights.mean(axis=0) - 1) <= 3 * error)


# -- gradients -------------------------------------------------------------------------


def likeness(apart: float) -> float:
    """Return the correlation learnt of gradients that are `apart` from a common one."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(6, 4000)) * apart
    common = rng.normal(size=4000)

    def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, object]:
        return 0.0, 1.0, common + own[part]

    scheme = heterogeneous(6, budget=BUDGET, correlation="learnt", decoding="gram")
    times = deadline(np.full(6, 0.3), 60)

    class Fixed:
        def sample(self, rng: object, steps: int, workers: int) -> Times:
            return times

    seen: list[float | None] = []
    plan = scheme.plan

    def watched(step: int, history: History) -> object:
        seen.append(history.follow(scheme.design)._likeness.correlation)
        return plan(step, history)

    object.__setattr__(scheme, "plan", watched)
    train(gradient, np.zeros(4000), scheme, Fixed(), steps=60)
    assert seen[0] is None
    assert seen[-1] is not None
    return seen[-1]


@pytest.mark.parametrize("apart", [0.3, 1.0, 3.0])
def test_how_alike_gradients_are_is_learnt_from_products(apart: float) -> None:
    learnt, true = likeness(apart), 1 / (1 + apart**2)
    print(f"correlation {learnt:.3f} of {true:.3f}")
    assert learnt == pytest.approx(min(true, 0.95), abs=0.06)


# -- bad input -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("heterogeneous", "must be told when to stop; try budget=SECONDS"),
        ("heterogeneous(budget=1, cap=0.5)", "leaves too little for somebody; try"),
        ("heterogeneous(budget=1, cap=low)", "cap = 'low'"),
        ("heterogeneous(budget=1, forget=0)", "forget = 0; try a number above 0"),
        ("heterogeneous(budget=1, correlation=much)", "correlation = 'much'"),
        ("heterogeneous(budget=1, correlation=2)", "correlation = 2"),
        ("heterogeneous(budget=1, allocation=some)", "allocation = 'some' is not"),
        ("heterogeneous(budget=1, decoding=some)", "decoding = 'some' is not known"),
        ("heterogeneous(budget=1, straggle=[0.1, 0.2])", "has shape"),
        ("heterogeneous(budget=1, straggle=1.5)", "not in"),
        ("heterogeneous(budget=1, pieces=0)", "pieces = 0 is out of range"),
        ("heterogeneous(count=7)", "count = 7 is out of range"),
    ],
)
def test_bad_options_say_what_would_do(text: str, why: str) -> None:
    with pytest.raises(CodedgradError, match=why.replace("[", r"\[")):
        build(text, workers=6)
