"""Every scheme passes the conformance suite; names and options are what they say."""

import re

import numpy as np
import pytest

from codedgrad import schemes
from codedgrad.codes import clustered as clustered_code
from codedgrad.codes import cyclic as cyclic_code
from codedgrad.core import History, Scheme
from codedgrad.delays import Times
from codedgrad.errors import CodedgradError, InvalidCode, InvalidScheme
from codedgrad.schemes import SCHEMES, Auto, CodedScheme, Dynamic, Heterogeneous, build
from codedgrad.schemes.fixed_code import proportional
from codedgrad.schemes.options import title
from codedgrad.schemes.registry import build_from, parse
from codedgrad.schemes.stop_rules import Decodable, First, Threshold, Within
from codedgrad.sim import Simulator
from codedgrad.testing import EXAMPLES, check_code, check_scheme


def test_every_scheme_has_an_example() -> None:
    assert {s.name.partition("(")[0] for s in EXAMPLES} == set(SCHEMES)


@pytest.mark.parametrize("scheme", EXAMPLES, ids=lambda s: s.name)
def test_a_scheme_passes_the_conformance_suite(scheme: Scheme) -> None:
    check_scheme(scheme, schedules=20)


@pytest.mark.parametrize(
    "scheme", [s for s in EXAMPLES if hasattr(s, "code")], ids=lambda s: s.name
)
def test_the_code_of_a_scheme_passes_the_conformance_suite(
    scheme: CodedScheme | Dynamic,
) -> None:
    check_code(scheme.code)


@pytest.mark.parametrize("scheme", EXAMPLES, ids=lambda s: s.name)
def test_a_scheme_can_be_built_again_from_its_name(
    scheme: Auto | CodedScheme | Dynamic | Heterogeneous,
) -> None:
    again = build(scheme.name, scheme.workers)
    assert isinstance(again, type(scheme))
    assert again.name == scheme.name
    assert again.placement == scheme.placement
    for what in ("rule", "grid", "storage", "spread", "states", "design", "early"):
        assert getattr(again, what, None) == getattr(scheme, what, None)
    if isinstance(scheme, CodedScheme | Dynamic) and isinstance(
        again, CodedScheme | Dynamic
    ):
        assert again.code.name == scheme.code.name
        assert (again.code.B != scheme.code.B).nnz == 0


def test_rules_are_what_the_options_say() -> None:
    assert schemes.cyclic(5, 1).rule == Decodable()
    assert schemes.cyclic(5, 1, rule="threshold").rule == Threshold()
    assert schemes.ignore(5, 2).rule == First(2)
    assert schemes.erasurehead(4, 2, budget=1.0).rule == Within(1.0)
    both = schemes.erasurehead(4, 2, budget=1.0, count=3)
    assert both.rule == Within(1.0, First(3))


def test_a_sum_that_is_exact_by_chance_does_not_end_a_step() -> None:
    """Every part is with two workers, each late in half of the steps: weights of 1.

    The messages of 0 and 2 are the sum; to stop there would spoil the mean.
    """
    scheme = build("stochastic(2, 0.5, budget=9, placement=cyclic)", workers=4)
    assert scheme.code.decodable([0, 2])
    unit = np.array([[0.1, 0.3, 0.2, 0.4]])
    [step] = Simulator(scheme).run(Times(fixed=np.zeros((1, 4)), unit=unit))
    assert step.heard == (0, 2, 1, 3)
    assert step.residual == 4.0  # every part counts twice this time


def test_only_schemes_that_accept_no_residual_state_a_tolerance() -> None:
    assert schemes.fractional(4, 1).tolerance == 1
    assert schemes.erasurehead(4, 2, budget=1.0).tolerance is None
    assert schemes.ignore(4, 3).tolerance is None


def test_ignoring_scales_the_first_answers_up() -> None:
    scheme = schemes.ignore(4, 3)
    weights = scheme.code.decoder.weights(scheme.code.pattern([0, 1, 3])[None])
    assert weights.tolist() == [[4 / 3, 4 / 3, 0.0, 4 / 3]]


def test_ignoring_may_stop_by_the_clock_and_may_leave_the_scale_alone() -> None:
    by_clock = schemes.ignore(4, budget=2.0, scaled=False)
    assert by_clock.rule == Within(2.0, First(4))
    assert by_clock.name == "ignore(budget=2.0, scaled=false)"
    both = schemes.ignore(4, 3, budget=2.0)
    assert both.rule == Within(2.0, First(3))
    heard = by_clock.code.pattern([0, 3])[None]
    assert by_clock.code.decoder.weights(heard).tolist() == [[1.0, 0.0, 0.0, 1.0]]
    assert both.code.decoder.weights(heard).tolist() == [[2.0, 0.0, 0.0, 2.0]]


