"""Impossible parameters: the rule, the value given, and values that would work."""

import copy
import pickle
from itertools import combinations, product

import numpy as np
import pytest
from scipy.sparse import coo_array

from codedgrad.codes import (
    Code,
    amplification,
    bernoulli,
    clustered,
    cyclic,
    decode,
    edge_graph,
    erasurehead,
    fractional,
    from_matrix,
    from_null_space,
    stochastic,
    uncoded,
    vertex_graph,
)
from codedgrad.codes.decoders import LeastSquares
from codedgrad.codes.sparse import tidy
from codedgrad.errors import (
    CodedgradError,
    IllConditioned,
    InvalidCode,
    InvalidHeard,
)

NAN = float("nan")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: fractional(6, 3),
            "fractional: tolerance + 1 = 4 must divide workers = 6; "
            "try tolerance in [0, 1, 2, 5]",
        ),
        (
            lambda: cyclic(5, 5),
            "cyclic: tolerance = 5 is out of range; try a whole number from 0 to 4",
        ),
        (
            lambda: cyclic(5, -1),
            "cyclic: tolerance = -1 is out of range; try a whole number from 0 to 4",
        ),
        (
            lambda: uncoded(0),
            "uncoded: workers = 0 is out of range; try a whole number, 1 or more",
        ),
        (
            lambda: uncoded(NAN),
            "uncoded: workers must be a whole number, got nan; "
            "try a whole number, 1 or more",
        ),
        (
            lambda: uncoded(True),
            "uncoded: workers must be a whole number, got True; "
            "try a whole number, 1 or more",
        ),
        (
            lambda: cyclic(5.0, 1),
            "cyclic: workers must be a whole number, got 5.0; "
            "try a whole number, 1 or more",
        ),
        (
            lambda: cyclic(5, 1, construction="magic"),
            "cyclic: construction = 'magic' is not known; "
            "try construction in ['best', 'circulant', 'random']",
        ),
        (
            lambda: clustered(uncoded(2), 0),
            "clustered: clusters = 0 is out of range; try a whole number, 1 or more",
        ),
        (
            lambda: erasurehead(6, 4),
            "erasurehead: copies = 4 must divide workers = 6; "
            "try copies in [1, 2, 3, 6]",
        ),
        (
            lambda: bernoulli(5, 6),
            "bernoulli: copies = 6 is out of range; try a whole number from 1 to 5",
        ),
        (
            lambda: bernoulli(5, 2, decoding="best"),
            "bernoulli: decoding = 'best' is not known; "
            "try decoding in ['one-step', 'optimal', 'sum']",
        ),
        (
            lambda: stochastic(3, 2, 1.0),
            "stochastic: straggle = 1.0 is not in [0, 1); "
            "try a number in [0, 1), or 3 of them",
        ),
        (
            lambda: stochastic(3, 2, [0.1, NAN, 0.2]),
            "stochastic: straggle = [0.1, nan, 0.2] is not in [0, 1); "
            "try a number in [0, 1), or 3 of them",
        ),
        (
            lambda: stochastic(3, 2, [0.1, 0.2]),
            "stochastic: straggle has shape (2,), workers = 3; "
            "try a number in [0, 1), or 3 of them",
        ),
        (
            lambda: stochastic(3, 2, "often"),
            "stochastic: straggle must be numbers, got 'often'; "
            "try a number in [0, 1), or 3 of them",
        ),
        (
            lambda: vertex_graph(5, 3),
            "vertex_graph: workers x degree = 5 x 3 must be even; try degree in [2, 4]",
        ),
        (
            lambda: edge_graph(4, 4),
            "edge_graph: degree = 4 is out of range; try a whole number from 1 to 3",
        ),
        (
            lambda: from_null_space([[1, 1, 1]]),
            "from_null_space: the rows of H do not sum to 0; "
            "try H - H.mean(axis=1, keepdims=True)",
        ),
        (
            lambda: from_null_space([[1, NAN, -1]]),
            "from_null_space: H must be a finite matrix, got shape (1, 3); "
            "try shape (tolerance, workers)",
        ),
        (
            lambda: from_null_space([[0, 1, -1]]),
            "from_null_space: 1 neighbouring columns of H are linearly dependent; "
            "try another H",
        ),
        (
            lambda: from_matrix([["a"]], 0),
            "from_matrix: B is not a matrix of real numbers; try a 2-d array",
        ),
        (
            lambda: from_matrix(np.zeros((0, 3)), 0),
            "from_matrix: B has shape (0, 3); try at least one message and one part",
        ),
        (
            lambda: from_matrix([[1.0, np.inf]], 0),
            "from_matrix: B holds a coefficient that is not finite; try finite numbers",
        ),
        (
            lambda: from_matrix([[1.0, 0.0]], 0),
            "from_matrix: no message holds part 1; try a non-zero in every column of B",
        ),
        (
            lambda: from_matrix([[1.0], [1.0]], 1, owner=[0, 2]),
            "from_matrix: owner must name a worker for every message, and all "
            "workers; try a tuple of 2 workers",
        ),
        (
            lambda: from_matrix([[1.0], [1.0]], 2),
            "from_matrix: tolerance = 2 is out of range; "
            "try a whole number from 0 to 1",
        ),
        (
            lambda: from_matrix([[1.0]], 0, owner=5),
            "from_matrix: owner must be the workers of the messages, got 5; "
            "try a tuple of workers",
        ),
        (
            lambda: from_null_space([[2, 1, -2, -1], [2, 0, -2, 0]]),
            "from_null_space: cannot decode without workers [0, 2]; "
            "try a smaller tolerance or another matrix",
        ),
        (
            lambda: clustered(5, 2),
            "clustered: inner must be a code, got 5; "
            "try cyclic(workers=4, tolerance=1)",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(build, text: str) -> None:
    with pytest.raises(InvalidCode) as raised:
        build()
    assert str(raised.value) == text
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    "B",
    [
        [["1"]],
        [[1 + 1j]],
        np.array([[1 + 1j]]),
        coo_array(np.array([[1 + 1j]])),
        coo_array([1.0, 2.0]),
        [[1], [1, 2]],
        [1.0, 1.0],
        "ones",
        None,
    ],
    ids=repr,
)
def test_only_real_matrices_are_codes(B: object) -> None:
    for build in (lambda: from_matrix(B, 0), lambda: from_null_space(B)):
        with pytest.raises(InvalidCode, match="is not a matrix of real numbers"):
            build()


