"""What every policy of the uplink shares: a slot, its outcome, and the data queues.

Time is cut into slots of equal length. In each, workers offer bits, a policy admits
some of them to their queues and shares the slot among the queues. A policy knows
sizes and rates, never contents; any unit of data will do if it is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import le
from typing import Protocol

from codedgrad.errors import InvalidOptions


@dataclass(frozen=True, slots=True)
class Slot:
    """What was decided for one slot; every tuple but two has an item per worker.

    Attributes:
        admitted: Bits that entered each queue; they can leave in the next slot.
        shares: Share of the slot that each worker sent for; they sum to at most 1.
        sent: Bits that left each queue.
        scheduled: The workers that were given the link, in that order.
        harvested: Energy that each battery took; empty without batteries.
        short: The workers scheduled whose battery did not last for their share; they
            sent for as long as it did. With the right perturbation: nobody, ever.
    """

    admitted: tuple[float, ...]
    shares: tuple[float, ...]
    sent: tuple[float, ...]
    scheduled: tuple[int, ...]
    harvested: tuple[float, ...] = ()
    short: tuple[int, ...] = ()


class Policy(Protocol):
    """Decides slot by slot who may send how much."""

    @property
    def workers(self) -> int:
        """How many there are."""
        ...

    @property
    def most(self) -> float:
        """Bits that a worker may offer in a slot."""
        ...

    @property
    def queues(self) -> tuple[float, ...]:
        """Bits admitted and not yet sent, by worker."""
        ...

    def slot(
        self,
        offered: Sequence[float],
        rates: Sequence[float],
        harvest: Sequence[float] | None = None,
    ) -> Slot:
        """Decide the next slot, and let it pass.

        Args:
            offered: Bits on offer, by worker. What is refused stays there.
            rates: Bits that each worker could send if it had the whole slot.
            harvest: Energy on offer, by worker; None without batteries.
        """
        ...

    def withdraw(self, worker: int, bits: float) -> None:
        """Take bits out of a queue that need not be sent any more."""
        ...


class DataQueues:
    r"""The bits that wait at each worker: $Q_i \leftarrow Q_i - \tau_i \rho_i + D_i$.

    Args:
        most: Bits that a worker may offer in a slot.
        peaks: The highest rate of every worker, in bits per slot.
        shared: Whether what the first in line leaves of a slot is handed on.
    """

    def __init__(
        self, workers: int, most: float, peaks: Sequence[float], shared: bool
    ) -> None:
        if workers < 1:
            raise InvalidOptions("uplink", f"workers is {workers}", "1 or more")
        self.workers = workers
        self.most = positive("most", most)
        self.peaks = each("peaks", peaks, workers)
        self.bits = [0.0] * workers
        self._offers = (self.most,) * workers
        self._shared = shared

    def check(self, offered: Sequence[float], rates: Sequence[float]) -> None:
        """Refuse a slot whose numbers break the bounds that were promised."""
        within("offered", offered, self._offers)
        within("rates", rates, self.peaks)

    def waiting(self, rates: Sequence[float]) -> list[int]:
        """Return the workers that have something to send and can send."""
        return [
            worker
            for worker, (bits, rate) in enumerate(zip(self.bits, rates, strict=True))
            if bits > 0.0 and rate > 0.0
        ]

    def serve(
        self,
        line: Iterable[int],
        rates: Sequence[float],
        limits: Sequence[float] | None,
        admitted: tuple[float, ...],
        harvested: tuple[float, ...] = (),
    ) -> Slot:
        r"""Share the slot along the line, then let in what was admitted.

        The next in line gets $\tau = \min(\text{rest}, Q / \rho)$ of the slot.

        Args:
            line: Workers that wait, the first to be served first.
            rates: Bits per slot, by worker.
            limits: The longest share that the battery of each worker lasts for.
            admitted: Bits that enter each queue.
            harvested: Energy that enters each battery, to be told.
        """
        rest, scheduled, short = 1.0, [], []
        shares, sent = [0.0] * self.workers, [0.0] * self.workers
        for worker in line:
            bits, rate = self.bits[worker], rates[worker]
            need = bits / rate
            share = min(rest, need)
            if limits is not None and limits[worker] < share:
                share = limits[worker]
                short.append(worker)
            scheduled.append(worker)
            shares[worker] = share
            sent[worker] = bits if share >= need else min(bits, share * rate)
            rest -= share
            if not self._shared or rest <= 0.0:
                break
        for worker, bits in enumerate(admitted):  # what left is taken off first
            self.bits[worker] = self.bits[worker] - sent[worker] + bits
        return Slot(
            admitted,
            tuple(shares),
            tuple(sent),
            tuple(scheduled),
            harvested,
            tuple(short),
        )

    def withdraw(self, worker: int, bits: float) -> None:
        """Take out bits that need not be sent any more, or all there are."""
        if not bits >= 0.0:
            raise InvalidOptions("uplink", f"bits is {bits}", "0 or more")
        self.bits[worker] = max(0.0, self.bits[worker] - bits)


class Queued:
    """What every policy has: bits that wait."""

    _data: DataQueues

    @property
    def workers(self) -> int:
        """How many share the link."""
        return self._data.workers

    @property
    def most(self) -> float:
        """Bits that a worker may offer in a slot."""
        return self._data.most

    @property
    def queues(self) -> tuple[float, ...]:
        """$Q_i$, bits admitted and not yet sent, by worker."""
        return tuple(self._data.bits)

    def withdraw(self, worker: int, bits: float) -> None:
        """Take bits out of a queue that need not be sent any more.

        A shorter queue breaks no bound; what fairness owes stays as it is.
        """
        self._data.withdraw(worker, bits)


def positive(name: str, value: float) -> float:
    """Return a number greater than 0 as a float, or say that it is none."""
    if not 0 < value < math.inf:  # also refuses NaN
        raise InvalidOptions("uplink", f"{name} is {value}", "a number greater than 0")
    return float(value)


def each(name: str, values: Sequence[float], workers: int) -> tuple[float, ...]:
    """Return one positive number for every worker."""
    if len(values) != workers:
        problem = f"{name} has {len(values)} numbers for {workers} workers"
        raise InvalidOptions("uplink", problem, f"{workers} numbers")
    return tuple(positive(f"{name}[{i}]", value) for i, value in enumerate(values))


def within(name: str, values: Sequence[float], most: Sequence[float]) -> None:
    """Refuse numbers that are not from 0 to the bounds that were promised."""
    if 0 < len(values) == len(most) and min(values) >= 0 and all(map(le, values, most)):
        return  # without a loop of ours: this runs in every slot
    if len(values) != len(most):
        problem = f"{name} has {len(values)} numbers for {len(most)} workers"
        raise InvalidOptions("uplink", problem, f"{len(most)} numbers")
    for worker, (value, limit) in enumerate(zip(values, most, strict=True)):
        if not 0.0 <= value <= limit:  # also refuses NaN
            problem = f"{name} of worker {worker} is {value}"
            raise InvalidOptions("uplink", problem, f"a number from 0 to {limit:g}")