@pytest.mark.parametrize(
    ("text", "heard", "weights"),
    [
        ("bernoulli(2, count=2, decoding=sum)", [0, 2], [0.5, 0, 0.5, 0]),
        ("erasurehead(2, count=2, decoding=sum)", [0, 1], [0.5, 0.5, 0, 0]),
        ("erasurehead(2, count=2)", [0, 1], [1, 0, 0, 0]),
    ],
)
def test_published_comparisons_add_up_answers_over_their_copies(
    text: str, heard: list[int], weights: list[float]
) -> None:
    scheme = build(text, workers=4)
    assert scheme.name.partition("(")[2] in text.replace("(2", "(copies=2")
    found = scheme.code.decoder.weights(scheme.code.pattern(heard)[None])
    assert found.tolist() == [weights]
    assert scheme.tolerance is None


@pytest.mark.parametrize(
    "scheme",
    [
        schemes.stochastic(3, 2, [0.1, 1 / 3, 0.7], budget=1.0),
        schemes.stochastic(3, 2, np.array([0.1, 1 / 3, 0.7]), count=np.int64(2)),
        schemes.stochastic(
            3, 2, (0.1, 0.2, 0.4), placement="cyclic", weights="inverse-odds", count=2
        ),
        schemes.stochastic(3, 2, np.float64(0.1), count=2),
        schemes.ignore(3, budget=0.1, scaled=False, pieces=2),
        schemes.ignore(3, 2),
        schemes.erasurehead(4, 2, budget=1.5, decoding="sum"),
        schemes.bernoulli(4, 2, budget=1.5, decoding="sum"),
        proportional(3, 1, [1, 1.5, 2.25]),
    ],
    ids=str,
)
def test_lists_and_switches_can_be_read_back_with_all_their_digits(
    scheme: CodedScheme,
) -> None:
    families = {**SCHEMES, "proportional": proportional}
    name, given = parse(scheme.name, families)
    again = build_from(families, name, scheme.workers, given)
    assert again.name == scheme.name
    assert again.rule == scheme.rule
    assert (again.code.B != scheme.code.B).nnz == 0


def test_only_what_is_unusual_is_in_a_name() -> None:
    usual = {"placement": "random", "weights": "equal", "seed": 0, "pieces": 1}
    name = schemes.stochastic(4, 2, 0.25, count=3, **usual).name
    assert name == "stochastic(copies=2, straggle=0.25, count=3)"
    assert schemes.ignore(4, 3, scaled=True).name == "ignore(count=3)"
    assert title("any", listed=[True, "word", 2]) == "any(listed=[true, word, 2])"


@pytest.mark.parametrize("number", [int, np.int64, np.uint8])
def test_numbers_of_clusters_may_be_of_any_whole_kind(number: type) -> None:
    scheme = schemes.dynamic(4, number(2), number(1))
    assert scheme.name == "dynamic(clusters=2, tolerance=1)"
    assert len(scheme.grid.shifts[0]) == 2
    static = schemes.clustered(4, number(2), number(1))
    assert static.name == "clustered(clusters=2, tolerance=1)"


@pytest.mark.parametrize("workers", [4.0, "4", True, 0])
def test_dynamic_clusters_of_no_number_of_workers_are_refused(workers: object) -> None:
    with pytest.raises(InvalidCode, match="dynamic: workers"):
        schemes.dynamic(workers, 2, 1)  # type: ignore[arg-type]


def test_pieces_cut_parts_and_change_nothing_else() -> None:
    whole, cut = schemes.cyclic(5, 2), schemes.cyclic(5, 2, pieces=3)
    assert cut.parts == 3 * whole.parts
    for few, many in zip(whole.placement, cut.placement, strict=True):
        assert many == tuple(3 * p + i for p in few for i in range(3))
    assert cut.code.decodable([0, 1, 2])
    assert not cut.code.decodable([0, 1])


def test_clusters_are_those_of_the_code() -> None:
    scheme = schemes.clustered(8, 2, 1)
    code = clustered_code(cyclic_code(4, 1), 2)
    assert (scheme.code.B != code.B).nnz == 0