@pytest.mark.parametrize("owner", [[0.0, 1.0], [False, True], "01", [0, 2], [0]])
def test_owners_are_worker_numbers(owner: object) -> None:
    with pytest.raises(InvalidCode, match="owner must name a worker"):
        from_matrix([[1.0], [1.0]], None, owner=owner)


@pytest.mark.parametrize("tolerance", [True, 0.0, -1, 2, "1"])
def test_a_tolerance_is_a_whole_number_below_the_workers(tolerance: object) -> None:
    with pytest.raises(InvalidCode, match="tolerance"):
        from_matrix([[1.0], [1.0]], tolerance)


@pytest.mark.parametrize("straggle", ["0.5", False, [[0.1]], [0.1, [0.2]]])
def test_probabilities_are_numbers(straggle: object) -> None:
    with pytest.raises(InvalidCode, match="straggle"):
        stochastic(2, 1, straggle)


def test_sparse_and_numpy_input_is_as_good_as_lists() -> None:
    code = from_matrix(coo_array(np.ones((2, 2), dtype=int)), np.int64(1))
    assert decode(code, np.array([1], dtype=np.uint8)).is_exact
    assert decode(code, {1}).is_exact
    assert cyclic(np.int32(5), np.int64(2)).workers == 5
    sparse, dense = (
        from_null_space(H) for H in (coo_array([[1, 1, -2]]), [[1, 1, -2]])
    )
    np.testing.assert_array_equal(sparse.B.toarray(), dense.B.toarray())


@pytest.mark.parametrize(
    ("heard", "given"),
    [
        (5, "5"),
        (None, "None"),
        ([[0], [1, 2]], "[[0], [1, 2]]"),
        ([5], "[5]"),
        ([-1], "[-1]"),
        ([0.0], "[0.0]"),
        ([NAN], "[nan]"),
        ([True, False], "[True, False]"),
        (["0"], "['0']"),
        ([[0, 1]], "[[0, 1]]"),
        (list(range(100)), str(list(range(100)))[:57] + "..."),
    ],
)
def test_only_messages_of_the_code_can_be_heard(heard: list, given: str) -> None:
    code = cyclic(5, 2)
    for ask in (lambda: decode(code, heard), lambda: code.decodable(heard)):
        with pytest.raises(InvalidHeard) as raised:
            ask()
        expected = f"heard must be message numbers from 0 to 4, got {given}"
        assert str(raised.value) == expected


