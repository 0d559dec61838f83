"""Schemes that follow a fixed code: a code, a stop rule, and nothing else.

Such a scheme is a row of the table below: a family of codes, and whether a step waits
until the sum is exact or stops at a budget or a count. Its options are those of the
family, those that say when a step ends, `pieces` and `parts`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from typing import Any

from codedgrad import codes
from codedgrad.codes import Code, recut
from codedgrad.codes.arguments import divisors, whole
from codedgrad.codes.decoders import Decoder, Fixed, OneStep, Prescribed
from codedgrad.core.history import History
from codedgrad.core.plan import KnownSteps, Rule, Traits
from codedgrad.errors import IllConditioned, InvalidScheme
from codedgrad.schemes.code_plan import CodePlan
from codedgrad.schemes.options import in_all, rule_named, stopping, title
from codedgrad.schemes.stop_rules import Decodable, First, Within


@dataclass(frozen=True)
class CodedScheme:
    """Every worker computes its rows of a code in every step.

    Attributes:
        name: As on the command line, with its options.
        code: Who adds up what.
        rule: When a step may end.
    """

    name: str
    code: Code
    rule: Rule

    def __post_init__(self) -> None:
        self.rule.start(self.code)  # says now whether the two fit

    @property
    def workers(self) -> int:
        """How many workers it needs."""
        return self.code.workers

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.code.parts

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts each worker may be asked for."""
        return self.code.placement

    @property
    def exact(self) -> bool:
        """Whether it never gives a sum with a residual."""
        accepts_residual = isinstance(self.rule, Within | First)
        return self.code.tolerance is not None and not accepts_residual

    @property
    def tolerance(self) -> int | None:
        """Late workers survived exactly; None where a residual is accepted."""
        return self.code.tolerance if self.exact else None

    @property
    def traits(self) -> Traits:
        """Its steps are those of the code."""
        return Traits(
            rule=str(self.rule),
            budget=self.rule.budget,
            steps=KnownSteps(self.code, self.rule),
        )

    def plan(self, step: int, history: History) -> CodePlan:
        """Return the same plan for every step."""
        return CodePlan(self.code, self.rule)

    def __str__(self) -> str:
        return self.name


class FixedCode:
    """A row of the table: makes the scheme of a family of codes.

    Args:
        name: Of the scheme.
        code: Makes the code, from the number of workers and the family's options.
        summary: What the scheme does, in a line.
        source: Whose it is.
        stop: The options that say when a step ends: `_EXACT`, `_APPROXIMATE`, or none.
        meanings: Of the family's options, by name.
    """

    def __init__(
        self,
        name: str,
        code: Callable[..., Code],
        summary: str,
        source: str,
        stop: Sequence[Parameter] = (),
        **meanings: str,
    ) -> None:
        self.__name__ = name
        self._code = code
        self._stop = tuple(option.name for option in stop)
        own = list(inspect.signature(code).parameters.values())
        by_place = [option for option in own if option.kind is not option.KEYWORD_ONLY]
        by_key = [option for option in own if option.kind is option.KEYWORD_ONLY]
        options = [*by_place, *stop, *by_key, *_PARTS]
        self.__signature__ = Signature(options)
        said = {**_MEANINGS, **meanings}
        lines = [f"    {each.name}: {said[each.name]}" for each in options]
        text = [summary, "", f"Source: {source}", "", "Args:", *lines]
        self.__doc__ = "\n".join(text)

    def __call__(self, *given: object, **options: object) -> CodedScheme:
        """Return the scheme for so many workers, with these options."""
        bound = self.__signature__.bind(*given, **options)
        bound.apply_defaults()
        own = dict(bound.arguments)
        workers, pieces, parts = (
            own.pop(key) for key in ("workers", "pieces", "parts")
        )
        stop = {key: own.pop(key) for key in self._stop}
        code = self._code(workers, **own)
        total, in_parts = in_all(self.__name__, code.parts, pieces, parts)
        known = self.__signature__.parameters
        first = {key: own[key] for key in own if known[key].default is Parameter.empty}
        other = {
            key: None if value == known[key].default else value
            for key, value in own.items()
            if key not in first
        }
        name = title(self.__name__, **first, **stop, **other, **in_parts)
        return CodedScheme(name, recut(code, total), self._rule(code, **stop))

    def _rule(self, code: Code, rule: str = "decodable", **stop: Any) -> Rule:
        if not stop:
            return rule_named(rule)
        # Weights by a rule may be exact by chance, now and not later: to stop there,
        # and only there, would spoil a mean that is right.
        by_rule = isinstance(code.decoder, Prescribed)
        before = First(code.messages) if by_rule else Decodable()
        return stopping(self.__name__, code, before=before, **stop)