def test_a_plan_is_new_for_every_step() -> None:
    scheme, history = schemes.uncoded(2), History(2)
    assert scheme.plan(0, history) is not scheme.plan(1, history)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fractionl(1)", "there is no scheme 'fractionl'; try fractional"),
        ("zzz", "there is no scheme 'zzz'; try one of auto"),
        ("cyclic(tolerence=1)", "cyclic has no option tolerence; try tolerance"),
        ("cyclic(zzz=1)", "cyclic has no option zzz; try one of tolerance"),
        ("cyclic", r"cyclic needs tolerance; try cyclic\(tolerance=1\)"),
        (
            "coded_reduce",
            "coded_reduce needs children and tolerance; "
            r"try coded_reduce\(children=3, tolerance=1\)$",
        ),
        (
            "coded_reduce(2, seats=reliable)",
            r"needs tolerance; try coded_reduce\(children=2, tolerance=1\)$",
        ),
        ("cyclic(1, 2)", "'2' has no name; try options written as key=value"),
        ("cyclic(1, tolerance=2)", "tolerance is given twice"),
        ("cyclic(1", "is not a scheme"),
        ("import os", "is not a scheme"),
        ("cyclic(1, rule=sometimes)", "rule = 'sometimes' is not known"),
        ("bernoulli(2)", "must be told when to stop; try budget=SECONDS"),
        ("bernoulli(2, budget=soon)", "budget = 'soon'; try a number"),
        ("bernoulli(2, budget=-1)", "is not a time to wait"),
        ("clustered(4, 1)", "clusters = 4 must divide workers = 6; try clusters in"),
        ("edge_graph(5, count=3)", "degree = 5 must divide 2 x workers = 12"),
        ("stochastic(2, 1.5, budget=1)", "not in"),
        ("fractional(3)", "tolerance \\+ 1 = 4 must divide workers = 6"),
        ("cyclic(one)", "tolerance must be a whole number, got 'one'"),
        ("ignore(7)", "count = 7 is out of range"),
        ("ignore", "must be told when to stop; try budget=SECONDS"),
        ("ignore(2, 3)", "'3' has no name; try options written as key=value"),
        ("ignore(2, scaled=2)", "scaled = 2; try true or false"),
        ("stochastic(2, [0.1, 0.2, count=2)", "has an odd bracket; try lists such as"),
        ("stochastic(2, 0.1], count=2)", "has an odd bracket"),
        ("stochastic(2, [[0.1]], count=2)", r"straggle has shape \(1, 1\)"),
        ("stochastic(2, [0.1, 0.2], count=2)", r"straggle has shape \(2,\)"),
        ("stochastic(2, [a, b], count=2)", "straggle must be numbers"),
        ("stochastic(2, 0.1, count=2, weights=odd)", "weights = 'odd' is not known"),
        ("erasurehead(2, count=2, decoding=all)", "decoding = 'all' is not known"),
        ("uncoded(pieces=0)", "uncoded: pieces = 0 is out of range"),
        ("ignore(2, pieces=0)", "ignore: pieces = 0 is out of range"),
        ("clustered(2, 3)", "clustered: tolerance = 3 is out of range; .* from 0 to 2"),
        ("dynamic(2, 3)", "dynamic: tolerance = 3 is out of range; .* from 0 to 2"),
        ("dynamic(2, some)", "dynamic: tolerance must be a whole number, got 'some'"),
        ("dynamic(some, 1)", "dynamic: clusters must be a whole number, got 'some'"),
        ("dynamic(7, 1)", "dynamic: clusters = 7 is out of range"),
        ("dynamic(2, 1, reach=3)", "dynamic: reach = 3 is out of range; .* 1 to 2"),
        ("dynamic(2, 1, spread=0)", "dynamic: spread = 0 is not known"),
        ("dynamic(2, 1, spread=[])", r"dynamic: spread = \[\] is not known"),
        ("dynamic(2, 1, pieces=0)", "dynamic: pieces = 0 is out of range"),
        (
            "heterogeneous(count=2, straggle=0.1, correlation=2)",
            "heterogeneous: correlation = 2 is none; try a number from -1 to 1",
        ),
    ],
)
def test_a_bad_scheme_says_what_is_wrong_and_what_would_do(text: str, why: str) -> None:
    with pytest.raises(CodedgradError, match=why) as caught:
        build(text, workers=6)
    assert isinstance(caught.value, InvalidScheme | InvalidCode)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (
            "cyclic(6)",
            "try clustered(clusters=4, tolerance=6) or cyclic(tolerance=3)",
        ),
        (
            "cyclic(7)",
            "try clustered(clusters=4, tolerance=7) or fractional(tolerance=7) or "
            "cyclic(tolerance=3)",
        ),
        ("clustered(2, 7)", "cyclic(tolerance=7) for 20 workers"),
    ],
)
def test_a_scheme_that_would_lose_digits_is_refused_with_schemes_that_would_not(
    text: str, advice: str
) -> None:
    with pytest.raises(InvalidScheme, match=re.escape(advice)) as caught:
        build(text, workers=40)
    for choice in str(caught.value).partition("; try ")[2].split(" or "):
        build(choice, workers=20 if text.startswith("clustered") else 40)


def test_options_may_come_apart_from_the_name() -> None:
    assert build("cyclic", 6, {"tolerance": 2}).name == "cyclic(tolerance=2)"
    assert build(" clustered ( 2 , 1 ) ", 6).name == (
        "clustered(clusters=2, tolerance=1)"
    )
