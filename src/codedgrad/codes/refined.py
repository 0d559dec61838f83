"""Smaller parts, the same code."""

from __future__ import annotations

from dataclasses import replace

from codedgrad.codes.arguments import whole
from codedgrad.codes.code import Code, a_code
from codedgrad.codes.sparse import stretched


def refined(code: Code, pieces: int) -> Code:
    """Cut every part of `code` into `pieces` parts with the same coefficients.

    Messages, weights and tolerance stay what they are. Workers report progress more
    often and lose less when they are interrupted.

    Example:
        >>> from codedgrad.codes import fractional
        >>> code = refined(fractional(workers=4, tolerance=1), pieces=3)
        >>> code.parts, code.load, code.decodable([1, 2])
        (12, 6, True)
    """
    a_code("refined", "code", code)
    pieces = whole("refined", "pieces", pieces, least=1)
    if pieces == 1:
        return code
    return replace(
        code,
        name=f"refined({code}, pieces={pieces})",
        B=stretched(code.B, pieces),
        inner=None if code.inner is None else refined(code.inner, pieces),
    )
