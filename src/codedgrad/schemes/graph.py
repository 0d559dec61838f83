"""Codes from regular graphs: Raviv et al. (vertices), Glasgow and Wootters (edges)."""

from codedgrad import codes
from codedgrad.codes.arguments import divisors, whole
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.coded import Coded, approximate

__all__ = ["edge_graph", "vertex_graph"]


def vertex_graph(
    workers: int,
    degree: int,
    *,
    budget: float | None = None,
    count: int | None = None,
    decoding: str = "optimal",
    seed: int = 0,
    pieces: int = 1,
    parts: int | None = None,
) -> Coded:
    """Workers and parts are vertices of a random DEGREE-regular graph; approximate.

    Args:
        workers: Number of workers.
        degree: Neighbours of a vertex: the load.
        budget: Seconds after which a step ends.
        count: Answers after which it ends.
        decoding: `optimal` or `one-step`.
        seed: Of the graph.
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    code = codes.vertex_graph(workers, degree, decoding=decoding, seed=seed)
    return approximate(
        "vertex_graph",
        code,
        {"degree": degree},
        budget,
        count,
        pieces,
        parts,
        decoding=None if decoding == "optimal" else decoding,
        seed=seed,
    )


def edge_graph(
    workers: int,
    degree: int,
    *,
    budget: float | None = None,
    count: int | None = None,
    decoding: str = "optimal",
    seed: int = 0,
    pieces: int = 1,
    parts: int | None = None,
) -> Coded:
    """Workers are edges, parts are vertices of a DEGREE-regular graph; approximate.

    There are 2 x `workers` / `degree` parts before they are cut into pieces.

    Args:
        workers: Number of workers, and of edges.
        degree: Edges at a vertex: the copies of a part; must divide 2 x `workers`.
        budget: Seconds after which a step ends.
        count: Answers after which it ends.
        decoding: `optimal` or `one-step`.
        seed: Of the graph.
        pieces: Parts every vertex is cut into.
        parts: Parts in all; None: `pieces` for each vertex.
    """
    degree = whole("edge_graph", "degree", degree, least=1, most=2 * workers)
    if 2 * workers % degree:
        raise InvalidScheme(
            f"edge_graph: degree = {degree} must divide 2 x workers = {2 * workers}",
            f"degree in {divisors(2 * workers)}",
        )
    vertices = 2 * workers // degree
    code = codes.edge_graph(vertices, degree, decoding=decoding, seed=seed)
    return approximate(
        "edge_graph",
        code,
        {"degree": degree},
        budget,
        count,
        pieces,
        parts,
        decoding=None if decoding == "optimal" else decoding,
        seed=seed,
    )
