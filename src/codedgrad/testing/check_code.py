"""`check_code`: does a code keep what it promises?"""

from __future__ import annotations

import numpy as np

from codedgrad.codes import Code, decode
from codedgrad.codes.decoders import EXACT, Bools, LeastSquares, residuals
from codedgrad.codes.late_sets import heard_without, late_sets
from codedgrad.errors import Violation


def check_code(code: Code, seed: int = 0) -> None:
    """Raise `Violation` unless the code keeps its promises.

    - every set of tolerated late workers leaves the sum exact (all sets if there are
      at most 100,000 of them, else every window of neighbours and random ones);
    - with one late worker more some set does not: what tolerates more should say so;
    - its decoder is as good as least squares wherever it says `decodable`, and says so
      for every set that least squares can decode;
    - decoded sums of random gradients are right, not only weights.

    Example:
        >>> from codedgrad.codes import cyclic
        >>> check_code(cyclic(workers=7, tolerance=2))
    """
    if code.tolerance is not None:
        _check_tolerated(code, code.tolerance)
        _check_one_more(code, code.tolerance + 1)
    _check_decoder(code, seed)
    _check_sums(code, seed)


def _check_tolerated(code: Code, tolerance: int) -> None:
    for late in late_sets(code.workers, tolerance).batches:
        heard = heard_without(late, code.owner)
        misfit = residuals(code.B, code.decoder.weights(heard))
        worst = int(np.argmax(misfit))
        if not misfit[worst] <= EXACT:
            raise Violation(
                f"{code} survives any {tolerance} late workers",
                f"without {late[worst].tolist()} the residual is {misfit[worst]:.3g}",
            )
        if not np.all(code.decoder.decodable(heard)):
            raise Violation("tolerated sets are decodable", f"{code} says they are not")


def _check_one_more(code: Code, late: int) -> None:
    if late >= code.workers:
        return  # nobody left: nothing decodes
    general = LeastSquares(code.B)
    for sets in late_sets(code.workers, late).batches:
        heard = heard_without(sets, code.owner)
        if not np.all(general.decodable(heard)):
            return
    raise Violation(
        "one late worker more than the tolerance is too many for some set",
        f"{code} survives {late}, and promises {late - 1}",
    )


def _check_decoder(code: Code, seed: int) -> None:
    general = LeastSquares(code.B)
    for heard in _patterns(code, seed):
        says = code.decoder.decodable(heard)
        own = residuals(code.B, code.decoder.weights(heard)) <= EXACT
        if np.any(says != own):
            raise Violation("decodable means that the weights are exact", f"{code}")
        if code.tolerance is not None and np.any(says != general.decodable(heard)):
            raise Violation("the decoder knows every decodable set", f"{code}")


def _check_sums(code: Code, seed: int) -> None:
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((code.parts, 3))
    messages, total = np.asarray(code.B @ G), G.sum(axis=0)
    for heard in _patterns(code, seed):
        exact = heard[code.decoder.decodable(heard)]
        for pattern in rng.permutation(exact)[:50]:
            decoding = decode(code, np.flatnonzero(pattern))
            got = sum((a * messages[m] for m, a in decoding.weights), np.zeros(3))
            if not decoding.is_exact or not np.allclose(got, total, atol=1e-6):
                raise Violation("an exact decoding gives the sum", f"{code}: {pattern}")


def _patterns(code: Code, seed: int) -> list[Bools]:
    """Return all patterns of small codes, random ones of larger."""
    n = code.messages
    if n <= 10:
        numbers = np.arange(2**n)
        return [(numbers[:, None] >> np.arange(n)) & 1 == 1]
    rng = np.random.default_rng(seed)
    return [rng.random((200, n)) < share for share in (0.5, 0.9, 0.98)]
