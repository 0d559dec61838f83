r"""A link to the root that all workers share, as drivers are told of it.

A message is the unit of data, and a slot the unit of time. A worker that has the link
to itself sends $\rho_i = \text{slot} / \text{seconds}_i$ messages in a slot; who has it
is decided by a policy of `rivals.POLICIES`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from numbers import Real
from typing import TypeVar

from codedgrad.errors import InvalidOptions
from codedgrad.uplink.credits import Credits
from codedgrad.uplink.fair import Uplink
from codedgrad.uplink.rivals import POLICIES

_Key = TypeVar("_Key", bound=Hashable)
_FAIR = 10.0  # beta x the lowest rate: close to proportional fairness
_TURNS = 50  # slots for every worker after which one that waits goes first


@dataclass(frozen=True, slots=True)
class Link:
    r"""How the link to the root is shared out.

    Attributes:
        policy: `fair`, `max_rate`, `round_robin`, `longest_queue` or `max_weight`.
        slot: Seconds of a slot. 0: as long as the shortest message takes, and no time
            passes by waiting: only the order of messages that are there is decided.
        seconds: For one message of a worker that has the link to itself; one number, or
            one for every worker, in a tuple or a list.
        V: What utility weighs against short queues; None: so that what waits in a
            worker's queue stays below about one message.
        beta: Of $\log(1 + \beta x)$, x in messages per slot; None: 10 / lowest rate.

    Example:
        >>> Link("fair", slot=0.5, seconds=(1.0, 2.0)).rates(workers=2)
        (0.5, 0.25)
    """

    policy: str = "fair"
    slot: float = 0.0
    seconds: float | tuple[float, ...] = 1.0
    V: float | None = None
    beta: float | None = None

    def __post_init__(self) -> None:
        if self.policy not in tuple(POLICIES):
            problem = f"there is no policy {self.policy!r}"
            raise InvalidOptions("link", problem, f"one of {', '.join(POLICIES)}")
        object.__setattr__(self, "seconds", _settled(self.seconds))
        each = self.seconds if isinstance(self.seconds, tuple) else (self.seconds,)
        if not each or not all(_is_positive(one) for one in each):
            problem = f"a message takes {self.seconds!r} seconds"
            raise InvalidOptions("link", problem, "seconds above 0")
        if self.slot != 0 and not _is_positive(self.slot):
            problem = f"a slot takes {self.slot!r} seconds"
            raise InvalidOptions("link", problem, "seconds, 0 or more")
        for name, value in (("V", self.V), ("beta", self.beta)):
            if value is not None and not _is_positive(value):
                raise InvalidOptions("link", f"{name} is {value!r}", "a number above 0")

    def rates(self, workers: int) -> tuple[float, ...]:
        """Return the messages that each worker can send in a slot."""
        each = self.seconds
        if not isinstance(each, tuple):
            each = (each,) * workers
        if len(each) != workers:
            problem = f"has seconds for {len(each)} workers"
            raise InvalidOptions("link", problem, f"seconds for {workers}")
        slot = self.slot or min(each)
        return tuple(slot / seconds for seconds in each)

    def credits(self, workers: int) -> Credits[_Key]:
        """Return a fresh account of who has sent how much."""
        rates = self.rates(workers)
        most = max(rates)
        beta = _FAIR / min(rates) if self.beta is None else self.beta
        V = max(1.0 - 2.0 * most, most) / beta if self.V is None else self.V
        if self.policy == "fair":
            turns = _TURNS * workers
            return Credits(
                Uplink(workers, V=V, beta=beta, most=most, peaks=rates, wait_most=turns)
            )
        make = POLICIES[self.policy]
        return Credits(make(workers, V=V, beta=beta, most=most, peaks=rates))


def _is_positive(value: object) -> bool:
    """Return whether a value is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return 0 < float(value) < math.inf


def _settled(seconds: object) -> object:
    """Return lists as tuples."""
    return tuple(seconds) if isinstance(seconds, list) else seconds
