"""ErasureHead: fractional repetition that may stop early.

Wang, Charles, Papailiopoulos, arXiv 1901.09671.
"""

from __future__ import annotations

from dataclasses import replace

from codedgrad.codes.arguments import divisors, one_of, whole
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import Fixed
from codedgrad.codes.families.fractional import fractional
from codedgrad.errors import InvalidCode


def erasurehead(workers: int, copies: int, *, decoding: str = "any") -> Code:
    """Place parts as `fractional` does, to be decoded whenever time is up.

    One answer per group gives that group's parts; groups nobody answered for are
    missing, and each of their parts adds 1 to the residual. With at most `copies` - 1
    workers late it is exact.

    Args:
        workers: Number of workers, and of parts.
        copies: Workers that hold a part; must divide `workers`.
        decoding: `any` (one answer of a group, as published), or `sum` (all answers
            over `copies`, as the published comparison of Song and Choi runs it).

    Example:
        >>> from codedgrad.codes import decode
        >>> decode(erasurehead(workers=6, copies=2), heard=[1, 4])
        Decoding(weights=((1, 1.0), (4, 1.0)), residual=2.0)
    """
    n = whole("erasurehead", "workers", workers, least=1)
    d = whole("erasurehead", "copies", copies, least=1, most=n)
    if n % d:
        problem = f"copies = {d} must divide workers = {n}"
        raise InvalidCode("erasurehead", problem, f"copies in {divisors(n)}")
    kind = one_of("erasurehead", "decoding", decoding, ("any", "sum"))
    code = fractional(n, tolerance=d - 1)
    if kind == "any":
        return replace(code, name=f"erasurehead(workers={n}, copies={d})")
    name = f"erasurehead(workers={n}, copies={d}, decoding='sum')"
    decoder = Fixed(code.B, 1.0 / d)
    return replace(code, name=name, tolerance=None, decoder=decoder, inner=None)
