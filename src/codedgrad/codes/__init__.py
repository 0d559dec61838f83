"""Gradient codes: who adds up which parts, and how the sum is got back.

A code is a matrix (`Code`), `decode` finds the weights for whatever was heard, and
`amplification` says how many digits that costs, `expected` how far off it is when
workers are late by chance. The families are in `FAMILIES`. `tree` puts a small code at
every parent of a tree of workers.
"""

from collections.abc import Callable

from codedgrad.codes import bounds, tree
from codedgrad.codes.amplification import Amplification, amplification
from codedgrad.codes.code import Code, Decoding, decode
from codedgrad.codes.expected_error import Expected, expected
from codedgrad.codes.families.bernoulli import bernoulli
from codedgrad.codes.families.clustered import clustered
from codedgrad.codes.families.cyclic import cyclic
from codedgrad.codes.families.erasurehead import erasurehead
from codedgrad.codes.families.fractional import fractional
from codedgrad.codes.families.graph import edge_graph, vertex_graph
from codedgrad.codes.families.heterogeneous import heterogeneous
from codedgrad.codes.families.proportional import proportional
from codedgrad.codes.families.stochastic import stochastic
from codedgrad.codes.families.uncoded import uncoded
from codedgrad.codes.from_matrix import from_matrix, from_null_space
from codedgrad.codes.refined import recut, refined

FAMILIES: dict[str, Callable[..., Code]] = {
    family.__name__: family
    for family in (
        uncoded,
        fractional,
        cyclic,
        clustered,
        bernoulli,
        stochastic,
        vertex_graph,
        edge_graph,
        erasurehead,
        heterogeneous,
        proportional,
    )
}
"""Every family by its name."""

__all__ = [
    "FAMILIES",
    "Amplification",
    "Code",
    "Decoding",
    "Expected",
    "amplification",
    "bernoulli",
    "bounds",
    "clustered",
    "cyclic",
    "decode",
    "edge_graph",
    "erasurehead",
    "expected",
    "fractional",
    "from_matrix",
    "from_null_space",
    "heterogeneous",
    "proportional",
    "recut",
    "refined",
    "stochastic",
    "tree",
    "uncoded",
    "vertex_graph",
]