def test_a_code_is_read_only() -> None:
    code = cyclic(5, 2)
    with pytest.raises(ValueError, match="read-only"):
        code.B.data[0] = 7.0
    with pytest.raises(AttributeError):
        code.tolerance = 4


def test_a_matrix_of_ones_own_is_copied() -> None:
    B = np.ones((2, 2))
    code = from_matrix(B, 1)
    B[0, 0] = 7.0
    assert code.B.toarray()[0, 0] == 1.0


def test_a_matrix_in_another_format_is_sent_to_from_matrix() -> None:
    B = tidy(np.ones((2, 2))).astype(np.float32)
    with pytest.raises(InvalidCode, match="from_matrix"):
        Code("mine", B, 1, LeastSquares(B))


def test_an_ill_conditioned_matrix_is_refused_unless_accepted() -> None:
    B = cyclic(20, 2, construction="random", accept_amplification=True).B
    with pytest.raises(IllConditioned):
        from_matrix(B, 2)
    assert from_matrix(B, 2, accept_amplification=True).tolerance == 2


def test_a_refused_matrix_comes_with_codes_that_are_not() -> None:
    B = cyclic(20, 2, construction="random", accept_amplification=True).B
    with pytest.raises(IllConditioned) as refused:
        from_matrix(B, 2)
    assert refused.value.choices[0] == "cyclic(workers=20, tolerance=2)"


def test_an_ill_conditioned_null_space_is_refused_unless_accepted() -> None:
    H = np.random.default_rng(0).standard_normal((3, 30))
    H -= H.mean(axis=1, keepdims=True)
    with pytest.raises(IllConditioned):
        from_null_space(H)
    assert from_null_space(H, accept_amplification=True).tolerance == 3


def test_a_null_space_that_is_not_generic_is_refused_or_right() -> None:
    rng, built = np.random.default_rng(0), 0
    for _ in range(300):
        H = rng.integers(-2, 3, (2, 5))
        H[:, -1] = -H[:, :-1].sum(axis=1)
        try:
            code = from_null_space(H)
        except InvalidCode:
            continue
        built += 1
        general = from_matrix(code.B, 2)
        for heard in product([False, True], repeat=5):
            messages = np.flatnonzero(heard)
            assert code.decodable(messages) == general.decodable(messages)
    assert built > 50


# Three workers send two messages each; the first two are replicas of each other.
SEVERAL = [
    [1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1],
]  # fmt: skip


@pytest.mark.parametrize("clusters", [1, 3])
def test_a_worker_may_send_several_messages(clusters: int) -> None:
    inner = from_matrix(SEVERAL, 2, owner=[0, 0, 1, 1, 2, 2])
    code = clustered(inner, clusters)
    assert code.workers == 3 * clusters
    assert code.owner == tuple(w for w in range(3 * clusters) for _ in range(2))
    assert code.placement[:3] == ((0, 1, 2, 3),) * 3
    assert amplification(code).exact
    assert amplification(code).sets == 3
    assert amplification(code).value == pytest.approx(1)
    for late in combinations(range(code.workers), 2):
        heard = [m for m, worker in enumerate(code.owner) if worker not in late]
        assert decode(code, heard).is_exact
    assert not code.decodable(range(6, code.messages))


def test_rows_of_very_different_size_all_count() -> None:
    code = from_matrix([[1e-14, 0], [0, 1]], 0)
    assert code.decodable([0, 1])
    assert decode(code, [0, 1]).is_exact
    assert len(decode(code, [0, 1]).weights) == 2


def test_an_unpickled_code_is_read_only_and_decodes() -> None:
    code = pickle.loads(pickle.dumps(cyclic(6, 2)))
    assert decode(code, [0, 1, 3, 5]).is_exact
    with pytest.raises(ValueError, match="read-only"):
        code.B.data[0] = 7.0


@pytest.mark.parametrize(
    "error",
    [
        InvalidCode("cyclic", "no", "yes"),
        IllConditioned("cyclic", 1e5, 500.0, ["fractional(4, 1)"]),
        InvalidHeard("[7]", 5),
    ],
)
def test_errors_survive_a_trip_between_processes(error: CodedgradError) -> None:
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(same) == str(error)
        assert type(same) is type(error)
