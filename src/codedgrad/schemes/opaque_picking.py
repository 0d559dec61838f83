r"""Which arm to follow, from what each would have taken.

1. Losses are in units of the median worker, and discounted by 0.9 a step. An arm must
   beat the present one by 2 %.
2. One that asks for less need only be as good as the best, within 1 %. So nothing is
   asked for twice where that gains nothing, and no arm is followed that loses to
   `uncoded`.
3. If a code ties with the best of the others, it is taken if $f s < \pi \, (\tau - f)$,
   with $\pi$ the share of steps in which somebody is still out at $\tau + 1$ medians.
4. With a code few are waited for, and what the others take is not seen: whoever would
   not be late any more is not noticed. So after 20 steps one is done with the best of
   the other arms; if that takes longer than the code does, the next one after twice as
   many, up to 80.
5. The guard: if 20 steps of other arms took 1 % longer than `uncoded` would have, it is
   `uncoded` for 50 steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from codedgrad.schemes.opaque_replay import Arm

__all__ = ["Picker"]

_DISCOUNT = 0.9
_BETTER = 0.98  # times the loss of the present arm: what another must not exceed
_AS_GOOD = 1.01  # times the least loss: what one that asks for less must not
_LOOK, _SELDOM = 20, 80  # steps of a code, until another arm is tried
_WATCHED = 20  # steps, over which an arm may not be worse than uncoded
_WORSE = 1.01
_REST = 50  # steps without an arm, if it was


class Picker:
    """Losses of all arms, and the one that is followed.

    Args:
        arms: By name, those that ask for less first; `uncoded` is one of them.

    Attributes:
        losses: Discounted, by arm.
        present: The arm that is followed.
    """

    def __init__(self, arms: Mapping[str, Arm]) -> None:
        self.losses = dict.fromkeys(arms, 0.0)
        self.present = "uncoded"
        self._arms = arms
        self._weight = 0.0  # discounted steps
        self._out = 0.0  # those with somebody out at tau + 1
        self._every = _LOOK
        self._since = 0  # steps of a code
        self._is_look = False
        self._watched: deque[tuple[float, float]] = deque(maxlen=_WATCHED)
        self._rest = 0

    # -- what is learnt --------------------------------------------------------------

    def learn(self, ends: Mapping[str, float], own: float, is_out: bool) -> None:
        """Learn from a step; seconds are in units of the median worker.

        Args:
            ends: When the step would have ended, by arm.
            own: When it has.
            is_out: Whether somebody would have been out long after the others.
        """
        for name, end in ends.items():
            self.losses[name] = _DISCOUNT * self.losses[name] + end
        self._weight = _DISCOUNT * self._weight + 1.0
        self._out = _DISCOUNT * self._out + is_out
        if self._is_look:
            usual = self.losses[self.present] / self._weight
            self._every = _LOOK if own <= usual else min(2 * self._every, _SELDOM)
            self._since, self._is_look = 0, False
        elif self._rest:
            self._rest -= 1
        elif self.present != "uncoded":
            self._guard(own, ends["uncoded"])

    def _guard(self, own: float, uncoded: float) -> None:
        self._watched.append((own, uncoded))
        took, other = map(sum, zip(*self._watched, strict=True))
        if len(self._watched) == _WATCHED and took > _WORSE * other:
            self._rest, self.present = _REST, "uncoded"
            self._watched.clear()

    # -- what is followed ------------------------------------------------------------

    def pick(self, share: float, tau: float) -> Arm:
        """Return the arm of the next step.

        Args:
            share: Of the time, that grows with the load.
            tau: When an even list is late, in units of the median of all.
        """
        if self._rest:
            return self._arms["uncoded"]
        best = self._best(share, tau)
        if self.losses[best] >= _BETTER * self.losses[self.present]:
            best = self.present
        enough = _AS_GOOD * self.losses[best]
        self.present = next(
            name for name, loss in self.losses.items() if name == best or loss <= enough
        )
        if not self._arms[self.present].tolerance:
            self._every, self._since = _LOOK, 0
            return self._arms[self.present]
        self._since += 1
        self._is_look = self._since > self._every
        followed = self._least(codes=False) if self._is_look else self.present
        return self._arms[followed]

    def _best(self, share: float, tau: float) -> str:
        """Return the arm of the least loss; if a code ties, as the rule says."""
        other = self._least(codes=False)
        if not any(arm.tolerance for arm in self._arms.values()):
            return other
        code = self._least(codes=True)
        one, two = self.losses[code], self.losses[other]
        if max(one, two) * _BETTER >= min(one, two):
            return code if one < two else other
        often = self._out / self._weight
        pays = share * self._arms[code].tolerance < often * (tau - share)
        return code if pays else other

    def _least(self, codes: bool) -> str:
        some: Iterable[str] = (
            name for name, arm in self._arms.items() if bool(arm.tolerance) == codes
        )
        return min(some, key=self.losses.__getitem__)
