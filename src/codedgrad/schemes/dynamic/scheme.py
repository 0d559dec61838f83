"""Clusters formed anew in every step (GC-DC). Buyukates et al., arXiv 2103.01206."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad import codes
from codedgrad.codes import Code
from codedgrad.codes.arguments import one_of, whole
from codedgrad.codes.decoders import Bools, Floats
from codedgrad.core.history import History
from codedgrad.core.plan import KnownSteps, Rule, Traits
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.code_plan import CodePlan
from codedgrad.schemes.dynamic.cluster_assignment import (
    by_rows,
    exact,
    exact_slots,
    greedy,
    tiers,
)
from codedgrad.schemes.dynamic.grid import Grid, grid
from codedgrad.schemes.dynamic.straggler_states import (
    STATES,
    Oracle,
    StateForecast,
    States,
)
from codedgrad.schemes.fixed_code import well_conditioned
from codedgrad.schemes.options import in_all, rule_named, title

Seats: TypeAlias = tuple[int, ...]
Spread: TypeAlias = Callable[[Grid, StateForecast], Seats]

_SPREADS: dict[str, dict[str, Spread]] = {
    "slot": {
        "rows": lambda g, f: by_rows(g, _graded(f)),
        "exact": lambda g, f: exact_slots(g, f.slow),
    },
    "cluster": {
        "greedy": lambda g, f: greedy(g, f.slow),
        "exact": lambda g, f: exact(g, f.slow),
        "tiers": lambda g, f: tiers(g, f.scores),
    },
}
"""How seats are found, by storage and name."""


@dataclass(frozen=True)
class Dynamic:
    """The codewords stay, and who computes which changes with who is expected slow.

    Attributes:
        name: As on the command line, with its options.
        code: Clusters of codewords, fixed for a run.
        rule: When a step may end.
        grid: Which clusters each worker may join.
        storage: `slot` or `cluster`: what a worker may compute of a cluster it joins.
        spread: How seats are found.
        states: Who is expected to be slow.
    """

    name: str
    code: Code
    rule: Rule
    grid: Grid
    storage: str
    spread: str
    states: States
    exact = True  # it never gives a sum with a residual

    @property
    def workers(self) -> int:
        """How many workers it needs."""
        return self.code.workers

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.code.parts

    @cached_property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts of every codeword that a worker may be given."""
        rows, held = self.grid.rows, []
        for worker, clusters in enumerate(self.grid.joins):
            own = worker // self.grid.clusters
            slots = [own] if self.storage == "slot" else range(rows)
            words = [cluster * rows + slot for cluster in clusters for slot in slots]
            held.append({part for word in words for part in self.code.placement[word]})
        return tuple(tuple(sorted(parts)) for parts in held)

    @property
    def load(self) -> int:
        """Parts that a worker computes in a step, of the more that it stores."""
        return self.code.load

    @property
    def tolerance(self) -> int | None:
        """Late workers survived exactly, even if they all meet in one cluster."""
        return self.code.tolerance

    @property
    def traits(self) -> Traits:
        """An oracle must be told, and then its steps are known beforehand."""
        oracle = self.states if isinstance(self.states, Oracle) else None
        known = KnownSteps(self.code, self.rule, seats=self.all_seats)
        return Traits(
            tell=self.told if oracle is not None and oracle.slow is None else None,
            load=self.load,
            fewest=self.code.fewest,
            rule=str(self.rule),
            budget=self.rule.budget,
            steps=known if oracle is not None else None,
        )

    def plan(self, step: int, history: History) -> CodePlan:
        """Return the plan of a step, with clusters formed for it."""
        forecast = self.states.forecast(step, history).without(history.alive)
        return CodePlan(self.code, self.rule, self.seats(forecast))

    def seats(self, forecast: StateForecast) -> Seats:
        """Return the worker of every codeword."""
        return _SPREADS[self.storage][self.spread](self.grid, forecast)

    def told(self, slow: Bools, typical: Floats) -> Dynamic:
        """Return the same scheme, if it is an oracle knowing the truth of a run.

        Args:
            slow: Who is slow in which step, (steps, workers).
            typical: Mean seconds for the uncoded load given that, (steps, workers).
        """
        if not isinstance(self.states, Oracle):
            return self
        return replace(self, states=Oracle(self.states.lag, slow, typical))

    def all_seats(self, alive: Bools) -> NDArray[np.intp]:
        """Return the seats of all steps, (steps, workers), of an oracle that was told.

        Equal forecasts are seated once.

        Args:
            alive: Who is there in which step, (steps, workers).
        """
        history, known = History(self.workers), dict[bytes, Seats]()
        seats = np.empty(alive.shape, dtype=np.intp)
        for step, there in enumerate(alive):
            forecast = self.states.forecast(step, history).without(there)
            key = forecast.slow.tobytes() + forecast.scores.tobytes()
            if key not in known:
                known[key] = self.seats(forecast)
            seats[step] = known[key]
        return seats

    def __str__(self) -> str:
        return self.name


