"""When a step may end: the predicate, the count, and what they may look at."""

from itertools import permutations

import numpy as np
import pytest

from codedgrad import codes
from codedgrad.codes import Code
from codedgrad.codes.decoders import Bools, Floats, LeastSquares
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.stop_rules import Decodable, First, Threshold, Within, blocks

SMALL = [
    codes.uncoded(3),
    codes.fractional(6, 1),
    codes.fractional(6, 2),
    codes.cyclic(5, 2),
    codes.cyclic(6, 1),
    codes.clustered(codes.cyclic(3, 1), 2),
    codes.refined(codes.cyclic(5, 1), 2),
]


def enough_after(tally: object, order: tuple[int, ...]) -> int:
    """Return after how many messages of `order` the tally says enough; 99: never."""
    said = [tally.hear(message) for message in order]
    assert said == sorted(said), "enough stays enough"
    return said.index(True) + 1 if True in said else 99


def orders(code: Code) -> list[tuple[int, ...]]:
    if code.messages <= 5:
        return list(permutations(range(code.messages)))
    rng = np.random.default_rng(0)
    return [tuple(rng.permutation(code.messages).tolist()) for _ in range(300)]


@pytest.mark.parametrize("code", SMALL, ids=str)
def test_decodable_stops_at_the_first_prefix_that_least_squares_can_decode(
    code: Code,
) -> None:
    general = LeastSquares(code.B)
    for order in orders(code):
        expected = next(
            count
            for count in range(1, code.messages + 1)
            if general.decodable(code.pattern(order[:count])[None])[0]
        )
        assert enough_after(Decodable().start(code), order) == expected


@pytest.mark.parametrize("code", SMALL, ids=str)
def test_threshold_counts_in_every_block_and_is_never_earlier(code: Code) -> None:
    inner, _ = blocks(code)
    needed = inner.messages - (inner.tolerance or 0)
    for order in orders(code):
        heard: dict[int, int] = {}
        for count, message in enumerate(order, 1):  # noqa: B007
            block = message // inner.messages
            heard[block] = heard.get(block, 0) + 1
            whole = code.messages // inner.messages
            if len(heard) == whole and min(heard.values()) >= needed:
                break
        at = enough_after(Threshold().start(code), order)
        assert at == count
        assert enough_after(Decodable().start(code), order) <= at


def test_first_takes_so_many() -> None:
    assert enough_after(First(3).start(codes.uncoded(5)), (4, 2, 0, 1, 3)) == 3


def test_within_has_a_budget_and_the_rule_inside() -> None:
    rule = Within(2.5, First(2))
    assert rule.budget == 2.5
    assert enough_after(rule.start(codes.uncoded(4)), (3, 1, 0, 2)) == 2
    assert str(rule) == "within 2.5 s or first 2"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_must_be_a_time_to_wait(seconds: float) -> None:
    with pytest.raises(InvalidScheme, match="try seconds greater than 0"):
        Within(seconds)


def test_a_code_without_a_tolerance_has_no_threshold() -> None:
    with pytest.raises(InvalidScheme, match="promises no tolerance"):
        Threshold().start(codes.bernoulli(6, 2))


@pytest.mark.parametrize("count", [0, 5])
def test_first_must_be_a_number_of_messages(count: int) -> None:
    with pytest.raises(InvalidScheme, match="from 1 to 4"):
        First(count).start(codes.uncoded(4))


class Spy:
    """A decoder that notes what it is asked."""

    def __init__(self, code: Code) -> None:
        self._decoder = code.decoder
        self.asked: list[Bools] = []

    def weights(self, heard: Bools) -> Floats:
        return self._decoder.weights(heard)

    def decodable(self, heard: Bools) -> Bools:
        self.asked.extend(heard.copy())
        return self._decoder.decodable(heard)


def test_the_decoder_is_not_asked_before_every_part_is_held_by_some_message() -> None:
    plain = codes.cyclic(30, 3)
    spy = Spy(plain)
    code = Code(plain.name, plain.B, plain.tolerance, spy)
    rng = np.random.default_rng(1)
    asked = 0
    for _ in range(50):
        tally = Decodable().start(code)
        order = rng.permutation(30).tolist()
        count = next(i for i, m in enumerate(order, 1) if tally.hear(m))
        covered = [
            c for c in range(1, count + 1)
            if len({p for m in order[:c] for p in plain.rows[m][0]}) == 30
        ]  # fmt: skip
        asked += len(spy.asked)
        for pattern in spy.asked:
            assert np.count_nonzero(pattern) >= max(plain.fewest, covered[0])
            assert np.count_nonzero(pattern) < 27  # the tolerance needs no proof
        spy.asked.clear()
    assert asked > 0


@pytest.mark.parametrize(
    "code",
    [
        codes.vertex_graph(40, 4),
        codes.edge_graph(20, 4),
        codes.bernoulli(40, 5, decoding="optimal", seed=1),
    ],
    ids=str,
)
def test_a_general_decoder_solves_once_and_not_at_every_message(
    code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[int] = []
    solve = LeastSquares._solve

    def counted(self: LeastSquares, pattern: bytes) -> Floats:
        solved.append(sum(pattern))
        return solve(self, pattern)

    monkeypatch.setattr(LeastSquares, "_solve", counted)
    rng = np.random.default_rng(0)
    for _ in range(20):
        tally = Decodable().start(code)
        order = rng.permutation(code.messages).tolist()
        count = next((i for i, m in enumerate(order, 1) if tally.hear(m)), None)
        assert solved == ([] if count is None else [count])
        solved.clear()
        code.decoder._known.clear()
        if count is not None:
            assert code.decodable(order[:count])
            assert not code.decodable(order[: count - 1])
            solved.clear()
            code.decoder._known.clear()


def test_nested_clusters_have_the_blocks_of_the_innermost() -> None:
    code = codes.clustered(codes.clustered(codes.cyclic(4, 1), 2), 3)
    inner, count = blocks(code)
    assert (inner.messages, count) == (4, 6)
