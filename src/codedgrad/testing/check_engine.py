"""`check_engine`: does this engine do what drivers and schemes rely on?

Real workers, real clocks, real signals. Nothing here depends on how fast they are.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from codedgrad.core import (
    Assign,
    Capabilities,
    Command,
    Event,
    MessageArrived,
    MessageFailed,
    Order,
    Patience,
    Progressed,
    Scheme,
    WorkerFreed,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.engines import Driver, Engine, FaultPlan
from codedgrad.errors import StepGivenUp, Violation, WrongSum
from codedgrad.jobs import VectorLayout, WorkerJob
from codedgrad.schemes import coded_reduce, cyclic, fractional, uncoded
from codedgrad.testing.comparing import Comparing
from codedgrad.testing.everything import Everything
from codedgrad.testing.gathering import Gathering
from codedgrad.testing.invariants import Invariants
from codedgrad.trace import Entry, Trace, replay

_WORKERS = 4
_LENGTH = 30_000  # of the parameters; long enough to be caught while it is written
_LAYOUT = VectorLayout(parameters=_LENGTH, gradient=_LENGTH)
_PATIENCE = Patience(least=30.0, first=30.0)
_SLOW = 0.15  # seconds
_FOREVER = 1e6  # seconds
_TRIES = 50  # steps in which a worker is made slow
_GONE = 20.0  # seconds; only what hangs takes so long
_RIGHT = "the sum is that of the part gradients"


def check_engine(make: Callable[[], Engine], *, survives_loss: bool = True) -> None:
    """Raise `Violation` unless the engine keeps the duties in `engines.engine`.

    Args:
        make: Makes a new engine, for 4 workers that may each hold at least 3 sums. With
            20 or more it is also led through cuts, copies and messages of several sums.
        survives_loss: Whether a worker may be killed and comes back.

    Example:
        >>> from codedgrad.engines import Local
        >>> check_engine(lambda: Local(open_segments=20))  # doctest: +SKIP
    """
    _check_sums(make)
    _check_gathering(make, survives_loss)
    _check_lagging(make)
    _check_freed(make)
    _check_refusals(make)
    if survives_loss:
        _check_losses(make)
    _check_close(make)


def _check_sums(make: Callable[[], Engine]) -> None:
    compared = Comparing(cyclic(_WORKERS, 2))
    for scheme in (uncoded(_WORKERS), fractional(_WORKERS, 1), compared):
        _check(make(), scheme, FaultPlan(), slow=())
    engine = make()
    engine.close()
    if engine.capabilities.rows_per_worker >= 20:
        everything = Everything(_WORKERS, each=4, copies=3)
        _check(make(), everything, FaultPlan(), slow=(1,), steps=6)


def _check_gathering(make: Callable[[], Engine], survives_loss: bool) -> None:
    """Workers add up what others send them; whoever dies is sent it once more."""
    try:
        _check(make(), Gathering(), FaultPlan(), slow=(3,), steps=6)
        if survives_loss:
            chain = coded_reduce(_WORKERS, children=1, tolerance=0)
            faults = FaultPlan().kill(0, step=1, after=1).kill(1, step=3)
            _check(make(), chain, faults.kill(3, step=5), slow=(0,), steps=7)
            _expect_fired(faults)
    except Violation as error:
        if error.rule != _RIGHT:
            raise
        rule = "a message that gathers holds its own sums and the weighted ones"
        raise Violation(f"{rule} of others", error.detail) from None


def _check_lagging(make: Callable[[], Engine]) -> None:
    """Some workers lag behind for steps, one never answers; nobody waits for them."""
    faults = FaultPlan().stop(2, step=1, seconds=_FOREVER)
    for step in range(0, 30, 10):
        faults.slow(1, step, _SLOW)
    try:
        _check(make(), fractional(_WORKERS, 3), faults, slow=(3,), steps=30)
    except StepGivenUp as error:
        rule = "a step does not wait for a worker it can do without"
        raise Violation(rule, str(error)) from None


def _check_freed(make: Callable[[], Engine]) -> None:
    """A late worker says how long its part took, which no sum holds."""
    engine, scheme, faults = make(), fractional(_WORKERS, 3), FaultPlan()
    if engine.capabilities.interrupts_part:
        engine.close()
        return
    for step in range(_TRIES):  # the first ones may be over before it has begun
        faults.slow(1, step, _SLOW)
    told: list[WorkerFreed] = []

    def watch(event: Event, commands: list[Command]) -> None:
        if isinstance(event, WorkerFreed) and event.worker == 1:
            told.append(event)

    with tempfile.TemporaryDirectory() as folder:
        try:
            _start(engine, scheme, faults, (), Path(folder, "torn"))
            driver = Driver(engine, scheme, _LAYOUT, patience=_PATIENCE, watch=watch)
            deadline, step = time.monotonic() + _GONE, 0
            while time.monotonic() < deadline:
                if any(each.seconds >= _SLOW for each in told):
                    return
                _step(driver, scheme, step)
                step += 1
        finally:
            engine.close()
    rule = "a worker that finishes a part of a step that has ended says so"
    raise Violation(rule, f"{faults.fired}, and {told}")


def _check_refusals(make: Callable[[], Engine]) -> None:
    faults = FaultPlan()
    for step, how in enumerate(("nan", "inf", "size", "step", "unknown", "repeat")):
        faults.corrupt(step % _WORKERS, step, how)
    _check(make(), uncoded(_WORKERS), faults, slow=(), steps=8)
    _expect_fired(faults)


def _check_losses(make: Callable[[], Engine]) -> None:
    faults = FaultPlan().join(3, step=2)
    faults.kill(0, step=6).kill(1, step=6).kill(2, step=6)  # one more than tolerated
    faults.leave(2, step=8).join(2, step=10)
    heard = _check(make(), cyclic(_WORKERS, 2), faults, slow=(3,), steps=14)
    _expect_fired(faults)
    for worker, first, last in ((3, 0, 2), (2, 8, 10)):
        if any(worker in heard[step] for step in range(first, last)):
            raise Violation("who is away is not heard", f"worker {worker}")
    faults = FaultPlan().kill(2, step=1).kill(3, step=3, after=1).kill(2, step=4)
    _check(make(), uncoded(_WORKERS, pieces=2), faults, slow=(), steps=6)
    _expect_fired(faults)  # all are needed, so who died was back by then


def _expect_fired(faults: FaultPlan) -> None:
    if not faults.all_fired:
        missing = [str(f) for f in faults.planned if f not in faults.fired]
        raise Violation("faults are carried out as planned", f"not {missing}")


def _check_close(make: Callable[[], Engine]) -> None:
    engine = make()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "torn")
        _start(engine, uncoded(_WORKERS), FaultPlan(), (), log)
        engine.close()
        engine.close()
        _check_gone(log)


def _check(
    engine: Engine,
    scheme: Scheme,
    faults: FaultPlan,
    slow: Sequence[int],
    steps: int = 12,
) -> list[tuple[int, ...]]:
    """Run some steps, check every sum and every duty; return who was heard."""
    invariants = Invariants(scheme, engine.capabilities)
    entries = list[Entry]()

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))
        invariants(event, commands)

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "torn")
        log.touch()
        watched = _Watched(engine, scheme.workers)
        try:
            _start(engine, scheme, faults, slow, log)
            driver = Driver(watched, scheme, _LAYOUT, patience=_PATIENCE, watch=watch)
            heard = [_step(driver, scheme, step) for step in range(steps)]
        finally:
            engine.close()
        torn = log.read_text().splitlines()
        _check_gone(log)
    if torn:
        rule = "an order is carried out on the parameters of its step"
        raise Violation(rule, f"{len(torn)} times not; first: {torn[0]}")
    difference = replay(Trace(driver.header(), tuple(entries)), scheme)
    if difference is not None:
        raise Violation("a live run replays", str(difference))
    return heard


def _start(
    engine: Engine, scheme: Scheme, faults: FaultPlan, slow: Sequence[int], log: Path
) -> None:
    fixed = np.zeros((1, scheme.workers))
    fixed[0, list(slow)] = _SLOW / 3
    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)  # to import it takes workers a second
    try:
        engine.start(
            partial(_Probe, _LENGTH, str(log)),
            _LAYOUT,
            scheme.workers,
            faults=faults,
            delays=Times(fixed=fixed, unit=np.zeros_like(fixed)),
            parts=scheme.parts,
        )
    finally:
        cloudpickle.unregister_pickle_by_value(here)


def _step(driver: Driver, scheme: Scheme, step: int) -> tuple[int, ...]:
    parameters = np.full(_LENGTH, float(step))
    try:
        sum_ = driver.step(parameters)
    except WrongSum as error:
        raise Violation(_RIGHT, f"{scheme.name}, {error}") from None
    parameters[:] = -1.0  # whoever reads it from here on reads the wrong one
    _check_sum(sum_.vector, scheme, step)
    return sum_.report.heard


def _check_gone(log: Path) -> None:
    """Look whether the processes that ran the job are still there."""
    deadline = time.monotonic() + _GONE
    for path in log.parent.glob("process-*"):
        while _is_alive(int(path.name.removeprefix("process-"))):
            if time.monotonic() > deadline:
                raise Violation("after close no process is left", path.name)
            time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _check_sum(vector: NDArray[Any], scheme: Scheme, step: int) -> None:
    expected = np.zeros(_LENGTH + 2)
    for part in range(scheme.parts):
        expected += _sums(_LENGTH, part, step)
    error = np.abs(vector - expected).max() / np.abs(expected).max()
    if not error <= 1e-10:
        detail = f"{scheme.name}, step {step}: off by {error:.3g} of its largest"
        raise Violation(_RIGHT, detail)


def _sums(length: int, part: int, step: int) -> NDArray[np.float64]:
    """Return what a part's message is to hold: different for every part and step."""
    gradient = np.sin(np.arange(length) * (part + 1) + step)
    return np.concatenate([gradient, [float(part), 1.0]])


