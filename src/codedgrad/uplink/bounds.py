r"""What an uplink can reach at best, and how the outcome is judged."""

from __future__ import annotations

import math
from collections.abc import Sequence

from codedgrad.errors import InvalidOptions
from codedgrad.uplink.batteries import Battery
from codedgrad.uplink.slots import positive, within


def utility(rates: Sequence[float], beta: float = 1.0) -> float:
    r"""Return $\sum_i \log(1 + \beta x_i)$ of the bits per slot of every worker.

    Example:
        >>> round(utility([0.0, 0.25, 1.5, 4.0]), 6)
        2.748872
    """
    return math.fsum(math.log1p(beta * rate) for rate in rates)


def jain(values: Sequence[float]) -> float:
    r"""Return Jain's index of fairness, $(\sum x)^2 / (n \sum x^2)$.

    It is 1 if all have the same, 0 included, and $1 / n$ if one has everything.

    Example:
        >>> jain([1.0, 1.0]), jain([0.0, 3.0])
        (1.0, 0.5)
    """
    if not values:
        raise InvalidOptions("uplink", "values is empty", "one for every worker")
    top = max(values)
    if top == 0:
        return 1.0
    shares = [value / top for value in values]  # squares neither vanish nor overflow
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def static_optimum(
    rates: Sequence[float], most: float | Sequence[float], beta: float = 1.0
) -> tuple[float, ...]:
    r"""Return the rates of largest utility on a link whose quality never changes.

    Maximises $\sum_i \log(1 + \beta x_i)$ subject to $\sum_i x_i / r_i \le 1$ and
    $0 \le x_i \le A_i$. At the optimum $x_i = r_i \mu - 1 / \beta$, clipped, and the
    level $\mu$ is where the time is used up. The time used is linear in $\mu$ between
    the levels at which a worker starts, or has all it can use; so $\mu$ is exact.

    Args:
        rates: Bits that each worker sends in a slot of its own; 0 never sends.
        most: $A_i$, bits per slot that each can use; one number serves all.
        beta: Of the utility.

    Example:
        >>> static_optimum([1.0, 2.0, 4.0, 8.0], most=4.0)
        (0.0, 0.25, 1.5, 4.0)
    """
    unlimited = (math.inf,) * len(rates)
    within("rates", rates, unlimited)
    caps = [most] * len(rates) if isinstance(most, int | float) else list(most)
    within("most", caps, unlimited)
    caps = [min(cap, rate) for cap, rate in zip(caps, rates, strict=True)]
    slack = 1.0 / positive("beta", beta)

    def at(level: float) -> list[float]:
        pairs = zip(rates, caps, strict=True)
        return [min(max(rate * level - slack, 0.0), cap) for rate, cap in pairs]

    def used(level: float) -> float:
        pairs = zip(at(level), rates, strict=True)
        return math.fsum(x / rate for x, rate in pairs if rate > 0)

    pairs = [(r, c) for r, c in zip(rates, caps, strict=True) if r > 0]
    levels = sorted({b for r, c in pairs for b in (slack / r, (slack + c) / r)})
    below = 0.0
    for above in levels:
        if used(above) >= 1.0:
            low, high = used(below), used(above)
            below += (above - below) * (1.0 - low) / (high - low)
            break
        below = above
    return tuple(at(below))


def gap_bound(
    V: float, most: float, peaks: Sequence[float], battery: Battery | None = None
) -> float:
    r"""Return how much utility the fair uplink may lose against the best policy.

    $B / V$ with $B = \frac12 (\max_i r_{\max,i}^2 + 2 M A_{\max}^2)$, and
    $\frac12 M \max(P_{\max}, \eta_{\max})^2$ more with batteries, for means over many
    slots. By squaring the updates of the queues: what they add to half the sum of
    squares in a slot is at most $B$ plus terms that the rules of `fair` make as small
    as any rules can. It is loose, often fiftyfold.

    Example:
        >>> gap_bound(V=1.0, most=4.0, peaks=[1.0, 2.0, 4.0, 8.0])
        96.0
    """
    squares = max(peaks) ** 2 + 2 * len(peaks) * most**2
    if battery is not None:
        given = battery.power
        powers = [given] if isinstance(given, int | float) else given
        squares += len(peaks) * max(*powers, battery.harvest_most) ** 2
    return 0.5 * squares / positive("V", V)
