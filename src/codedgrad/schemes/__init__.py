"""Schemes: how steps are planned and ended. One file a published method.

`build("cyclic(tolerance=2)", workers=8)` makes one from a name as on the command line;
a new scheme is one file and one line in `SCHEMES`.
"""

from collections.abc import Mapping

from codedgrad.core.plan import Scheme
from codedgrad.schemes.auto import Auto, auto
from codedgrad.schemes.bernoulli import bernoulli
from codedgrad.schemes.build import Family, build_from, parse
from codedgrad.schemes.clustered import clustered
from codedgrad.schemes.coded import Coded
from codedgrad.schemes.coded_reduce import CodedReduce, coded_reduce
from codedgrad.schemes.cyclic import cyclic
from codedgrad.schemes.dynamic import Dynamic, dynamic
from codedgrad.schemes.erasurehead import erasurehead
from codedgrad.schemes.fractional import fractional
from codedgrad.schemes.graph import edge_graph, vertex_graph
from codedgrad.schemes.heterogeneous import Heterogeneous, heterogeneous
from codedgrad.schemes.ignore import ignore
from codedgrad.schemes.proportional import proportional
from codedgrad.schemes.stochastic import stochastic
from codedgrad.schemes.two_stage import TwoStage, two_stage
from codedgrad.schemes.uncoded import uncoded

SCHEMES: dict[str, Family] = {
    family.__name__: family
    for family in (
        auto,
        uncoded,
        ignore,
        fractional,
        cyclic,
        clustered,
        proportional,
        dynamic,
        heterogeneous,
        bernoulli,
        stochastic,
        erasurehead,
        vertex_graph,
        edge_graph,
        coded_reduce,
        two_stage,
    )
}
"""Every scheme by its name."""


def build(
    scheme: str, workers: int, options: Mapping[str, object] | None = None
) -> Scheme:
    """Return a scheme from its name, with options in brackets or apart.

    Example:
        >>> build("fractional(tolerance=1)", workers=4).name
        'fractional(tolerance=1)'
        >>> build("fractionl(1)", workers=4)
        Traceback (most recent call last):
        codedgrad.errors.InvalidScheme: there is no scheme 'fractionl'; try fractional
    """
    name, given = parse(scheme, SCHEMES)
    return build_from(SCHEMES, name, workers, {**given, **(options or {})})


__all__ = [
    "SCHEMES",
    "Auto",
    "Coded",
    "CodedReduce",
    "Dynamic",
    "Heterogeneous",
    "TwoStage",
    "auto",
    "bernoulli",
    "build",
    "clustered",
    "coded_reduce",
    "cyclic",
    "dynamic",
    "edge_graph",
    "erasurehead",
    "fractional",
    "heterogeneous",
    "ignore",
    "proportional",
    "stochastic",
    "two_stage",
    "uncoded",
    "vertex_graph",
]
