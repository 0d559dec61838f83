"""The uplink, slot by slot: everybody offers all it may, a policy decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from codedgrad.papers.two_stage.lab import ABSTRACT
from codedgrad.uplink.bounds import utility
from codedgrad.uplink.slots import Policy

RATES, MOST = (1.0, 2.0, 4.0, 8.0), 4.0  # bits in a slot
MODEL = (
    f"4 workers of {', '.join(f'{r:g}' for r in RATES)} bits a slot, each of which "
    f"offers {MOST:g} bits in every slot"
)
CLAIM = (
    "a perturbed Lyapunov function balances fairness of the data admitted and "
    f"throughput. {ABSTRACT}"
)
_DROPPED = 5  # one in so many slots, at the start


@dataclass(frozen=True, slots=True)
class Delivered:
    """What came of a policy.

    Attributes:
        rates: Bits that every worker delivered in a slot.
        backlog: Bits that wait, of all workers, on average.
        end: Bits that wait at the end.
        longest: The longest queue there was, bits.
        short: Slots in which somebody was to send and its battery ran out, a share.
    """

    rates: tuple[float, ...]
    backlog: float
    end: float
    longest: float
    short: float

    @property
    def utility(self) -> float:
        """Of what was delivered, with beta = 1."""
        return utility(self.rates)


def run(
    policy: Policy, slots: int, harvest: Sequence[Sequence[float]] | None = None
) -> Delivered:
    """Let slots pass in which everybody offers all it may; the first ones are dropped.

    Args:
        policy: In its first state.
        slots: How many.
        harvest: Energy on offer, by slot and worker; None without batteries.

    Example:
        >>> from codedgrad.uplink.rivals import POLICIES
        >>> policy = POLICIES["round_robin"](4, V=1, beta=1, most=MOST, peaks=RATES)
        >>> run(policy, 500).rates
        (0.25, 0.5, 1.0, 2.0)
    """
    offered, dropped = (MOST,) * len(RATES), slots // _DROPPED
    energy = repeat(None) if harvest is None else harvest
    sent, backlog, longest, short = [0.0] * len(RATES), 0.0, 0.0, 0
    for number, given in zip(range(slots), energy, strict=False):
        slot = policy.slot(offered, RATES, given)
        queues = policy.queues
        longest = max(longest, *queues)
        if number >= dropped:
            sent = [one + more for one, more in zip(sent, slot.sent, strict=True)]
            backlog += sum(queues)
            short += bool(slot.short)
    count = slots - dropped
    rates = tuple(each / count for each in sent)
    return Delivered(rates, backlog / count, sum(policy.queues), longest, short / count)
