r"""How a step would have gone with other lists.

With $x$ the seconds of every worker for the uncoded load of $c$ parts, a list of $w$
parts takes $x \, ((1 - f) + f w / c)$; of those asked for the same list $j$ the first
answer counts, at $F_j$. Lists that are not in at $\tau$ are shared out among those who
are, who take $g x$ seconds and $f x / c$ a part; that parts are whole costs half a one.

$$T = \max_j F_j \text{ if that is at most } \tau, \text{ else }
  \min(\max_j F_j, \tau + T_2)$$
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.decoders import Floats
from codedgrad.schemes.opaque_lists import Lists, Places
from codedgrad.schemes.opaque_past import GUESSES

__all__ = ["Arm", "Costs", "Went", "arms_for", "late", "went"]

_USUAL = 3 * 1.4826  # median deviations: three standard ones of a normal law
_SOON = 1.05  # times the median, at least
_CLEARLY = 1.5  # times the median, until what is late is shared out without an arm
_QUANTILES = (0.9, 0.75, 0.5, 0.25)  # of the lists, that two stages wait for
_TOLERANCES = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Costs:
    """What calls cost, in units of what a worker takes for the uncoded load.

    Attributes:
        share: That grows with the load, $f$.
        again: That a later call of a step pays again, $g$.
        unit: Parts in the uncoded load, $c$.
    """

    share: float
    again: float
    unit: float

    @property
    def part(self) -> float:
        """What a part takes."""
        return self.share / self.unit


@dataclass(frozen=True, slots=True, eq=False)
class Went:
    """When what would have come in.

    Attributes:
        firsts: The first answer to every list, (lists,).
        sizes: Parts of every list.
        samples: One part of every list, which says who may help.
        answers: Of everybody, (workers,); inf: was not asked.
    """

    firsts: Floats
    sizes: NDArray[np.intp]
    samples: Sequence[int]
    answers: Floats

    def end(self, tau: float, x: Floats, costs: Costs, places: Places) -> float:
        """Return when the step would have ended, with late lists shared out at `tau`.

        Where not everybody may help, helpers are not short of time for several lists.
        """
        last = float(self.firsts.max())
        if last <= tau:
            return last
        late = np.flatnonzero(self.firsts > tau).tolist()
        fixed, pace = costs.again * x, costs.part * x
        is_in = self.answers <= tau
        if places.everywhere:
            second = _together(fixed[is_in], pace[is_in], int(self.sizes[late].sum()))
            return min(last, tau + second)
        ends = []
        for number in late:
            helpers = [w for w in places.holders[self.samples[number]] if is_in[w]]
            parts = int(self.sizes[number])
            second = _together(fixed[helpers], pace[helpers], parts)
            ends.append(min(float(self.firsts[number]), tau + second))
        return max(ends)


def went(lists: Lists, x: Floats, costs: Costs) -> Went:
    """Return when the answers to some lists would have come in."""
    sizes = np.array([len(parts) for parts in lists.parts])
    members = np.array([len(workers) for workers in lists.workers])
    who = np.array([worker for workers in lists.workers for worker in workers])
    loads = np.repeat(sizes, members)
    times = x[who] * ((1.0 - costs.share) + costs.part * loads)
    answers = np.full(len(x), np.inf)
    answers[who] = times
    starts = np.cumsum(members) - members
    return Went(
        firsts=np.minimum.reduceat(times, starts),
        sizes=sizes,
        samples=[parts[0] for parts in lists.parts],
        answers=answers,
    )


def late(firsts: Floats) -> float:
    """Return after how many seconds a list is late, by when others were in.

    Example:
        >>> round(late(np.array([1.0, 1.0, 1.1, 1.2, 5.0])), 3)
        1.545
    """
    median = float(np.median(firsts))
    spread = float(np.median(np.abs(firsts - median)))
    return max(_SOON * median, median + _USUAL * spread)


def _together(fixed: Floats, pace: Floats, parts: int) -> float:
    """Return how long workers take for parts that they share; inf without workers."""
    if not len(fixed):
        return np.inf
    order = np.argsort(fixed, kind="stable")
    begin, rate = fixed[order], 1.0 / pace[order]
    ends = (parts + np.cumsum(begin * rate)) / np.cumsum(rate)
    used = int(np.argmax(np.append(ends[:-1] <= begin[1:], True)))
    return float(ends[used]) + 0.5 / float(np.mean(rate[: used + 1]))


@dataclass(frozen=True, slots=True)
class Arm:
    """A kind of lists, and when they are shared out.

    Attributes:
        name: In a word.
        kind: Of the lists.
        quantile: Of the lists, that must usually be in; None: until others are late.
        tolerance: One less than the workers of a group, of a code.
    """

    name: str
    kind: str
    quantile: float | None = None
    tolerance: int = 0

    def tau(self, firsts: Floats) -> float:
        """Return after how many seconds lists are shared out, from when others came."""
        if self.quantile is not None:
            return float(np.quantile(firsts, self.quantile))
        if self.name == "uncoded":
            return max(late(firsts), _CLEARLY * float(np.median(firsts)))
        return late(firsts)


def arms_for(places: Places) -> dict[str, Arm]:
    """Return all arms by name, those that ask for less first."""
    found = [Arm("uncoded", "even")]
    found += [Arm(f"uneven({guess})", guess) for guess in GUESSES]
    found += [Arm("two_stage", "even")]
    found += [Arm(f"two_stage({q:g})", "even", q) for q in _QUANTILES]
    for s in _TOLERANCES:
        if places.can_repeat(s):
            found.append(Arm(f"repeated({s})", f"repeated {s}", tolerance=s))
    return {arm.name: arm for arm in found}
