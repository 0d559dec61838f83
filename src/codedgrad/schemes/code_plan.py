"""The plan of every scheme that follows a fixed code: send rows, count answers."""

from __future__ import annotations

import math

from codedgrad.codes import Code, decode
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
from codedgrad.core.plan import Ask, Decision, Fail, Finish, Rule, Wait
from codedgrad.core.state import State


class CodePlan:
    """Every worker computes its rows of `B`; the rule says when to decode.

    A worker that joins is given the rows that were lost with it. A message that failed
    is asked for once more. When more is lost than the rule can do without, the plan
    waits for somebody to come back until the deadline of the step.

    Args:
        code: Rows are messages.
        rule: When to stop.
        seat: The worker that plays each worker of the code; by default itself.
        compare: Ask how alike the messages of the sum are.
    """

    def __init__(
        self,
        code: Code,
        rule: Rule,
        seat: tuple[int, ...] | None = None,
        *,
        compare: bool = False,
    ) -> None:
        self._code = code
        self._budget = rule.budget
        self._takes_residual = math.isfinite(rule.budget)
        self._tally = rule.start(code)
        self._seat = seat
        self._compare = compare
        self._row: dict[int, int] = {}  # message id -> row of B, of those under way
        self._id: dict[int, int] = {}  # row of B -> message id, of those heard
        self._owed: dict[int, list[int]] = {}  # worker -> its rows
        self._empty: list[int] = []  # a code of chance may leave a row without parts
        self._retried: set[int] = set()
        self._until = self._end = 0.0
        self._wait = Wait(0.0)

    def first(self, state: State) -> Ask:
        """Give every worker its rows."""
        self._end = state.started + state.deadline.seconds
        self._until = min(state.started + self._budget, self._end)
        self._wait = Wait(self._until)
        for row, owner in enumerate(self._code.owner):
            worker = owner if self._seat is None else self._seat[owner]
            if self._code.rows[row][0]:
                self._owed.setdefault(worker, []).append(row)
            else:
                self._empty.append(row)
                self._tally.hear(row)  # it takes no time to send nothing
        orders = Orders(state)
        for worker, rows in self._owed.items():
            if state.alive[worker]:
                self._assign(orders, worker, rows)
        return orders.ask(self._until)

    def judge(self, state: State, event: Event) -> Decision:
        """Count what arrived, replace what was lost, mind the time."""
        if isinstance(event, Progressed):
            return self._wait  # messages decide
        match event:
            case MessageArrived(_, _, message):
                row = self._row.pop(message)
                self._id[row] = message
                if self._tally.hear(row):
                    return self._finish()
            case MessageFailed(_, worker, message):
                row = self._row.pop(message)
                if row not in self._retried and not state.no_room(worker):
                    self._retried.add(row)
                    return self._ask(state, worker, [row])
            case WorkersLost(workers):
                for message in list(self._row):
                    if state.messages[message].worker in workers:
                        del self._row[message]
            case WorkersJoined(workers):
                orders = Orders(state)
                for worker in workers:
                    rows = [r for r in self._owed.get(worker, ()) if r not in self._id]
                    self._assign(orders, worker, rows)
                if orders:
                    return orders.ask(self._until)
            case TimerFired() if state.now >= self._until:
                return self._finish() if self._takes_residual else self._fail(state)
        if not self._row and not self._lost(state):
            return self._all_is_in(state)
        return self._wait

    def _lost(self, state: State) -> list[int]:
        """Return who is gone and still owes something: waiting for them may help."""
        return [worker for worker in self._owing() if not state.alive[worker]]

    def _owing(self) -> list[int]:
        return sorted(
            worker
            for worker, rows in self._owed.items()
            if any(row not in self._id for row in rows)
        )

    def _assign(self, orders: Orders, worker: int, rows: list[int]) -> None:
        for row in rows:
            parts, coefficients = self._code.rows[row]
            _, message = orders.assign(
                worker, parts, coefficients, upload=True, whole=True
            )
            assert message is not None  # asked for
            self._row[message] = row

    def _ask(self, state: State, worker: int, rows: list[int]) -> Ask:
        orders = Orders(state)
        self._assign(orders, worker, rows)
        return orders.ask(self._until)

    def _all_is_in(self, state: State) -> Decision:
        """Nothing more can come: end now rather than at the budget or the deadline."""
        if self._takes_residual:
            return self._finish()
        return self._fail(state, "every message is in, and they do not decode")

    def _finish(self) -> Finish:
        decoding = decode(self._code, [*self._id, *self._empty])
        weights = tuple((self._id[row], a) for row, a in decoding.weights)
        return Finish(tuple(sorted(weights)), decoding.residual, self._compare)

    def _fail(self, state: State, why: str = "") -> Fail:
        owing, lost = self._owing(), self._lost(state)
        late = [worker for worker in owing if state.alive[worker]]
        if not why:
            why = f"not decodable after {state.deadline}"
        parts = [why]
        if lost:
            parts.append(f"lost workers {lost}")
        if late:
            parts.append(f"late workers {late}")
        if 0 < len(owing) < len(state.alive):
            parts.append(f"a tolerance of {len(owing)} would have survived")
        return Fail("; ".join(parts))
