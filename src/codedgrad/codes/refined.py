"""More parts, or fewer, for the same code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codedgrad.codes.arguments import whole
from codedgrad.codes.code import Code, a_code
from codedgrad.codes.decoders import (
    Decoder,
    FirstHeard,
    LeastSquares,
    NullSpace,
    PerBlock,
    Prescribed,
)
from codedgrad.codes.sparse import Matrix, tidy


def runs(parts: int, blocks: int) -> tuple[range, ...]:
    """Cut `range(parts)` into consecutive runs, one for every block.

    The larger ones are spread evenly: any two stretches of as many neighbouring
    blocks hold the same number of parts, give or take one. A code that gives a worker
    neighbouring blocks thus loads all workers alike.

    Example:
        >>> [len(run) for run in runs(parts=11, blocks=4)]
        [2, 3, 3, 3]
        >>> runs(parts=2, blocks=3)
        (range(0, 0), range(0, 1), range(1, 2))
    """
    borders = [block * parts // blocks for block in range(blocks + 1)]
    return tuple(map(range, borders[:-1], borders[1:]))


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
    return recut(code, code.parts * pieces)


def recut(code: Code, parts: int) -> Code:
    """Return `code` over any number of parts: its own become blocks of them.

    The number of parts belongs to the run and not to the scheme: samples and random
    draws depend on it, so a run that goes on with other workers keeps it.

    Block b holds run b of `runs`: column b of `B` is repeated, or left out where the
    run is empty. Messages and tolerance stay what they are. A message may be left
    without a part, and its worker then has nothing to compute for it. Uneven runs make
    the amplification at most twice as large, as long as no run is empty.

    Example:
        >>> from codedgrad.codes import fractional
        >>> code = recut(fractional(workers=4, tolerance=1), parts=5)
        >>> code.placement
        ((0, 1), (0, 1), (2, 3, 4), (2, 3, 4))
        >>> recut(fractional(workers=4, tolerance=1), parts=1).placement
        ((), (), (0,), (0,))
    """
    a_code("recut", "code", code)
    parts = whole("recut", "parts", parts, least=1)
    if parts == code.parts:
        return code
    sizes = np.array([len(run) for run in runs(parts, code.parts)])
    pieces, uneven = divmod(parts, code.parts)
    B = tidy(code.B[:, np.repeat(np.arange(code.parts), sizes)])
    return replace(
        code,
        name=f"recut({code}, parts={parts})"
        if uneven
        else f"refined({code}, pieces={pieces})",
        B=B,
        decoder=_decoder(code, B) if uneven else code.decoder,
    )


def _decoder(code: Code, B: Matrix) -> Decoder:
    """Return a decoder for columns that do not all count the same.

    Other sizes have another least misfit, so decoders that minimise it are made for the
    cut matrix; those that are exact by construction are kept.
    """
    decoder, inner = code.decoder, code.decoder
    while isinstance(inner, PerBlock):
        inner = inner.inner
    if isinstance(inner, FirstHeard):  # it looks at messages only, and keeps weights 1
        if not isinstance(decoder, PerBlock):
            return decoder
        idle = np.flatnonzero(np.diff(B.indptr) == 0)
        return replace(decoder, idle=tuple(idle.tolist()))
    if isinstance(decoder, LeastSquares | Prescribed):
        return decoder.over(B)
    if B.shape[1] < code.parts:  # blocks without parts need not be recovered
        return LeastSquares(B)
    return decoder.over(B) if isinstance(decoder, NullSpace) else decoder
