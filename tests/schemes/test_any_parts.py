"""A run keeps its number of parts, whatever workers and schemes it goes on with."""

import itertools
import re
from functools import cache

import numpy as np
import pytest

from codedgrad import codes
from codedgrad.codes import Code, amplification, decode, recut
from codedgrad.codes.late_sets import heard_without
from codedgrad.codes.refined import runs
from codedgrad.core import Assign, Command, Event, Patience, Scheme
from codedgrad.delays import ShiftedExponential
from codedgrad.errors import InvalidCode, InvalidScheme
from codedgrad.schemes import SCHEMES, CodedScheme, build
from codedgrad.sim import Machine, Simulator, has_fast_path, outcome, run_events
from codedgrad.sim.arrays.two_stage import redrawn, two_stage_model
from codedgrad.testing import check_code, check_scheme

WORKERS = (1, 2, 3, 5, 8, 11, 12)  # 12 = 3 + 9: a tree
PARTS = (1, 2, 5, 7, 8, 11, 16, 64)

EXACT = [
    "auto", "auto(copies=2)", "uncoded", "fractional(tolerance=1)",
    "cyclic(tolerance=1)", "cyclic(tolerance=2)", "cyclic(tolerance=2, rule=threshold)",
    "clustered(clusters=2, tolerance=1)",
    "clustered(clusters=2, tolerance=1, rule=threshold)",
    "proportional(tolerance=1, speeds=1)", "dynamic(clusters=2, tolerance=1)",
    "dynamic(clusters=4, tolerance=1, storage=cluster)",
    "coded_reduce(children=3, tolerance=1)", "two_stage", "two_stage(copies=2)",
]  # fmt: skip
APPROXIMATE = [
    "ignore(count=1)", "ignore(budget=1.5)", "heterogeneous(budget=2)",
    "heterogeneous(budget=2, straggle=0.2, allocation=chain, decoding=debiased)",
    "bernoulli(copies=1, count=1)", "bernoulli(copies=2, budget=2, decoding=optimal)",
    "stochastic(copies=1, straggle=0.1, budget=2)", "erasurehead(copies=2, budget=2)",
    "erasurehead(copies=1, count=1)", "vertex_graph(degree=2, budget=2)",
    "edge_graph(degree=2, budget=2)",
    "edge_graph(degree=2, budget=2, decoding=one-step)",
]  # fmt: skip
UNHURRIED = Patience(1e5, first=1e5, scale=1e5)  # no worker is called silent
BY_CHANCE = "bernoulli"  # may leave a part without workers

ALTERNATIVES = re.compile(r"; or (.+), which can have \d+ parts with \d+ workers$")


@cache
def built(text: str, workers: int, parts: int) -> Scheme | InvalidScheme:
    try:
        return build(text, workers, parts=parts)
    except InvalidScheme as error:
        return error


def every(text: str) -> list[Scheme]:
    found = [built(text, n, k) for n in WORKERS for k in PARTS]
    return [scheme for scheme in found if not isinstance(scheme, InvalidScheme)]


def test_the_lists_above_miss_no_family() -> None:
    assert {text.partition("(")[0] for text in EXACT + APPROXIMATE} == set(SCHEMES)


@pytest.mark.parametrize("text", EXACT + APPROXIMATE)
def test_a_scheme_has_the_parts_of_the_run_or_names_others(text: str) -> None:
    for n, k in itertools.product(WORKERS, PARTS):
        scheme = built(text, n, k)
        if isinstance(scheme, InvalidScheme):
            names = ALTERNATIVES.search(str(scheme))
            assert names is not None, scheme
            for other in names[1].split(" or "):
                found = built(other, n, k)
                assert not isinstance(found, InvalidScheme), found
                assert found.parts == k
            continue
        assert (scheme.workers, scheme.parts) == (n, k)
        placed = {part for held in scheme.placement for part in held}
        if not text.startswith(BY_CHANCE):
            assert placed == set(range(k)), scheme
        again = build(scheme.name, n)
        assert (again.name, again.parts) == (scheme.name, k)
        assert again.placement == scheme.placement
    assert every(text), "no number of workers fits"


@pytest.mark.parametrize("text", EXACT + APPROXIMATE)
def test_a_scheme_of_any_parts_passes_the_conformance_suite(text: str) -> None:
    schemes = every(text)
    uneven = [s for s in schemes if s.parts % s.workers and s.parts > s.workers]
    few = [s for s in schemes if s.parts < s.workers]
    for some in (uneven, few):
        for scheme in some[len(some) // 2 :][:1]:
            check_scheme(scheme, schedules=2)


# -- names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "workers", "parts", "name"),
    [
        ("auto", 8, 64, "auto"),
        ("auto", 8, 32, "auto(pieces=4)"),
        ("auto", 5, 64, "auto(parts=64)"),
        ("auto(pieces=4)", 5, 32, "auto(parts=32)"),
        ("auto(parts=64)", 8, 64, "auto"),
        ("auto(copies=2)", 11, 64, "auto(parts=64, copies=2)"),
        ("two_stage", 4, 8, "two_stage"),
        ("two_stage", 4, 4, "two_stage(pieces=1)"),
        ("cyclic(2)", 8, 8, "cyclic(tolerance=2)"),
        ("cyclic(2)", 8, 16, "cyclic(tolerance=2, pieces=2)"),
        ("cyclic(2)", 8, 5, "cyclic(tolerance=2, parts=5)"),
        ("edge_graph(2, count=3)", 6, 12, "edge_graph(degree=2, count=3, pieces=2)"),
        ("proportional(1, 1)", 5, 7, "proportional(tolerance=1, speeds=1, parts=7)"),
    ],
)
def test_a_name_says_how_many_parts_where_workers_do_not(
    text: str, workers: int, parts: int, name: str
) -> None:
    scheme = build(text, workers, parts=parts)
    assert (scheme.name, scheme.parts) == (name, parts)


