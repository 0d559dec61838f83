r"""A fair uplink: who may send how much, slot by slot, from queues that are kept short.

Of $M$ workers on one link, worker $i$ gets the share $\tau_i$ of a slot. What is sought
is the largest $\sum_i \log(1 + \beta \bar D_i)$, with $\bar D_i$ the mean of the bits
admitted in a slot, such that no queue grows without limit and no battery runs empty.
Drift plus penalty finds it without knowing how rates and offers are distributed. The
state is $Q_i$ (data), $H_i$ (what fairness owes) and $E_i$ (energy), all 0 at first:

1. what is aimed at: $\gamma_i = V / H_i - 1 / \beta$, clipped to $[0, A_{\max}]$;
2. admission: $D_i$ is all that is offered if $Q_i \le H_i$, else nothing;
3. the slot goes to the largest weight $Q_i \rho_i + (E_i - \theta_i) P_i$ if positive,
   for as long as it has data; the rest goes to the next one;
4. a battery takes all the energy on offer while $E_i < \theta_i$, then nothing;
5. $Q_i \leftarrow Q_i - \tau_i \rho_i + D_i$,
   $H_i \leftarrow \max(H_i + \gamma_i - D_i, 0)$,
   $E_i \leftarrow E_i - P_i \tau_i + \text{harvest}_i$.

Then, in every slot and whatever the rates and offers, $H_i \le V \beta + A_{\max}$ and
$Q_i \le V \beta + 2 A_{\max}$; the utility is within $O(1/V)$ of the best possible (see
`bounds.gap_bound`). The slot goes to who has data to send: with batteries an
empty queue may have a positive weight, and time given to it would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codedgrad.errors import InvalidOptions
from codedgrad.uplink.batteries import Batteries, Battery
from codedgrad.uplink.slots import DataQueues, Queued, Slot, positive


class Uplink(Queued):
    r"""Decides by virtual queues who may send how much.

    Args:
        workers: How many share the link.
        V: What utility weighs against short queues. The utility lost falls as $1 / V$,
            queues and delays grow as $V$.
        beta: Of $\log(1 + \beta x)$. The larger, the fairer; a small one may give
            nothing to the slowest. About 10 / (smallest useful rate) is good.
        most: $A_{\max}$, bits that a worker may offer in a slot.
        peaks: $r_{\max, i}$, the highest rate of every worker, in bits per slot.
        battery: None if energy does not matter.
        shared: False gives all of a slot to one worker, even if it needs less.
        wait_most: Slots after which a worker with data goes first, before any weight.
            None waits for its weight: while others keep offering, the last bits of a
            worker weigh little and may stay for ever. Costs at most the share
            `workers / wait_most` of the time, and no bound of queues or batteries.

    Example:
        >>> uplink = Uplink(2, V=10.0, beta=1.0, most=4.0, peaks=[1.0, 8.0])
        >>> uplink.slot(offered=[4.0, 4.0], rates=[1.0, 8.0]).admitted
        (4.0, 4.0)
        >>> slot = uplink.slot(offered=[4.0, 4.0], rates=[1.0, 8.0])
        >>> slot.shares, slot.sent
        ((0.5, 0.5), (0.5, 4.0))
        >>> uplink.queues, uplink.most_queue
        ((3.5, 0.0), 18.0)
    """

    def __init__(
        self,
        workers: int,
        *,
        V: float,
        beta: float = 1.0,
        most: float,
        peaks: Sequence[float],
        battery: Battery | None = None,
        shared: bool = True,
        wait_most: int | None = None,
    ) -> None:
        self._data = DataQueues(workers, most, peaks, shared)
        self._V = positive("V", V)
        self._beta = positive("beta", beta)
        self._virtual = [0.0] * workers
        if wait_most is not None and wait_most < 1:
            problem = f"wait_most is {wait_most}"
            raise InvalidOptions("uplink", problem, "1 or more slots, or None")
        self._wait_most = wait_most
        self._waited = [0] * workers
        self._cells: Batteries | None = None
        if battery is not None:
            self._cells = Batteries(battery, self._data.peaks, self.most_queue)

    @property
    def virtual(self) -> tuple[float, ...]:
        """$H_i$, by how many bits each worker was admitted less than aimed at."""
        return tuple(self._virtual)

    @property
    def batteries(self) -> tuple[float, ...]:
        """$E_i$, energy by worker; empty without batteries."""
        return tuple(self._cells.levels) if self._cells else ()

    @property
    def perturbation(self) -> tuple[float, ...]:
        r"""$\theta_i$, by worker; empty without batteries."""
        return self._cells.theta if self._cells else ()

    @property
    def most_virtual(self) -> float:
        r"""What no $H_i$ exceeds: $V \beta + A_{\max}$."""
        return self._V * self._beta + self.most

    @property
    def most_queue(self) -> float:
        r"""What no $Q_i$ exceeds: $V \beta + 2 A_{\max}$."""
        return self.most_virtual + self.most  # in this order: exact in floats too

    def slot(
        self,
        offered: Sequence[float],
        rates: Sequence[float],
        harvest: Sequence[float] | None = None,
    ) -> Slot:
        """Decide the next slot, and let it pass; see `Policy.slot`."""
        data, cells = self._data, self._cells
        data.check(offered, rates)
        limits: list[float] | None = None
        taken: tuple[float, ...] = ()
        if cells is not None:
            taken = cells.harvest(cells.check(harvest))
            limits = cells.limits()
        elif harvest is not None:
            problem = "harvest is given, and there is no battery"
            raise InvalidOptions("uplink", problem, "battery=Battery(...)")
        line = self._line(rates, limits)
        slot = data.serve(line, rates, limits, self._admit(offered), taken)
        if cells is not None:
            cells.update(slot)
        if self._wait_most is not None:
            self._wait(slot)
        return slot

    def _admit(self, offered: Sequence[float]) -> tuple[float, ...]:
        """Return what enters the queues, and bring the virtual ones up to date."""
        enough, slack = self._V * self._beta, 1.0 / self._beta
        most, bits = self._data.most, self._data.bits
        admitted = [0.0] * len(bits)
        for worker, owed in enumerate(self._virtual):
            if owed <= 0.0:
                aim = most
            elif owed >= enough:
                aim = 0.0
            else:
                aim = min(max(self._V / owed - slack, 0.0), most)
            if bits[worker] <= owed:
                admitted[worker] = float(offered[worker])
            self._virtual[worker] = max(owed + aim - admitted[worker], 0.0)
        return tuple(admitted)

    def _line(
        self, rates: Sequence[float], limits: Sequence[float] | None
    ) -> list[int]:
        """Return who may send, the largest weight first.

        Of equals, who has waited longer, where that is counted (`wait_most`); then by
        number.
        """
        bits, cells = self._data.bits, self._cells
        weights = {i: bits[i] * rates[i] for i in self._data.waiting(rates)}
        if cells is not None:
            weights = {i: w + cells.weight(i) for i, w in weights.items()}
        line = [worker for worker, weight in weights.items() if weight > 0.0]
        line.sort(key=lambda i: (weights[i], self._waited[i]), reverse=True)
        return line if self._wait_most is None else self._hurry(line, weights, limits)

    def _hurry(
        self, line: list[int], waiting: Iterable[int], limits: Sequence[float] | None
    ) -> list[int]:
        """Put first who waited too long, unless its battery might not last."""
        most, waited = self._wait_most or 0, self._waited
        first = [
            worker
            for worker in waiting
            if waited[worker] >= most and (limits is None or limits[worker] >= 1.0)
        ]
        first.sort(key=waited.__getitem__, reverse=True)
        return first + [worker for worker in line if worker not in first]

    def _wait(self, slot: Slot) -> None:
        """Count the slots in which each worker had data and sent none."""
        for worker, bits in enumerate(self._data.bits):
            was_empty = bits <= slot.admitted[worker]
            if was_empty or slot.sent[worker] > 0.0:
                self._waited[worker] = 0
            else:
                self._waited[worker] += 1
