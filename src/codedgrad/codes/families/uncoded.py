"""No redundancy: every worker has a part of its own, and all are waited for."""

from __future__ import annotations

from dataclasses import replace

from codedgrad.codes.arguments import whole
from codedgrad.codes.code import Code
from codedgrad.codes.families.fractional import fractional


def uncoded(workers: int) -> Code:
    """Give each worker one part; the sum needs every message.

    Example:
        >>> code = uncoded(workers=3)
        >>> code.tolerance, code.load, code.decodable([0, 1, 2])
        (0, 1, True)
    """
    workers = whole("uncoded", "workers", workers, least=1)
    code = fractional(workers, tolerance=0)
    return replace(code, name=f"uncoded(workers={workers})")