def well_conditioned(workers: int, tolerance: int) -> Code:
    """Return the cyclic code, or say which schemes do without so many lost digits."""
    try:
        return codes.cyclic(workers, tolerance)
    except IllConditioned as error:
        groups = [d for d in divisors(workers) if d > tolerance]
        advice = [
            f"clustered(clusters={workers // size}, tolerance={tolerance})"
            for size in groups[1:-1]
            if _is_fine(codes.cyclic, size, tolerance)
        ][:1]
        if workers % (tolerance + 1) == 0:
            advice.append(f"fractional(tolerance={tolerance})")
        smaller = [s for s in range(tolerance) if _is_fine(codes.cyclic, workers, s)]
        advice.append(f"cyclic(tolerance={smaller[-1]})")
        raise InvalidScheme(
            f"cyclic(tolerance={tolerance}) for {workers} workers: {error.problem}",
            " or ".join(advice),
        ) from None


def _is_fine(family: Callable[..., Code], *given: object, **options: object) -> bool:
    try:
        family(*given, **options)
    except IllConditioned:
        return False
    return True


def _clustered(workers: int, clusters: int, tolerance: int) -> Code:
    clusters = whole("clustered", "clusters", clusters, least=1, most=workers)
    if workers % clusters:
        raise InvalidScheme(
            f"clustered: clusters = {clusters} must divide workers = {workers}",
            f"clusters in {divisors(workers)}",
        )
    each = workers // clusters
    tolerance = whole("clustered", "tolerance", tolerance, least=0, most=each - 1)
    return codes.clustered(well_conditioned(each, tolerance), clusters)


def _edge_graph(
    workers: int, degree: int, *, decoding: str = "optimal", seed: int = 0
) -> Code:
    degree = whole("edge_graph", "degree", degree, least=1, most=2 * workers)
    if 2 * workers % degree:
        raise InvalidScheme(
            f"edge_graph: degree = {degree} must divide 2 x workers = {2 * workers}",
            f"degree in {divisors(2 * workers)}",
        )
    vertices = 2 * workers // degree
    return codes.edge_graph(vertices, degree, decoding=decoding, seed=seed)


def _option(name: str, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default)


_EXACT = (_option("rule", "decodable"),)
_APPROXIMATE = _option("budget", None), _option("count", None)
_PARTS = _option("pieces", 1), _option("parts", None)
_MEANINGS = {
    "workers": "Number of workers.",
    "tolerance": "Late workers survived.",
    "rule": "`decodable`, or `threshold` (count, as the papers do).",
    "budget": "Seconds after which a step ends.",
    "count": "Answers after which it ends.",
    "decoding": "`optimal` or `one-step`.",
    "pieces": "Parts for each worker at the uncoded load.",
    "parts": "Parts in all; None: `pieces` for each worker.",
}

# -- the table ------------------------------------------------------------------------

uncoded = FixedCode(
    "uncoded",
    codes.uncoded,
    "Wait for everybody; no redundant work. What plain synchronous training does.",
    "what distributed data parallelism does.",
)
fractional = FixedCode(
    "fractional",
    codes.fractional,
    "Groups of TOLERANCE + 1 replicas; one answer per group is enough.",
    "fractional repetition. Tandon et al., ICML 2017.",
    _EXACT,
    tolerance="Late workers survived; `tolerance` + 1 must divide `workers`.",
    rule="`decodable` or `threshold`; the same here.",
)
cyclic = FixedCode(
    "cyclic",
    well_conditioned,
    "Any TOLERANCE workers may be late, whoever they are; cyclic coefficients.",
    "cyclic repetition. Tandon et al., ICML 2017.",
    _EXACT,
)
clustered = FixedCode(
    "clustered",
    _clustered,
    "A cyclic code of its own in each of CLUSTERS groups; TOLERANCE late in each.",
    "static clusters (GC-SC). Ozfatura, Gunduz, Ulukus, arXiv 1903.01974.",
    _EXACT,
    clusters="How many clusters; must divide `workers`.",
    tolerance="Late workers survived in every cluster.",
    rule="`decodable`, or `threshold` (count in every cluster, as the papers do).",
)
bernoulli = FixedCode(
    "bernoulli",
    codes.bernoulli,
    "Parts placed by the toss of a coin, COPIES on average; approximate.",
    "Bernoulli gradient codes (BGC). Charles, Papailiopoulos, Ellenberg, 2017.",
    _APPROXIMATE,
    copies="Mean number of workers that hold a part.",
    decoding="`one-step`, `optimal`, or `sum` (plain sum over COPIES).",
    seed="Of the coin.",
)
stochastic = FixedCode(
    "stochastic",
    codes.stochastic,
    "Parts with COPIES random workers, added up as they come; right on average.",
    "stochastic gradient coding (SGC). Bitar, Wootters, El Rouayheb, 2019.",
    _APPROXIMATE,
    copies="Workers that hold a part.",
    straggle="Probability to be late, one for all or `[one, per, worker]`; the mean is "
    "right if it is.",
    placement="`random` or `cyclic`.",
    weights="`equal` shares of a part, or `inverse-odds` (of being late).",
    seed="Of the placement.",
)
erasurehead = FixedCode(
    "erasurehead",
    codes.erasurehead,
    "Groups of COPIES replicas that may stop early and lack some groups.",
    "ErasureHead. Wang, Charles, Papailiopoulos, arXiv 1901.09671.",
    _APPROXIMATE,
    copies="Workers that hold a part; must divide `workers`.",
    count="Answers after which it ends, as published.",
    decoding="`any` (one answer of a group) or `sum` (all of them over COPIES).",
)
vertex_graph = FixedCode(
    "vertex_graph",
    codes.vertex_graph,
    "Workers and parts are vertices of a random DEGREE-regular graph; approximate.",
    "codes from expander graphs. Raviv et al., arXiv 1707.03858.",
    _APPROXIMATE,
    degree="Neighbours of a vertex: the load.",
    seed="Of the graph.",
)
edge_graph = FixedCode(
    "edge_graph",
    _edge_graph,
    "Workers are edges, parts are vertices of a DEGREE-regular graph; approximate.",
    "approximate gradient coding with optimal decoding. Glasgow, Wootters.",
    _APPROXIMATE,
    workers="Number of workers, and of edges.",
    degree="Edges at a vertex: the copies of a part; must divide 2 x `workers`.",
    seed="Of the graph.",
    pieces="Parts every vertex is cut into; there are 2 x `workers` / `degree`.",
    parts="Parts in all; None: `pieces` for each vertex.",
)


