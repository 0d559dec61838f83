r"""Which lists to give to workers that give one answer a call: the past, replayed.

| arm | lists | what is not in is shared out |
| --- | --- | --- |
| `uncoded` | even | when late, and after 1.5 times the median at least |
| `uneven(guess)` | by what everybody is expected to take | when late |
| `two_stage` | even | when late: median + 3 x 1.4826 median deviations |
| `two_stage(0.75)` | even | when three quarters of the lists are usually in |
| `repeated(s)` | each for s + 1 workers, slow ones with fast ones | when late |

Every step is replayed with every arm, as that would have been planned before it. Losses
are in units of the median worker, and discounted. An arm must beat the present one by
2 %. One that asks for less need only be as good as the present one, within 1 %: so
nothing is asked for twice where that gains nothing, and no arm is followed that loses
to `uncoded`. If a code ties with the best of the others, it is taken if
$f s < \pi \, (\tau - f)$, with $\pi$ the share of steps in which somebody is still out
at $\tau + 1$ medians.

The guard: if 20 steps of other arms took 1 % longer than `uncoded` would have, it is
`uncoded` for 50 steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from codedgrad.codes.decoders import Floats
from codedgrad.core.history import Record
from codedgrad.schemes.opaque_lists import Lists, Places
from codedgrad.schemes.opaque_past import Guesses, Past
from codedgrad.schemes.opaque_replay import Arm, Costs, Went, arms_for, late, went

__all__ = ["Arms", "Choice"]

_FIRST = 5  # steps before the first choice
_RECENT = 5  # steps whose times say when lists are late
_DISCOUNT = 0.9  # of losses, a step
_BETTER = 0.98  # times the loss of the present arm: what another must not exceed
_AS_GOOD = 1.01  # the same for one that asks for less
_WATCHED = 20  # steps, over which an arm may not be worse than uncoded
_WORSE = 1.01
_REST = 50  # steps without an arm, if it was


@dataclass(frozen=True, slots=True)
class Choice:
    """How a step is to begin.

    Attributes:
        arm: What was chosen, in a word.
        lists: Who is asked for what.
        probes: (worker, part) of those without a list: asked, and never waited for.
        tau: Seconds until what is not in is shared out; None: by when half are in.
        seconds: That each should take for the uncoded load.
        costs: What calls cost.
    """

    arm: str
    lists: Lists
    probes: tuple[tuple[int, int], ...]
    tau: float | None
    seconds: tuple[float, ...]
    costs: Costs


@dataclass(frozen=True, slots=True)
class Arms:
    """A recipe for a tracker that chooses. `holders` are not hashed, there are many.

    Attributes:
        workers: How many there are, $n$.
        parts: Of a step, a multiple of $n$.
        copies: Workers that may be asked for a part; the other attributes say which.
        holders: Who may be asked for a part, by part: its owner, and those before it
            on the ring; or everybody.
        share: Of the time, that grows with the load, until that is known.
    """

    workers: int
    parts: int
    copies: int
    holders: tuple[tuple[int, ...], ...] = field(compare=False, repr=False)
    share: float = 0.5

    @property
    def places(self) -> Places:
        """Who may be asked for which part."""
        return Places(self.workers, self.parts, self.copies, self.holders)

    def start(self, workers: int) -> _Chooser:
        """Return a tracker that knows nothing yet."""
        return _Chooser(self)


class _Chooser:
    """Losses of all arms, and what is known of everybody's times.

    Attributes:
        losses: Discounted, by arm.
        present: The arm that is followed.
    """

    def __init__(self, recipe: Arms) -> None:
        self._places = recipe.places
        self._past = Past(recipe.workers, self._places.unit, recipe.share)
        self._guesses = Guesses(recipe.workers)
        self._arms = arms_for(self._places)
        self._firsts: dict[str, deque[Floats]] = {}  # by kind of lists
        self._seen = 0  # steps
        self._out = 0.0  # discounted steps with somebody out at tau + 1
        self._watched: deque[tuple[float, float]] = deque(maxlen=_WATCHED)
        self._rest = 0
        self.losses = dict.fromkeys(self._arms, 0.0)
        self.present = "uncoded"

    @property
    def costs(self) -> Costs:
        """What calls cost, as far as is known."""
        shares = self._past.shares
        return Costs(shares.share, shares.again, self._places.unit)

    # -- what is learnt --------------------------------------------------------------

    def update(self, record: Record) -> None:
        """Replay a step with every arm."""
        if not record.combined:
            return  # it may have been called off at any moment
        x, likely = self._past.learn(record)
        seen = ~np.isnan(x)
        there = np.flatnonzero(seen & np.array(record.alive)).tolist()
        if not there:
            return
        usual = float(np.median(x[there]))
        ends = self._replay(there, np.where(seen, x, usual))
        for name, end in ends.items():
            self.losses[name] = _DISCOUNT * self.losses[name] + end / usual
        self._guard(record.seconds, ends["uncoded"])
        self._guesses.learn(likely)
        self._seen += 1

    def _replay(self, there: Sequence[int], x: Floats) -> dict[str, float]:
        """Return when the step would have ended, by arm."""
        costs, guesses = self.costs, self._guesses.all()
        replayed, ends = dict[str, Went](), dict[str, float]()
        for name, arm in self._arms.items():
            if arm.kind not in replayed:
                replayed[arm.kind] = went(self._lists(arm, there, guesses), x, costs)
            told = replayed[arm.kind]
            tau = arm.tau(self._known(arm.kind, told.firsts))
            ends[name] = told.end(tau, x, costs, self._places)
        last, median = float(replayed["even"].firsts.max()), float(np.median(x))
        tau = late(self._known("even", replayed["even"].firsts))
        self._out = _DISCOUNT * self._out + (last > tau + median)
        for kind, told in replayed.items():
            recent = self._firsts.setdefault(kind, deque(maxlen=_RECENT))
            recent.append(told.firsts)
        return ends

    def _known(self, kind: str, now: Floats) -> Floats:
        """Return when lists of a kind were in, in steps before; now, in the first."""
        recent = self._firsts.get(kind)
        return np.concatenate(recent) if recent else now

    def _guard(self, own: float, uncoded: float) -> None:
        if self._rest:
            self._rest -= 1
        elif self.present != "uncoded" and self._seen >= _FIRST:
            self._watched.append((own, uncoded))
            if len(self._watched) == _WATCHED:
                took, other = map(sum, zip(*self._watched, strict=True))
                if took > _WORSE * other:
                    self._rest, self.present = _REST, "uncoded"
                    self._watched.clear()

    # -- what is chosen --------------------------------------------------------------

    def choice(self, step: int, alive: Sequence[bool]) -> Choice:
        """Return how a step is to begin, with whoever is there."""
        there = [worker for worker, is_there in enumerate(alive) if is_there]
        is_known = self._seen >= _FIRST
        if is_known and not self._rest:
            self.present = self._pick()
        arm, guesses = self._arms[self.present], self._guesses.all()
        lists = self._lists(arm, there, guesses) if there else Lists((), ())
        seconds = guesses.get(arm.kind, guesses["quick"])
        return Choice(
            arm=arm.name,
            lists=lists,
            probes=self._probes(step, there, lists),
            tau=arm.tau(np.concatenate(self._firsts[arm.kind])) if is_known else None,
            seconds=tuple(seconds.tolist()),
            costs=self.costs,
        )

    def _pick(self) -> str:
        losses, best = self.losses, self._best()
        if losses[best] >= _BETTER * losses[self.present]:
            best = self.present
        enough = _AS_GOOD * losses[best]
        # those that ask for less come first
        return next(n for n, loss in losses.items() if n == best or loss <= enough)

    def _best(self) -> str:
        """Return the arm of the least loss; between a code and others the rule says."""
        codes = [name for name, arm in self._arms.items() if arm.tolerance]
        others = [name for name, arm in self._arms.items() if not arm.tolerance]
        other = min(others, key=self.losses.__getitem__)
        if not codes:
            return other
        code = min(codes, key=self.losses.__getitem__)
        one, two = self.losses[code], self.losses[other]
        if max(one, two) * _BETTER < min(one, two):
            return code if self._code_pays(self._arms[code].tolerance) else other
        return code if one < two else other

    def _code_pays(self, tolerance: int) -> bool:
        firsts = np.concatenate(self._firsts["even"])
        tau = late(firsts) / float(np.median(firsts))
        often = self._out * (1.0 - _DISCOUNT) / (1.0 - _DISCOUNT**self._seen)
        share = self.costs.share
        return share * tolerance < often * (tau - share)

    def _lists(
        self, arm: Arm, there: Sequence[int], guesses: Mapping[str, Floats]
    ) -> Lists:
        if arm.kind == "even":
            return self._places.even(there)
        some, costs = list(there), self.costs
        if arm.tolerance:
            return self._places.repeated(there, guesses["quick"][some], arm.tolerance)
        x = guesses[arm.kind][some]
        return self._places.uneven(there, (1.0 - costs.share) * x, costs.part * x)

    def _probes(
        self, step: int, there: Sequence[int], lists: Lists
    ) -> tuple[tuple[int, int], ...]:
        """Return a part of its own for everybody without a list, in turn."""
        asked = {worker for workers in lists.workers for worker in workers}
        unit = self._places.unit
        return tuple(
            (worker, self._places.block(worker)[step % unit])
            for worker in there
            if worker not in asked
        )
