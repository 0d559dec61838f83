r"""Which lists to give to workers that give one answer a call: the past, replayed.

| arm | lists | what is not in is shared out |
| --- | --- | --- |
| `uncoded` | even | when late, and after 1.5 times the median at least |
| `uneven(guess)` | by what everybody is expected to take | when late |
| `two_stage` | even | when late: median + 3 x 1.4826 median deviations |
| `two_stage(0.75)` | even | when three quarters of the lists are usually in |
| `repeated(s)` | each for s + 1 workers, slow ones with fast ones | when late |

Every step is replayed with every arm, as that would have been planned before it, and
`opaque_picking` says which one to follow. The first five steps are `uncoded`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from codedgrad.codes.decoders import Floats
from codedgrad.core.history import Record
from codedgrad.schemes.opaque_lists import Lists, Places, ring
from codedgrad.schemes.opaque_past import Guesses, Past
from codedgrad.schemes.opaque_picking import Picker
from codedgrad.schemes.opaque_replay import Arm, Costs, Went, arms_for, late, went

__all__ = ["Arms", "Choice"]

_FIRST = 5  # steps before the first choice
_RECENT = 5  # steps whose times say when lists are late


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
        parts: Of a step.
        copies: Workers that may be asked for a part.
        holders: Who that is, by part: its owner, and those before it on the ring; or
            everybody. If it is not given, it is found from the others.
        share: Of the time, that grows with the load, until that is known.
    """

    workers: int
    parts: int
    copies: int
    holders: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)
    share: float = 0.5

    def __post_init__(self) -> None:
        if not self.holders:
            found = ring(self.workers, self.parts, self.copies)
            object.__setattr__(self, "holders", found)

    @property
    def places(self) -> Places:
        """Who may be asked for which part."""
        return Places(self.workers, self.parts, self.copies, self.holders)

    def start(self, workers: int) -> _Chooser:
        """Return a tracker that knows nothing yet."""
        return _Chooser(self)


class _Chooser:
    """What is known of everybody's times, and what follows from that.

    Attributes:
        picker: What every arm would have taken, and which one is followed.
    """

    def __init__(self, recipe: Arms) -> None:
        self._places = recipe.places
        self._past = Past(recipe.workers, self._places.unit, recipe.share)
        self._guesses = Guesses(recipe.workers)
        self._arms = arms_for(self._places)
        self._firsts: dict[str, deque[Floats]] = {}  # of lists in, by kind of lists
        self._seen = 0  # steps
        self.picker = Picker(self._arms)

    @property
    def costs(self) -> Costs:
        """What calls cost, as far as is known."""
        shares = self._past.shares
        return Costs(shares.share, shares.again, self._places.unit)

    def update(self, record: Record) -> None:
        """Replay a step with every arm."""
        if not record.combined:
            return  # it may have been called off at any moment
        x, likely = self._past.learn(record)
        seen = ~np.isnan(x)
        there = np.flatnonzero(seen & np.array(record.alive)).tolist()
        if not there:
            return
        self._replay(there, np.where(seen, x, np.median(x[there])), record.seconds)
        self._guesses.learn(likely)
        self._seen += 1

    def _replay(self, there: Sequence[int], x: Floats, own: float) -> None:
        """Find when a step would have ended in which everybody took `x` seconds."""
        costs, guesses = self.costs, self._guesses.all()
        replayed, ends = dict[str, Went](), dict[str, float]()
        for name, arm in self._arms.items():
            if arm.kind not in replayed:
                replayed[arm.kind] = went(self._lists(arm, there, guesses), x, costs)
            told = replayed[arm.kind]
            tau = arm.tau(self._known(arm.kind, told.firsts))
            ends[name] = told.end(tau, x, costs, self._places)
        even, usual = replayed["even"].firsts, float(np.median(x[list(there)]))
        is_out = even.max() > late(self._known("even", even)) + usual
        scaled = {name: end / usual for name, end in ends.items()}
        self.picker.learn(scaled, own / usual, bool(is_out))
        for kind, told in replayed.items():
            recent = self._firsts.setdefault(kind, deque(maxlen=_RECENT))
            recent.append(told.firsts)

    def _known(self, kind: str, now: Floats) -> Floats:
        """Return when lists of a kind were in, in steps before; now, in the first."""
        recent = self._firsts.get(kind)
        return np.concatenate(recent) if recent else now

    def choice(self, step: int, alive: Sequence[bool]) -> Choice:
        """Return how a step is to begin, with whoever is there."""
        there = [worker for worker, is_there in enumerate(alive) if is_there]
        arm, tau = self._arms["uncoded"], None
        if self._seen >= _FIRST:
            even = np.concatenate(self._firsts["even"])
            arm = self.picker.pick(
                self.costs.share, late(even) / float(np.median(even))
            )
            tau = arm.tau(np.concatenate(self._firsts[arm.kind]))
        guesses = self._guesses.all()
        lists = self._lists(arm, there, guesses) if there else Lists((), ())
        return Choice(
            arm=arm.name,
            lists=lists,
            probes=self._probes(step, there, lists),
            tau=tau,
            seconds=tuple(guesses.get(arm.kind, guesses["quick"]).tolist()),
            costs=self.costs,
        )

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
        own = {w: self._places.block(w) for w in there if w not in asked}
        return tuple((w, block[step % len(block)]) for w, block in own.items() if block)