# -- two that are more than a code and a rule -----------------------------------------


def ignore(
    workers: int,
    count: int | None = None,
    *,
    budget: float | None = None,
    scaled: bool = True,
    pieces: int = 1,
    parts: int | None = None,
) -> CodedScheme:
    """Take the first COUNT answers, scale them up, drop the rest (loses samples).

    A baseline only: a worker that is always slow is never learnt from.

    Source: IS-SGD.

    Args:
        workers: Number of workers.
        count: Answers to wait for.
        budget: Seconds after which a step ends.
        scaled: Whether to make up for the answers that are missing; `false` just adds
            those there are, as IS-SGD is published.
        pieces: Parts for each worker.
        parts: Parts in all; None: `pieces` for each worker.
    """
    if not isinstance(scaled, bool):
        raise InvalidScheme(f"ignore: scaled = {scaled!r}", "true or false")
    plain = codes.uncoded(workers)
    decoder: Decoder = OneStep(plain.B, copies=1) if scaled else Fixed(plain.B)
    called = f"ignore(workers={workers}{'' if scaled else ', scaled=False'})"
    code = replace(plain, name=called, tolerance=None, decoder=decoder, inner=None)
    rule = stopping("ignore", code, budget, count, First(workers))
    total, said = in_all("ignore", workers, pieces, parts)
    plain_sum = None if scaled else False
    name = title("ignore", count=count, budget=budget, scaled=plain_sum, **said)
    return CodedScheme(name, codes.recut(code, total), rule)


def proportional(
    workers: int,
    tolerance: int,
    speeds: float | Sequence[float],
    *,
    parts: int | None = None,
    rule: str = "decodable",
    pieces: int = 1,
) -> CodedScheme:
    """Any TOLERANCE workers may be late; fast ones hold more parts, slow ones fewer.

    Source: heterogeneity-aware gradient coding.

    Args:
        workers: Number of workers.
        tolerance: Late workers survived.
        speeds: Of the workers, in any unit, `[one, per, worker]`.
        parts: Parts in all; None: `pieces` times 1 to 4 for each worker, as loads need
            them to be in proportion.
        rule: `decodable`, or `threshold` (count, as the papers do).
        pieces: Parts with the same coefficients; must divide `parts`.
    """
    pieces = whole("proportional", "pieces", pieces, least=1)
    if parts is not None and whole("proportional", "parts", parts, least=1) % pieces:
        raise InvalidScheme(
            f"proportional: pieces = {pieces} must divide parts = {parts}",
            f"pieces in {divisors(parts)}",
        )
    blocks = None if parts is None else parts // pieces
    try:
        code = codes.proportional(workers, tolerance, speeds, parts=blocks)
    except IllConditioned as error:
        better = next(
            fewer
            for fewer in range(tolerance - 1, -1, -1)
            if _is_fine(codes.proportional, workers, fewer, speeds, parts=blocks)
        )
        raise InvalidScheme(
            f"proportional(tolerance={tolerance}) for {workers} workers: "
            f"{error.problem}",
            f"tolerance={better}",
        ) from None
    name = title(
        "proportional",
        tolerance=tolerance,
        speeds=speeds,
        parts=parts,
        rule=rule,
        pieces=None if pieces == 1 else pieces,
    )
    return CodedScheme(name, codes.refined(code, pieces), rule_named(rule))