@pytest.mark.parametrize("text", EXACT + APPROXIMATE)
def test_without_parts_a_scheme_is_what_it_was(text: str) -> None:
    for n in WORKERS:
        try:
            usual = build(text, n)
        except (InvalidCode, InvalidScheme):
            continue
        same = build(text, n, parts=usual.parts)
        assert same.placement == usual.placement
        if not text.startswith(("proportional", "coded_reduce")):  # parts are theirs
            assert same.name == usual.name


def test_parts_and_pieces_must_agree() -> None:
    assert build("cyclic(1, pieces=3, parts=15)", 5).parts == 15
    with pytest.raises(
        InvalidScheme, match=r"pieces = 3 makes 15 parts.*not parts = 16"
    ):
        build("cyclic(1, pieces=3, parts=16)", 5)
    with pytest.raises(InvalidScheme, match="pieces = 2 must divide parts = 7"):
        build("proportional(1, 1, pieces=2, parts=7)", 5)


def test_a_scheme_that_names_other_parts_than_the_run_is_refused() -> None:
    with pytest.raises(
        InvalidScheme, match=r"parts = 64, and the run has 32; try auto"
    ):
        build("auto(parts=64)", 8, parts=32)


@pytest.mark.parametrize("parts", [0, -1, 2.5, "many", True])
def test_what_is_no_number_of_parts_is_refused(parts: object) -> None:
    for name in ("auto", "uncoded", "two_stage", "heterogeneous"):
        options = {"budget": 1.0} if name == "heterogeneous" else {}
        with pytest.raises((InvalidCode, InvalidScheme), match="parts"):
            build(name, 4, options, parts=parts)  # type: ignore[arg-type]  # on purpose


# -- codes ---------------------------------------------------------------------------


def test_runs_are_even_over_any_stretch_of_blocks() -> None:
    for k, m in itertools.product(range(1, 30), range(1, 12)):
        cut = runs(k, m)
        assert [part for run in cut for part in run] == list(range(k))
        sizes = [len(run) for run in cut]
        for length in range(1, m + 1):
            held = [sum((sizes * 2)[b : b + length]) for b in range(m)]
            assert max(held) - min(held) <= 1


@pytest.mark.parametrize(
    "text", [t for t in EXACT if isinstance(built(t, 8, 64), CodedScheme)]
)
def test_every_tolerated_late_set_gives_the_sum_of_all_gradients(text: str) -> None:
    rng = np.random.default_rng(0)
    for n, k in itertools.product((2, 3, 5, 8), (1, 2, 5, 7, 11, 16)):
        scheme = built(text, n, k)
        if isinstance(scheme, InvalidScheme):
            continue
        assert isinstance(scheme, CodedScheme)
        code, G = scheme.code, rng.standard_normal((k, 3))
        messages = code.B.toarray() @ G
        for late in itertools.combinations(range(n), scheme.tolerance or 0):
            heard = [m for m in range(n) if m not in late]
            decoding = decode(code, heard)
            got = sum(a * messages[m] for m, a in decoding.weights)
            np.testing.assert_allclose(got, G.sum(axis=0), atol=1e-8, err_msg=str(late))
            assert code.decodable(heard)
            assert code.decodable(m for m in heard if code.rows[m][0])


@pytest.mark.parametrize("parts", [1, 3, 5, 7, 11, 17])
@pytest.mark.parametrize(
    "code",
    [
        codes.fractional(8, 1), codes.cyclic(8, 2), codes.cyclic(5, 1),
        codes.clustered(codes.cyclic(4, 1), 2), codes.vertex_graph(8, 3),
        codes.bernoulli(8, 3, decoding="optimal"),
        codes.proportional(5, 1, [1, 2, 3, 4, 5]),
        codes.heterogeneous(6, 0.3, decoding="gram"),
    ],
    ids=str,
)  # fmt: skip
def test_a_code_that_was_cut_passes_the_conformance_suite(
    code: Code, parts: int
) -> None:
    check_code(recut(code, parts))


