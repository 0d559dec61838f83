r"""Cyclic repetition with coefficients that keep their digits.

Worker $i$ of $n$ holds parts $i, \dots, i+s$ (mod $n$), and any $n - s$ messages give
the sum. The support is that of Tandon et al. (ICML 2017); the coefficients are the
well-conditioned ones of `circulant`, or, for few workers and $n - s$ even, those of
the best of 200 random draws where that amplifies rounding less.
"""

from __future__ import annotations

from dataclasses import replace

from codedgrad.codes.amplification import LIMIT, amplification, refuse_above_limit
from codedgrad.codes.arguments import one_of, whole
from codedgrad.codes.code import Code
from codedgrad.codes.families.circulant import circulant
from codedgrad.codes.families.fractional import fractional
from codedgrad.codes.families.null_space import best_draw, draw
from codedgrad.errors import IllConditioned

_CONSTRUCTIONS = ("best", "circulant", "random")
_TRIED_UP_TO = 16  # late workers in advice; above it only near-total copies are fine


def cyclic(
    workers: int,
    tolerance: int,
    *,
    construction: str = "best",
    seed: int = 0,
    accept_amplification: bool = False,
) -> Code:
    """Give worker i the parts i to i + `tolerance`, so that any few may be late.

    Args:
        workers: Number of workers, and of parts.
        tolerance: Late workers survived, whoever they are.
        construction: `best`; or, by name, `circulant`, or `random`: the papers' plain
            draw, for comparison.
        seed: Of the draws.
        accept_amplification: Build the code even if it loses digits.

    Raises:
        InvalidCode: For impossible numbers.
        IllConditioned: If decoding would amplify rounding more than 500 times.

    Example:
        >>> cyclic(workers=4, tolerance=1).B.toarray()
        array([[1., 1., 0., 0.],
               [0., 1., 1., 0.],
               [0., 0., 1., 1.],
               [1., 0., 0., 1.]])
    """
    n = whole("cyclic", "workers", workers, least=1)
    s = whole("cyclic", "tolerance", tolerance, least=0, most=n - 1)
    kind = one_of("cyclic", "construction", construction, _CONSTRUCTIONS)
    seed = whole("cyclic", "seed", seed, least=0)
    name = f"cyclic(workers={n}, tolerance={s}"
    name += {
        "best": ")",
        "circulant": ", construction='circulant')",
        "random": f", construction='random', seed={seed})",
    }[kind]
    if s in (0, n - 1):  # one possible support, and ones are its best coefficients
        return replace(fractional(n, s), name=name)
    if kind == "random":
        code = draw(n, s, seed, name)
    else:
        code = _circulant(n, s, name, accept_amplification)
        if kind == "best" and _may_be_drawn(n, s):
            found = amplification(code).value
            code = best_draw(n, s, seed, name, below=found) or code
    if accept_amplification:
        return code
    return refuse_above_limit(code, lambda: better_choices(n, s))


def _may_be_drawn(n: int, s: int) -> bool:
    """Whether the best of many draws has a chance: `make bench` looks at the others."""
    return (n - s) % 2 == 0 and (n <= 8 or (n - s == 2 and n <= 16))


def _circulant(n: int, s: int, name: str, accept_amplification: bool) -> Code:
    numbers = circulant(n, s)
    found = numbers.window_amplification()
    if found > LIMIT and not accept_amplification:
        raise IllConditioned(name, found, LIMIT, better_choices(n, s))
    return numbers.code(name)


def better_choices(n: int, s: int) -> list[str]:
    """Return calls that build a better code than one of these numbers refused."""
    choices = [f"cyclic(workers={n}, tolerance={s})"] if _is_fine(n, s) else []
    if n % (s + 1) == 0:
        choices.append(f"fractional(workers={n}, tolerance={s})")
    sizes = [m for m in range(s + 1, n) if n % m == 0 and _is_fine(m, s)]
    if sizes and not choices:
        inner = f"cyclic(workers={sizes[-1]}, tolerance={s})"
        choices.append(f"clustered({inner}, clusters={n // sizes[-1]})")
    fewer = next(t for t in range(min(s - 1, _TRIED_UP_TO), -1, -1) if _is_fine(n, t))
    return [*choices, f"cyclic(workers={n}, tolerance={fewer})"]


def _is_fine(n: int, s: int) -> bool:
    if s in (0, n - 1):
        return True
    numbers = circulant(n, s)
    if numbers.window_amplification() > LIMIT:
        return False
    return amplification(numbers.code(""), stop_above=LIMIT).value <= LIMIT