def dynamic(
    workers: int,
    clusters: int,
    tolerance: int,
    *,
    reach: int | None = None,
    state: str | States = "hidden",
    storage: str = "slot",
    spread: str | None = None,
    shifts: str = "common",
    seed: int = 0,
    rule: str = "decodable",
    pieces: int = 1,
    parts: int | None = None,
) -> Dynamic:
    """Clusters formed anew every step, so that who has been slow is spread evenly.

    As `clustered`, but a worker stores the parts of REACH clusters and joins the one
    in which it is needed. The load and the messages are those of `clustered`.

    Source: GC-DC. Buyukates et al., arXiv 2103.01206.

    Args:
        workers: Number of workers.
        clusters: How many clusters; must divide `workers`.
        tolerance: Late workers survived in every cluster.
        reach: Clusters a worker may join; by default 3, or as many as there are.
        state: Who is slow: `hidden` (learnt from times), `late`, `speed`, and
            `oracle` or `oracle-previous` in simulations.
        storage: `slot` (a worker takes one slot of any cluster it joins; stores reach x
            (tolerance + 1) parts) or `cluster` (any slot; reach x cluster size).
        spread: `rows` or `exact` for slots; `exact`, `greedy` or `tiers` for clusters.
        shifts: `common`, or `row` (each row of workers with random ones of its own).
        seed: Of those.
        rule: `decodable`, or `threshold` (count in every cluster, as the papers do).
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    workers = whole("dynamic", "workers", workers, least=1)
    clusters = whole("dynamic", "clusters", clusters, least=1, most=workers)
    reach = min(3, clusters) if reach is None else reach
    layout = grid(workers, clusters, reach, shifts, seed)
    most = layout.rows - 1
    tolerance = whole("dynamic", "tolerance", tolerance, least=0, most=most)
    inner = well_conditioned(layout.rows, tolerance)
    total, said = in_all("dynamic", workers, pieces, parts)
    code = codes.recut(codes.clustered(inner, clusters), total)
    storage = one_of("dynamic", "storage", storage, list(_SPREADS))
    states = _states(state)
    usual = _usual_spread(storage, states)
    spread = usual if spread is None else spread
    spread = one_of("dynamic", "spread", spread, list(_SPREADS[storage]))
    name = title(
        "dynamic",
        clusters=clusters,
        tolerance=tolerance,
        reach=None if reach == min(3, clusters) else reach,
        state=None if state == "hidden" else state,
        storage=None if storage == "slot" else storage,
        spread=None if spread == usual else spread,
        shifts=None if shifts == "common" else shifts,
        seed=seed,
        rule=rule,
        **said,
    )
    return Dynamic(name, code, rule_named(rule), layout, storage, spread, states)


def _states(given: str | States) -> States:
    if isinstance(given, str):
        return STATES[one_of("dynamic", "state", given, list(STATES))]
    if isinstance(given, States):
        return given
    raise InvalidScheme(f"dynamic: state = {given!r}", f"one of {list(STATES)}")


def _usual_spread(storage: str, states: States) -> str:
    if storage == "slot":
        return "rows"
    two_valued = isinstance(states, Oracle) or states == STATES["late"]
    return "exact" if two_valued else "tiers"


def _graded(forecast: StateForecast) -> Floats:
    """Return scores that can be added up: as they are, from 0 up to 1; 1 for inf."""
    scores = forecast.scores
    gone = np.isinf(scores)
    low = float(scores.min())
    high = float(scores.max(where=~gone, initial=low))
    if not high > low:  # those who are there are all alike, or there are none
        return gone.astype(np.float64)
    return np.where(gone, 1.0, (np.where(gone, high, scores) - low) / (high - low))
