"""Coded aggregation on a tree. Reisizadeh and others, arXiv 1902.01981.

The allocation and the weights are worked out anew, as the paper's text is not at hand;
seats by reliability, and what happens when inner workers are lost, are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from codedgrad import codes
from codedgrad.codes import Code
from codedgrad.codes.amplification import LIMIT, amplification
from codedgrad.codes.arguments import whole
from codedgrad.codes.tree import ROOT, Tree, allocate, base_size, fewest_parts
from codedgrad.core.history import History
from codedgrad.core.plan import KnownSteps, Rule, Traits
from codedgrad.errors import IllConditioned, InvalidScheme
from codedgrad.schemes.coded_reduce.seating import Seating, with_the_absent_last
from codedgrad.schemes.coded_reduce.tree_plan import TreeLayout, TreePlan, matrix_of
from codedgrad.schemes.options import rule_named, title

_INNER = ("fractional", "cyclic")
_SEATS = ("given", "reliable")
_MOST_PARTS = 5000  # that are made without being asked for


@dataclass(frozen=True)
class CodedReduce:
    """Workers on a tree; every parent decodes what its children send.

    Attributes:
        name: As on the command line, with its options.
        layout: The tree, its code and who computes what.
        seats: `given`: worker w sits at place w. `reliable`: by what was seen of them.
    """

    name: str
    layout: TreeLayout
    seats: str
    exact = True  # it never gives a sum with a residual

    @property
    def tree(self) -> Tree:
        """Who is above whom."""
        return self.layout.tree

    @property
    def code(self) -> Code:
        """The code at every parent."""
        return self.layout.code

    @property
    def rule(self) -> Rule:
        """When a parent has heard enough."""
        return self.layout.rule

    @property
    def workers(self) -> int:
        """How many workers it needs."""
        return self.tree.workers

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.layout.allocation.parts

    @cached_property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts each worker may be asked for: all, if seats change."""
        if self.seats == "reliable":
            return (tuple(range(self.parts)),) * self.workers
        return tuple(parts for parts, _ in self.layout.own)

    @property
    def load(self) -> int:
        """Parts that one worker computes in a step, at most."""
        return self.layout.allocation.load

    @property
    def tolerance(self) -> int:
        """Late workers survived, whoever they are; many more if they are spread."""
        tolerance = self.code.tolerance
        assert tolerance is not None  # inner codes are exact
        return tolerance

    @property
    def traits(self) -> Traits:
        """With given seats its steps are those of the tree."""
        return Traits(
            load=self.load,
            rule=str(self.rule),
            budget=self.rule.budget,
            steps=KnownSteps(self.code, self.rule, self.tree)
            if self.seats == "given"
            else None,
        )

    def plan(self, step: int, history: History) -> TreePlan:
        """Return the plan of a step."""
        return TreePlan(self.layout, self.seated(history))

    def seated(self, history: History) -> tuple[int, ...]:
        """Return the worker at each place of the tree."""
        if self.seats == "given":
            return tuple(range(self.workers))
        seat = history.follow(Seating(self.tree)).seat
        return with_the_absent_last(self.tree, seat, history.alive)

    def __str__(self) -> str:
        return self.name


def coded_reduce(
    workers: int,
    children: int,
    tolerance: int,
    *,
    inner: str | None = None,
    parts: int | None = None,
    seats: str = "given",
    rule: str = "decodable",
) -> CodedReduce:
    """A tree in which every parent has CHILDREN and does without TOLERANCE of them.

    Source: CodedReduce. Reisizadeh et al., arXiv 1902.01981.

    Args:
        workers: Number of workers: c + c^2 + ... of `children`, such as 12 = 3 + 9.
        children: Of every parent, the root too.
        tolerance: Late children survived at every parent; 0 is the uncoded tree.
        inner: The code at a parent: `fractional` (where tolerance + 1 divides children,
            and then the default) or `cyclic`.
        parts: In a step; by default the fewest for which all loads are equal.
        seats: `given`, or `reliable`: who was late least sits nearest to the root, who
            is not there at the bottom. Any worker may then be asked for any part.
        rule: `decodable`, or `threshold` (count at every parent, as the paper does; in
            every group of a repetition).
    """
    N = whole("coded_reduce", "workers", workers, least=1)
    n = whole("coded_reduce", "children", children, least=1, most=N)
    s = whole("coded_reduce", "tolerance", tolerance, least=0, most=n - 1)
    tree = Tree.of(N, n)
    if seats not in _SEATS:
        raise InvalidScheme(f"coded_reduce: seats = {seats!r}", f"one of {_SEATS}")
    code = _inner(tree, s, inner)
    name = title(
        "coded_reduce",
        children=n,
        tolerance=s,
        inner=inner,
        parts=parts,
        seats=None if seats == "given" else seats,
        rule=rule,
    )
    matrix = matrix_of(code)
    if parts is None:
        parts = base_size(n, tree.layers, s)
        if parts > _MOST_PARTS:  # all loads equal would take too many
            parts = max(fewest_parts(tree, matrix), 2 * workers)
    allocation = allocate(tree, matrix, parts)
    return CodedReduce(
        name, TreeLayout(tree, code, rule_named(rule), allocation), seats
    )


def _inner(tree: Tree, tolerance: int, inner: str | None) -> Code:
    n, copies = tree.children, tolerance + 1
    divides = n % copies == 0
    if inner is None:
        inner = "fractional" if divides else "cyclic"
    if inner not in _INNER:
        raise InvalidScheme(f"coded_reduce: inner = {inner!r}", f"one of {_INNER}")
    if tolerance == 0:
        return codes.uncoded(n)
    if inner == "fractional" and not divides:
        problem = f"tolerance + 1 = {copies} must divide children = {n} for fractional"
        raise InvalidScheme(f"coded_reduce: {problem}", "inner = 'cyclic'")
    if inner == "fractional":
        return codes.fractional(n, tolerance)
    return _cyclic(tree, tolerance)


def _cyclic(tree: Tree, tolerance: int) -> Code:
    """Return the cyclic code, unless the layers together would lose too many digits."""
    n, layers = tree.children, tree.layers
    most = LIMIT ** (1 / layers)
    try:
        code = codes.cyclic(n, tolerance)
        found = amplification(code, stop_above=most).value
    except IllConditioned as error:
        found = error.amplification
    if found <= most:
        return code
    problem = (
        f"a cyclic code of {n} with tolerance = {tolerance} multiplies rounding errors "
        f"by {found:.3g} in each of {layers} layers, more than {LIMIT:g} in all"
    )
    fractional = n % (tolerance + 1) == 0
    advice = "inner = 'fractional'" if fractional else "a smaller tolerance"
    raise InvalidScheme(f"coded_reduce: {problem}", advice)


assert ROOT == -1  # the root of a tree is the root of a run
