r"""Closed forms to judge trees by: their load, and what they survive.

A tree has `children` $n$, `layers` $L$ and $N = n + \dots + n^L$ workers, and every
parent does without `tolerance` $s$ of its children; $q = n / (s + 1)$ and
$\rho = 1 / q$. A star is a root that hears from all workers itself, as plain gradient
coding has it, and does without $S$ of them. How long they take is in `tree_times`.
"""

from __future__ import annotations

from fractions import Fraction

from codedgrad.codes.arguments import probabilities, whole


def tree_load(children: int, layers: int, tolerance: int) -> float:
    r"""Return the share of the data that every worker of a tree computes.

    It is $r = 1 / (q + q^2 + \dots + q^L)$. No scheme on this tree that survives any
    $s$ late children of every parent has less: each part must be with $s + 1$ subtrees
    of the root, so one of them has $x_1 \ge \rho$ of the data; what its own worker does
    not compute must be with $s + 1$ below it, $x_{l+1} \ge \rho (x_l - r)$; and a leaf
    has $x_L \le r$.

    Example:
        >>> tree_load(children=12, layers=2, tolerance=3)
        0.08333333333333333
    """
    return float(_load(*tree_numbers("tree_load", children, layers, tolerance)))


def relay_load(children: int, layers: int, tolerance: int) -> float:
    r"""Return the load of the leaves if all others only relay: $\rho^L$.

    It is larger by $1 + \rho + \dots + \rho^{L-1}$ than `tree_load`.

    Example:
        >>> relay_load(children=4, layers=3, tolerance=1)
        0.125
    """
    n, L, s = tree_numbers("relay_load", children, layers, tolerance)
    return float(Fraction(s + 1, n) ** L)


def tree_failure(children: int, layers: int, tolerance: int, straggle: float) -> float:
    r"""Return how probably the root cannot recover the sum.

    Every worker is late by itself with probability $f$. A leaf does not deliver with
    $F_L = f$, others with $F_l = f + (1-f) \Pr[\mathrm{Bin}(n, F_{l+1}) > s]$, and
    $\Pr[\mathrm{Bin}(n, F_1) > s]$ is what is asked for.

    Example:
        >>> round(tree_failure(children=4, layers=3, tolerance=1, straggle=0.05), 4)
        0.0274
    """
    n, L, s = tree_numbers("tree_failure", children, layers, tolerance)
    return chance_of_failure(n, L, s, _straggle("tree_failure", straggle))


def star_failure(workers: int, tolerance: int, straggle: float) -> float:
    r"""Return how probably more are late than a star survives: a binomial tail.

    Example:
        >>> f"{star_failure(workers=84, tolerance=21, straggle=0.05):.1e}"
        '1.1e-10'
    """
    N, S = star_numbers("star_failure", workers, tolerance)
    return _more_than(S, N, _straggle("star_failure", straggle))


def chance_of_failure(n: int, L: int, s: int, straggle: float) -> float:
    """Return `tree_failure` of numbers that are known to be right."""
    missing = straggle
    for _ in range(L - 1):
        missing = straggle + (1.0 - straggle) * _more_than(s, n, missing)
    return _more_than(s, n, missing)


def tree_numbers(
    bound: str, children: int, layers: int, tolerance: int
) -> tuple[int, int, int]:
    """Return the numbers of a tree, having checked them for a bound."""
    n = whole(bound, "children", children, least=1)
    L = whole(bound, "layers", layers, least=1)
    return n, L, whole(bound, "tolerance", tolerance, least=0, most=n - 1)


def star_numbers(bound: str, workers: int, tolerance: int) -> tuple[int, int]:
    """Return the numbers of a star, having checked them for a bound."""
    N = whole(bound, "workers", workers, least=1)
    return N, whole(bound, "tolerance", tolerance, least=0, most=N - 1)


def _more_than(s: int, n: int, probability: float) -> float:
    """Return how probably more than `s` of `n` happen; also tiny ones to all digits."""
    from scipy.special import betainc

    return float(betainc(s + 1, n - s, probability))


def _straggle(bound: str, value: object) -> float:
    return float(probabilities(bound, "straggle", value, 1)[0])


def _load(n: int, L: int, s: int) -> Fraction:
    q = Fraction(n, s + 1)
    return 1 / sum((q**layer for layer in range(1, L + 1)), Fraction())