@pytest.mark.parametrize("parts", [3, 8, 11, 13])
@pytest.mark.parametrize(
    "code",
    [codes.vertex_graph(8, 3), codes.edge_graph(6, 4), codes.cyclic(8, 2)],
    ids=str,
)
def test_what_cannot_be_exact_has_the_least_misfit_over_parts(
    code: Code, parts: int
) -> None:
    cut = recut(code, parts)
    for late in itertools.combinations(range(code.messages), 4):
        heard = [m for m in range(code.messages) if m not in late]
        rows = cut.B.toarray()[heard]
        best = np.linalg.lstsq(rows.T, np.ones(parts), rcond=None)[0]
        least = float(((best @ rows - 1.0) ** 2).sum())
        assert decode(cut, heard).residual == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("parts", [1, 5, 7, 11, 13, 24])
def test_amplification_counts_the_parts_of_every_cluster(parts: int) -> None:
    inner = codes.cyclic(4, 2)
    cut = recut(codes.clustered(inner, 2), parts)
    worst = 0.0
    for cluster in range(2):
        rows = cut.B.toarray()[4 * cluster : 4 * cluster + 4]
        rows = rows[:, np.any(rows != 0, axis=0)]
        if rows.size:
            late = np.array(list(itertools.combinations(range(4), 2)))
            weights = inner.decoder.weights(heard_without(late, inner.owner))
            each = np.abs(weights) @ np.abs(rows).sum(axis=1) / rows.shape[1]
            worst = max(worst, float(each.max()))
    assert amplification(cut).value == pytest.approx(worst)


def test_weights_of_the_first_answers_leave_out_who_has_no_part() -> None:
    scheme = build("ignore(count=6)", 8, parts=2)
    assert isinstance(scheme, CodedScheme)
    idle = [w for w, held in enumerate(scheme.placement) if not held]
    [first, _] = [w for w in range(8) if w not in idle]
    assert decode(scheme.code, [first, *idle]).weights == ((first, 2.0),)


# -- steps ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", EXACT + APPROXIMATE)
def test_nobody_is_asked_for_nothing(text: str) -> None:
    few = [s for s in every(text) if s.parts < s.workers]
    for scheme in few[::4]:
        orders: list[Assign] = []

        def watch(
            event: Event, commands: list[Command], seen: list[Assign] = orders
        ) -> None:
            seen.extend(c for c in commands if isinstance(c, Assign))

        law = ShiftedExponential(floor=0.1, mean=1.0)
        times = law.sample(np.random.default_rng(0), 4, scheme.workers)
        for _ in Simulator(scheme, watch=watch).run(times):
            pass
        assert orders
        assert all(order.segment.parts for order in orders)


@pytest.mark.parametrize("text", EXACT + APPROXIMATE)
def test_the_fast_path_gives_what_the_events_give(text: str) -> None:
    law = ShiftedExponential(floor=0.1, mean=1.0)
    for scheme in every(text)[::5]:
        if not (isinstance(scheme, CodedScheme) and has_fast_path(scheme)):
            continue
        if scheme.workers > 8:  # tables of all sets take long
            continue
        times = law.sample(np.random.default_rng(1), 8, scheme.workers)
        fast = outcome(scheme, times)
        slow = run_events(scheme, times, Machine(drain=False))
        np.testing.assert_array_equal(fast.seconds, slow.seconds, str(scheme))
        np.testing.assert_array_equal(fast.messages, slow.messages, str(scheme))
        np.testing.assert_array_equal(fast.work, slow.work, str(scheme))
        np.testing.assert_allclose(fast.residual, slow.residual, 0, 1e-9)


@pytest.mark.parametrize("parts", [3, 7, 10, 11, 16])
def test_the_model_of_two_stages_gives_what_the_events_give(parts: int) -> None:
    window = 1.2 * -(-parts // 5)  # somebody is free by then
    text = f"two_stage(5, {window}, 1, copies=all, rest=whole, start=numbered)"
    scheme = build(text, 5, parts=parts)
    pace = 0.5 + np.random.default_rng(2).exponential(0.5, (40, 5))
    times = redrawn(pace, None, parts)
    model = two_stage_model(scheme, times)  # type: ignore[arg-type]  # it is one
    steps = list(Simulator(scheme, patience=UNHURRIED).run(times))
    np.testing.assert_allclose([s.seconds for s in steps], model.seconds)


def test_a_worker_without_parts_of_its_own_still_shows_its_pace() -> None:
    asked: set[int] = set()

    def watch(event: Event, commands: list[Command]) -> None:
        asked.update(c.segment.worker for c in commands if isinstance(c, Assign))

    for copies, who in (("all", set(range(5))), (1, {2, 4})):
        asked.clear()
        scheme = build("auto", 5, {"copies": copies}, parts=2)
        law = ShiftedExponential(floor=0.1, mean=1.0)
        times = law.sample(np.random.default_rng(0), 2, 5)
        steps = list(Simulator(scheme, watch=watch).run(times))
        assert all(step.combined for step in steps)
        assert asked == who


def test_a_step_is_shared_evenly_by_any_number_of_workers() -> None:
    for workers in (5, 8, 11):
        scheme = build("auto", workers, parts=64)
        code = build("uncoded", workers, parts=64)
        assert scheme.traits.load == -(-64 // workers)
        each = {len(held) for held in code.placement}
        assert each <= {64 // workers, scheme.traits.load}
