"""Schemes: how steps are planned and ended. One folder, or one row, a published method.

`build("cyclic(tolerance=2)", workers=8)` makes one from a name as on the command line;
a new scheme is one file, or one folder, and one line in `SCHEMES`; one that follows a
fixed code is one row of `fixed_code`. Schemes of other packages are found by their
entry points: see `own_schemes`.
"""

from collections.abc import Mapping

from codedgrad.core.plan import Scheme
from codedgrad.schemes.auto.scheme import Auto, auto
from codedgrad.schemes.coded_reduce.scheme import CodedReduce, coded_reduce
from codedgrad.schemes.dynamic.scheme import Dynamic, dynamic
from codedgrad.schemes.fixed_code import (
    CodedScheme,
    bernoulli,
    clustered,
    cyclic,
    edge_graph,
    erasurehead,
    fractional,
    ignore,
    proportional,
    stochastic,
    uncoded,
    vertex_graph,
)
from codedgrad.schemes.heterogeneous.scheme import Heterogeneous, heterogeneous
from codedgrad.schemes.own_schemes import Families
from codedgrad.schemes.registry import Family, build_from, build_with_parts, parse
from codedgrad.schemes.two_stage.scheme import TwoStage, two_stage

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
"""Every scheme that comes with codedgrad, by its name."""


def families(*, run_files: bool = False) -> Mapping[str, Family]:
    """Return what makes schemes, by name: `SCHEMES`, and those of installed packages.

    Iterating imports nothing; a package is imported when its scheme is looked up.

    Args:
        run_files: Whether a name may be `FILE.py:NAME`, which executes the file.

    Example:
        >>> "auto" in families(), "fractionl" in families()
        (True, False)
    """
    return Families(SCHEMES, run_files)


def build(
    scheme: str,
    workers: int,
    options: Mapping[str, object] | None = None,
    *,
    parts: int | None = None,
    run_files: bool = False,
) -> Scheme:
    """Return a scheme from its name, with options in brackets or apart.

    Args:
        scheme: Its name, with options or without: one of `SCHEMES`, or of a package
            that registers schemes under the entry points `codedgrad.schemes`.
        workers: How many workers there are.
        options: More options.
        parts: Of a step, where the run fixes their number: a run that is resumed with
            other workers keeps its parts. `pieces`, which count parts for each worker,
            then give way. None: as the options say.
        run_files: Whether the name may be `FILE.py:NAME`. The file is executed: pass
            True only for what a person typed, never for what a file says.

    Raises:
        InvalidScheme: If there is no such scheme, or it cannot be loaded. With `parts`,
            it names schemes that take so many parts with so many workers.
        InvalidCode: If the scheme's code cannot have these numbers; not with `parts`.

    Example:
        >>> build("fractional(tolerance=1)", workers=4).name
        'fractional(tolerance=1)'
        >>> build("fractionl(1)", workers=4)
        Traceback (most recent call last):
        codedgrad.errors.InvalidScheme: there is no scheme 'fractionl'; try fractional
        >>> build("auto(pieces=4)", workers=8).parts
        32
        >>> build("auto(pieces=4)", workers=5, parts=32).name
        'auto(parts=32)'
        >>> build("fractional(tolerance=1)", workers=5, parts=32)
        Traceback (most recent call last):
        codedgrad.errors.InvalidScheme: fractional: tolerance + 1 = 2 must divide \
workers = 5; try tolerance in [0, 4]; or auto or cyclic(tolerance=1) or uncoded, which \
can have 32 parts with 5 workers
    """
    known = families(run_files=run_files)
    name, given = parse(scheme, known)
    given = {**given, **(options or {})}
    if parts is None:
        return build_from(known, name, workers, given)
    return build_with_parts(known, name, workers, given, parts)


__all__ = [
    "SCHEMES",
    "Auto",
    "CodedReduce",
    "CodedScheme",
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
    "families",
    "fractional",
    "heterogeneous",
    "ignore",
    "proportional",
    "stochastic",
    "two_stage",
    "uncoded",
    "vertex_graph",
]
