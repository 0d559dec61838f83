r"""The plan of one step in two stages.

```text
          lists of parts         at the checkpoint
          for those who start    what is left is coded
  start -----------------------> checkpoint ----------------> stage 2 ----> Finish
             |                     |    ^                      |    ^
             v                     v    |                      v    |
     all are in: Finish     cuts are closed     what is lost or silent is coded again
```

1. Stage 1 is not coded. A list is given as segments of one part, so that a part under
   way at the checkpoint is not lost; where a worker holds fewer sums, as longer ones,
   which are cut. Its sum is one message, sent when all of it is done.
2. At the checkpoint a late worker is asked for the sum of what it has closed, and goes
   on. What is left is counted from closed segments and heard messages alone. If nobody
   is free to help by then, half of the workers are waited for.
3. The rest is coded over the free workers that hold it: see `second_stage`.
4. A block that no helper can solve any more is coded again as soon as somebody is
   free, whatever late workers may still deliver; and so are blocks that stay unsolved
   for long, with workers who owe nothing.
5. Where blocks were coded again, everything heard is tried together, by least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from codedgrad.core.events import (
    Event,
    MessageArrived,
    MessageFailed,
    Progressed,
    TimerFired,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.orders import Orders
from codedgrad.core.plan import Ask, Decision, Fail, Finish, Wait
from codedgrad.core.state import State
from codedgrad.schemes.two_stage.block_codes import Block
from codedgrad.schemes.two_stage.first_stage import Lists, Opening, Staging
from codedgrad.schemes.two_stage.second_stage import Helpers
from codedgrad.schemes.two_stage.still_to_hear import Needs, all_heard

_PULSES = 16  # looks for silent workers per `scale` of the deadline
_MARGIN = 1.25  # times what a stage should take, until the next checkpoint
_USUAL = 1.5  # times what half of the workers took: where nothing else is known
_CLOSING = 0.1  # of the time so far: how long cuts are waited for
_SILENT = 12.5  # times what a stage should take, until its helpers are called silent
_ENOUGH = 0.6  # fraction of the budget by which the first stage ends at the latest


class StagedPlan:
    """Two stages, and whatever it takes after that.

    Args:
        staging: What is the same in every step.
        opening: How this one is to begin.
    """

    def __init__(self, staging: Staging, opening: Opening) -> None:
        self._staging = staging
        self._window = opening.window
        self._pace = opening.pace
        self._needs = Needs()
        self._lists = Lists(staging, opening, self._needs)
        self._helpers = Helpers(staging, opening.tolerance, self._needs)
        self._is_first = True  # until the checkpoint
        self._closing: list[int] | None = None  # segments that were cut
        self._checkpoints = staging.checkpoints  # still to come
        self._is_mixed = False  # blocks overlap with what was asked for before
        self._alarm = self._end = self._limit = self._pulse = self._look = 0.0
        self._said = 0.0  # the moment that was waited for last

    def first(self, state: State) -> Ask:
        """Give those who start their lists."""
        deadline, window = state.deadline, self._window
        budget = self._staging.rule.budget
        self._end = state.started + deadline.seconds
        self._limit = state.started + budget
        self._pulse = self._look = deadline.scale / _PULSES
        window = min(self._pulse if window is None else window, _ENOUGH * budget)
        self._alarm = state.started + window
        orders = Orders(state)
        self._lists.begin(state, orders)
        self._said = self._until
        return orders.ask(self._said)

    def judge(self, state: State, event: Event) -> Decision:
        """Take note, and see whether that ends the step or a stage."""
        match event:
            case Progressed(closed=False):
                return self._wait(state)
            case MessageArrived(_, _, message):
                if not self._lists.hear(state, message, self._is_first):
                    self._needs.hear(message)
                if (end := self._finished(state)) is not None:
                    return end
            case MessageFailed(_, worker, message):
                self._helpers.failed[worker] += 1
                self._lists.fail(message)
            case WorkersLost(workers):
                for worker in workers:
                    self._lists.lose(worker)
            case TimerFired():
                self._said = 0.0
                return self._timer(state)
        if self._is_first:
            return self._stage_one(state)
        changed = isinstance(event, WorkersLost | WorkersJoined | MessageFailed)
        if changed or self._helpers.is_short:
            return self._mend(state)
        return self._wait(state)

    # -- time ------------------------------------------------------------------------

    @property
    def _until(self) -> float:
        return min(self._alarm, self._limit, self._end)

    def _wait(self, state: State, orders: Orders | None = None) -> Decision:
        """Give orders, if there are any, and wait; unless the time is up."""
        until = self._until
        if until <= state.now and until != self._said:
            return self._timer(state)  # an event has overtaken the end of the step
        self._said = until
        return orders.ask(until) if orders else Wait(until)

    def _timer(self, state: State) -> Decision:
        if state.now >= self._end:
            found = all_heard(state, exact=True)
            return self._fail(state) if found is None else Finish(*found)
        if state.now >= self._limit:
            found = all_heard(state, exact=False)
            assert found is not None  # whatever it is, it is taken
            return Finish(*found)
        if state.now < self._alarm:
            return self._wait(state)
        return self._checkpoint(state) if self._is_first else self._again(state)

    # -- stages ----------------------------------------------------------------------

    def _stage_one(self, state: State) -> Decision:
        if self._closing is not None:
            known = [state.segments[id_] for id_ in self._closing]
            if all(k.closed or k.gone for k in known):
                return self._checkpoint(state)
            return self._wait(state)
        if not self._lists.running:  # nobody is waited for
            return self._checkpoint(state)
        elapsed = state.now - state.started
        is_half = self._lists.whole >= len(self._lists.running)
        if self._window is None and is_half and elapsed > 0:
            self._alarm = min(self._alarm, state.started + _USUAL * elapsed)
        return self._wait(state)

    def _checkpoint(self, state: State) -> Decision:
        orders = Orders(state)
        if self._closing is None and (cuts := self._lists.cuts(state)):
            for known in cuts:
                orders.cut(known.segment.worker, known.segment.id)
            self._closing = [known.segment.id for known in cuts]
            elapsed = max(state.now - state.started, self._pulse / _PULSES)
            self._alarm = state.now + _CLOSING * elapsed
            return self._wait(state, orders)
        able = self._helpers.at_checkpoint(state, self._lists)
        is_free = self._limit == math.inf  # or what is done by now must be asked for
        if not able and self._lists.running and self._staging.reuse and is_free:
            self._window = self._closing = None
            self._alarm = state.now + self._pulse
            return self._wait(state)
        self._is_first = False
        left = self._lists.take_stock(state, orders)
        self._is_mixed = self._lists.is_mixed
        return self._code(state, orders, left, able)

    def _mend(self, state: State) -> Decision:
        """Code again what nothing under way can solve, if there is somebody to ask."""
        hopeless = self._needs.hopeless(state)
        self._helpers.is_short = bool(hopeless)
        able = self._helpers.idle(state) if hopeless else []
        wanted = [b for b in hopeless if self._helpers.can_help(b, able)]
        if wanted:
            return self._code_again(state, wanted, able)
        return self._wait(state)

    def _again(self, state: State) -> Decision:
        """Code again what has not been solved for too long."""
        able = self._helpers.idle(state)
        unsolved = self._needs.unsolved()
        wanted = [b for b in unsolved if self._helpers.can_help(b, able)]
        if wanted:
            return self._code_again(state, wanted, able)
        self._alarm = state.now + self._look
        return self._wait(state)

    def _code_again(
        self, state: State, wanted: Sequence[Block], able: Sequence[int]
    ) -> Decision:
        self._is_mixed = True
        left = [part for block in wanted for part in self._needs.withdraw(block)]
        return self._code(state, Orders(state), sorted(left), able)

    def _code(
        self, state: State, orders: Orders, left: Sequence[int], able: Sequence[int]
    ) -> Decision:
        most = self._helpers.hand_out(state, orders, left, able)
        self._checkpoints -= 1
        pace = max(self._pace or 0.0, self._lists.pace)
        margin = _MARGIN if self._checkpoints > 0 else _SILENT
        self._look = min(margin * most * pace, self._pulse) or self._pulse
        self._alarm = state.now + self._look
        return self._wait(state, orders)

    # -- the end ---------------------------------------------------------------------

    def _finished(self, state: State) -> Finish | None:
        if self._needs.are_met:
            return _sum(self._needs.weights)
        if (weights := self._lists.weights(state)) is not None:
            return _sum(weights)
        found = all_heard(state, exact=True) if self._is_mixed else None
        return None if found is None else Finish(*found)

    def _fail(self, state: State) -> Fail:
        said = [f"not all parts were heard after {state.deadline}"]
        lost = [worker for worker, alive in enumerate(state.alive) if not alive]
        late = sorted({m.worker for m in state.messages.values() if m.pending})
        if lost:
            said.append(f"lost workers {lost}")
        if late:
            said.append(f"late workers {late}")
        copies = min(map(len, self._staging.holders))
        if copies < len(state.alive):
            said.append(f"more copies than {copies} of every part would have helped")
        return Fail("; ".join(said))


def _sum(weights: dict[int, float]) -> Finish:
    return Finish(tuple(sorted((m, a) for m, a in weights.items() if a != 0.0)), 0.0)