class _Probe:
    """A job that looks whether its parameters are those of its step, all the while."""

    def __init__(self, length: int, log: str) -> None:
        self.layout = VectorLayout(parameters=length, gradient=length)
        self._log = log
        Path(log).with_name(f"process-{os.getpid()}").touch()

    def part(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool = False,
    ) -> None:
        for _ in range(3):
            if parameters.min() != step or parameters.max() != step:
                with open(self._log, "a") as log:
                    log.write(f"part {part}, step {step}: {parameters[[0, -1]]}\n")
            time.sleep(0.001)
        sums = coefficient * _sums(len(parameters), part, step)
        np.copyto(out, out + sums if add else sums)


class _Watched:
    """An engine, with somebody who looks at what it hands out."""

    def __init__(self, engine: Engine, workers: int) -> None:
        self._engine = engine
        self._last = -math.inf
        self._alive = [True] * workers
        self._done: dict[tuple[int, int], int] = {}  # (step, segment) -> parts merged
        self._closed: set[tuple[int, int]] = set()
        self._asked: dict[tuple[int, int], int] = {}  # (step, segment) -> worker
        self._sum = np.zeros(0), np.zeros(0)  # the last one, as copied and as it is

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    def start(
        self,
        make: Callable[[], WorkerJob],
        layout: VectorLayout,
        workers: int,
        **options: Any,
    ) -> None:
        self._engine.start(make, layout, workers, **options)

    def now(self) -> float:
        now = self._engine.now()
        if now < self._last:
            raise Violation("time does not go back", f"{now} after {self._last}")
        self._last = now
        return now

    def publish(
        self,
        step: int,
        parameters: NDArray[Any],
        changed: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self._engine.publish(step, parameters, changed)

    def give(self, order: Order) -> None:
        if isinstance(order, Assign):
            self._asked[order.step, order.segment.id] = order.segment.worker
        self._engine.give(order)

    def finish(self, step: int) -> None:
        self._engine.finish(step)

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        first = self._engine.combine(weights).copy()
        second = self._engine.combine(weights)
        self._same(first, second, f"{weights}")
        self._sum = first, second
        return first

    def _same(self, first: NDArray[Any], second: NDArray[Any], detail: str) -> None:
        if not np.array_equal(first, second, equal_nan=True):
            raise Violation("what was handed out does not change", detail)

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        products = self._engine.compare(messages)
        self._same(*self._sum, f"by comparing {messages}")
        rows = {}
        for message in sorted(messages):
            rows[message] = self._engine.combine([(message, 1.0)])[:_LENGTH].copy()
        expected = [(i, j, float(rows[i] @ rows[j])) for i in rows for j in rows]
        expected = [each for each in expected if each[0] <= each[1]]
        largest = max(abs(product) for *_, product in expected)
        if [p[:2] for p in products] != [p[:2] for p in expected] or not np.allclose(
            [p[2] for p in products], [p[2] for p in expected], atol=1e-10 * largest
        ):
            rule = "what is compared are the gradients that are added up"
            raise Violation(rule, f"{products}, not {expected}")
        return products

    def close(self) -> None:
        self._engine.close()

    def next_event(self, timeout: float) -> Event | None:
        event = self._engine.next_event(timeout)
        if event is None:
            return None
        if event.at < self._last:
            raise Violation("time does not go back", f"{event} after {self._last}")
        self._last = event.at
        match event:
            case WorkersLost(workers) | WorkersJoined(workers):
                joined = isinstance(event, WorkersJoined)
                for worker in workers:
                    if self._alive[worker] == joined:
                        raise Violation("lives begin and end in turn", f"{event}")
                    self._alive[worker] = joined
            case Progressed() | MessageArrived() | MessageFailed():
                if not self._alive[event.worker]:
                    raise Violation("a loss is the last word of a life", f"{event}")
                self._in_order(event)
        return event

    def _in_order(self, event: Progressed | MessageArrived | MessageFailed) -> None:
        if isinstance(event, Progressed):
            key = event.step, event.segment
            if self._asked.get(key) != event.worker:
                raise Violation("workers report what they were given", f"{event}")
            before = self._done.get(key, 0)
            grew = event.done > before or (event.closed and event.done == before)
            if key in self._closed or not grew:
                raise Violation("reports come in order", f"{event} after {before}")
            self._done[key] = event.done
            if event.closed:
                self._closed.add(key)
        elif isinstance(event, MessageArrived):
            for segment, done in event.cuts:
                key = event.step, segment
                if self._done.setdefault(key, done) != done:
                    rule = "a message comes after what it holds was reported"
                    raise Violation(rule, f"{structs.asdict(event)}")
                self._closed.add(key)  # nothing more is to be said about it
