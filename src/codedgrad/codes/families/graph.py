"""Codes from regular graphs.

Raviv et al. (arXiv 1707.03858): workers and parts are the vertices of an expander,
one common weight (here `decoding="one-step"`). Glasgow and Wootters ("Approximate
gradient coding with optimal decoding"): workers are edges, parts are vertices, weights
by least squares.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.arguments import one_of, whole
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import Decoder, LeastSquares, OneStep
from codedgrad.codes.sparse import Matrix, entries
from codedgrad.errors import InvalidCode


def vertex_graph(
    workers: int, degree: int, *, decoding: str = "optimal", seed: int = 0
) -> Code:
    """Give every worker the parts of its neighbours in a random regular graph.

    Args:
        workers: Number of workers, parts and vertices.
        degree: Neighbours of a vertex: the load, and the copies of a part.
        decoding: `optimal` (least squares) or `one-step` (one common weight).
        seed: Of the graph.

    Example:
        >>> code = vertex_graph(workers=8, degree=3)
        >>> code.load, code.work, code.decodable(range(8))
        (3, 24, True)
    """
    n, d, edges = _regular_graph("vertex_graph", "workers", workers, degree, seed)
    both = np.concatenate([edges, edges[:, ::-1]])
    B = entries(both[:, 0], both[:, 1], 1.0, (n, n))
    name = f"vertex_graph(workers={n}, degree={d}, decoding={decoding!r}, seed={seed})"
    return Code(name, B, None, _decoder("vertex_graph", decoding, B, d))


def edge_graph(
    parts: int, degree: int, *, decoding: str = "optimal", seed: int = 0
) -> Code:
    """Let every edge of a random regular graph be a worker that holds its two ends.

    There are `parts` x `degree` / 2 workers, each with a load of 2.

    Args:
        parts: Number of parts and vertices.
        degree: Edges at a vertex: the copies of a part.
        decoding: `optimal` (least squares) or `one-step` (one common weight).
        seed: Of the graph.

    Example:
        >>> code = edge_graph(parts=6, degree=3)
        >>> code.workers, code.load, code.decodable(range(9))
        (9, 2, True)
    """
    k, d, edges = _regular_graph("edge_graph", "parts", parts, degree, seed)
    rows = np.repeat(np.arange(len(edges)), 2)
    B = entries(rows, edges.ravel(), 1.0, (len(edges), k))
    name = f"edge_graph(parts={k}, degree={d}, decoding={decoding!r}, seed={seed})"
    return Code(name, B, None, _decoder("edge_graph", decoding, B, d))


def _decoder(family: str, decoding: object, B: Matrix, copies: int) -> Decoder:
    kind = one_of(family, "decoding", decoding, ("optimal", "one-step"))
    return LeastSquares(B) if kind == "optimal" else OneStep(B, copies)


def _regular_graph(
    family: str, called: str, vertices: object, degree: object, seed: object
) -> tuple[int, int, NDArray[np.intp]]:
    """Return vertices, degree and the edges, shape (edges, 2), of a simple graph."""
    n = whole(family, called, vertices, least=2)
    d = whole(family, "degree", degree, least=1, most=n - 1)
    if n * d % 2:
        problem = f"{called} x degree = {n} x {d} must be even"
        fitting = [e for e in (d - 1, d + 1) if 1 <= e < n]
        raise InvalidCode(family, problem, f"degree in {fitting}")
    rng = np.random.default_rng(whole(family, "seed", seed, least=0))
    return n, d, _shuffled(_ring_lattice(n, d), rng)


def _ring_lattice(n: int, d: int) -> list[tuple[int, int]]:
    """Return the edges from every vertex to its nearest d on a ring."""
    near = [(v, (v + step) % n) for step in range(1, d // 2 + 1) for v in range(n)]
    opposite = [(v, v + n // 2) for v in range(n // 2)] if d % 2 else []
    return near + opposite


def _shuffled(
    edges: list[tuple[int, int]], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return a random graph of the same degrees, by many random switches.

    A switch takes edges ab and cd and makes them ad and cb, unless that would make a
    loop or a double edge. All regular graphs can be reached so.
    """
    present = {frozenset(edge) for edge in edges}
    for first, second, turn in rng.integers(len(edges), size=(20 * len(edges), 3)):
        (a, b), (c, d) = edges[first], edges[second]
        if turn % 2:
            c, d = d, c
        made = frozenset((a, d)), frozenset((c, b))
        if len({a, b, c, d}) < 4 or not present.isdisjoint(made):
            continue
        present -= {frozenset((a, b)), frozenset((c, d))}
        present |= set(made)
        edges[first], edges[second] = (a, d), (c, b)
    return np.array(sorted(tuple(sorted(edge)) for edge in present), dtype=np.intp)
