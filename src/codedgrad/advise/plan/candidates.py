"""What there is to choose from on a cluster: exact schemes that fit it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.core import Scheme
from codedgrad.delays import Times
from codedgrad.errors import InvalidCode, InvalidScheme
from codedgrad.schemes import SCHEMES, build

_MOST_TOLERANCE = 4
_CLUSTERS = (2, 4)
_UNEVEN = 1.15  # times as fast: below that, equal shares are as good
_STEADY = 1.1  # times: the most that the two halves of a recording may differ by
_PIECES = 8  # parts for each worker, where nobody knows what a part costs
_FEWEST, _MANY = 4, 32
_TIMES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scheme that may be the right one.

    Attributes:
        scheme: The scheme.
        text: What `codedgrad.schemes.registry` makes it of.
        is_code: Whether everybody does more work, always, so that some may be late.
        reason: Why it takes as long as it does, in a few words.
    """

    scheme: Scheme
    text: str
    is_code: bool
    reason: str

    @property
    def label(self) -> str:
        """Its name, without the speeds of all workers."""
        name, bracket, rest = self.text.partition("speeds=[")
        return f"{name}speeds=...{rest.partition(']')[2]}" if bracket else self.text

    @property
    def is_default(self) -> bool:
        """Whether it is what `train` does unless told otherwise."""
        return self.text.startswith("auto")

    @property
    def goes_on(self) -> bool:
        """Whether any one worker may die and nobody waits for it to come back."""
        return (self.scheme.tolerance or 0) >= 1

    @property
    def storage(self) -> float:
        """The share of the data that a worker holds, the mean over workers."""
        held = sum(map(len, self.scheme.placement))
        return held / (self.scheme.workers * self.scheme.parts)


def candidates(
    times: Times, *, pieces: int = _PIECES, network: bool = False
) -> list[Candidate]:
    """Return the schemes that fit so many workers; waiting for all is the first.

    Args:
        times: Of a run; speeds are measured here.
        pieces: Parts for each worker, for schemes that move them.
        network: Whether messages take their time, which trees are for.
    """
    n = times.workers
    found: dict[str, Candidate] = {}
    for text, tolerance, reason in _texts(n, times, pieces, network):
        if text.partition("(")[0] not in SCHEMES:
            continue
        try:
            scheme = build(text, n)
        except (InvalidCode, InvalidScheme):
            continue  # it does not fit so many workers
        found.setdefault(
            scheme.name, Candidate(scheme, scheme.name, tolerance > 0, reason)
        )
    return [candidate for candidate in found.values() if candidate.scheme.exact]


def pieces_for(seconds: float, share: float, overhead: float | None) -> tuple[int, str]:
    r"""Return into how many parts to cut the load of a worker, and why.

    With $c$ parts a step waits for half a part on average, $f T / (2 c)$, and pays $c$
    times the overhead $o$ of one: $c = \sqrt{f T / (2 o)}$, from 4 to 32.

    Args:
        seconds: $T$, a worker's for its uncoded load.
        share: $f$.
        overhead: $o$, seconds; None if nobody knows.

    Example:
        >>> pieces_for(1.0, 1.0, 0.002)
        (16, 'a part more costs 2 ms, half a part is waited for')
    """
    if overhead is None:
        return _PIECES, "what a part more costs is not known"
    best = math.sqrt(share * seconds / (2 * overhead)) if overhead > 0 else math.inf
    count = round(min(max(best, _FEWEST), _MANY))
    if overhead <= 0:
        return count, "a part more costs next to nothing"
    why = f"a part more costs {1000 * overhead:.2g} ms, half a part is waited for"
    if best < _FEWEST:
        why += f"; {best:.1f} would do, fewer than {_FEWEST} cannot be shared out"
    return count, why


def _texts(
    n: int, times: Times, pieces: int, network: bool
) -> Iterator[tuple[str, int, str]]:
    """Return every scheme in words, its tolerance if it is a code, and a reason."""
    yield "uncoded", 0, "the slowest worker sets the pace"
    if n == 1:
        return
    yield f"auto(pieces={pieces})", 0, "unfinished parts go to whoever is free"
    for count in sorted({2, pieces}):
        yield (
            f"two_stage(pieces={count})", 0, "looks once, then shares out what is late"
        )  # fmt: skip
    for s in range(1, min(_MOST_TOLERANCE, n - 1) + 1):
        more = f"everybody does {_TIMES[s + 1]} the work"
        yield f"fractional(tolerance={s})", s, more
        if s + 1 < n:  # else it is the same
            yield f"cyclic(tolerance={s})", s, more
        for clusters in _CLUSTERS:
            if n % clusters == 0 and n // clusters > s + 1:
                yield f"clustered(clusters={clusters}, tolerance={s})", s, more
    if n % 2 == 0 and n > 2:
        reason = "everybody does twice the work, slow ones paired with fast"
        yield f"dynamic(clusters={n // 2}, tolerance=1)", 1, reason
    yield from _uneven(times, pieces)
    if network:
        yield from _trees(n)


def _uneven(times: Times, pieces: int) -> Iterator[tuple[str, int, str]]:
    """Return shares by speed, where the same workers are faster all the time."""
    speeds = steady_speeds(times)
    if speeds is None:
        return
    written = f"speeds=[{', '.join(f'{speed:.3g}' for speed in speeds)}]"
    parts = pieces * times.workers
    share = "shares by measured speed, fixed for the run"
    yield f"proportional(tolerance=0, {written}, parts={parts})", 0, share
    more = "shares by measured speed, and twice the work"
    yield f"proportional(tolerance=1, {written}, parts={parts})", 1, more


def steady_speeds(times: Times) -> Sequence[float] | None:
    """Return how fast workers are, from 0 to 1; None if that is even, or changes.

    Example:
        >>> x = np.array([[1.0, 2.0], [1.01, 2.0], [1.0, 2.02], [1.0, 2.01]])
        >>> [round(speed, 3) for speed in steady_speeds(Times(np.zeros(x.shape), x))]
        [1.0, 0.499]
    """
    x = times.fixed + times.unit
    if len(x) < 4 or not np.all(np.isfinite(x)) or not np.all(x > 0):
        return None
    half = len(x) // 2
    first, second = (np.median(part, axis=0) for part in (x[:half], x[half:]))
    apart = np.abs(np.log(first / second) - np.median(np.log(first / second)))
    each = np.median(x, axis=0)
    if each.max() < _UNEVEN * each.min() or apart.max() > math.log(_STEADY):
        return None
    speeds: list[float] = (each.min() / each).tolist()
    return speeds


def _trees(n: int) -> Iterator[tuple[str, int, str]]:
    for children in range(2, n):
        for s in range(min(2, children - 1) + 1):
            reason = "sums are added up on the way, the root's link is spared"
            yield f"coded_reduce(children={children}, tolerance={s})", s, reason
