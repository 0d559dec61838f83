"""Faults on purpose: real ones, at a worker and a step, each carried out once.

| fault | what happens |
| --- | --- |
| `slow` | the worker takes `seconds` longer in that step |
| `stop` | it is stopped by SIGSTOP and continued `seconds` later |
| `kill` | it is killed by SIGKILL, and respawned unless it is planned to `join` next |
| `corrupt` | what it sends is wrong; `how` says in which way |
| `leave` | it is killed before the step starts, and stays away until it joins |
| `join` | it is there from that step on, and not before: a late joiner |

`stop` and `kill` strike right before the worker is given something in that step, so it
answers nothing of it. With `after`, a number of parts, the worker does it to itself
when it has computed so many of the step, and not yet reported the last of them. With
`on` as well, or alone, it does it at a moment that follows:

| `on` | the worker strikes itself |
| --- | --- |
| `held` | when it has reported a sum as closed that nobody has asked for yet |
| `upload` | when it was asked for a sum that is closed, and has not sent it |

`slow` is slept by the worker as it begins with the step, or after so many parts.

`fired` is what really happened, so that a test can compare. A worker that is not asked
for anything in a step, or that is still busy with an older one all the while, is spared
what it would have done to itself.

Any model of delays can be played to live workers as well: `Times` are slept before a
part, and `Times.stretch` after it, in multiples of the seconds that the part took. As
with a part that is computed, nobody wakes a worker up when its part is abandoned,
unless the engine was told to.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from codedgrad.delays import Times
from codedgrad.engines.host.wire import Fired, Said, Sent, Told
from codedgrad.errors import InvalidOptions

if TYPE_CHECKING:
    from typing import Self

CORRUPTIONS = ("nan", "inf", "size", "step", "unknown", "repeat")
"""A value that is not finite, or a message of the wrong length, step or number, or one
that is sent twice."""

MOMENTS = ("held", "upload")
"""When a worker stops or kills itself, other than after a part."""

_DELAYS = "delays"  # marks what was not planned, but follows from delays


class Fault(Struct, frozen=True, gc=False):
    """Some trouble for a worker in a step; see the module's docstring."""

    id: int
    kind: str
    worker: int
    step: int
    after: int = 0
    seconds: float = 0.0
    how: str = ""
    on: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the worker does it to itself."""
        by_signal = self.kind in ("stop", "kill") and self.after == 0 and not self.on
        return not by_signal and self.kind not in ("leave", "join")

    def __str__(self) -> str:
        return f"{self.kind}(worker={self.worker}, step={self.step})"


class FaultPlan:
    """Faults to be carried out, and those that were.

    Attributes:
        planned: In the order they were added.
        fired: In the order they happened, in the last run.

    Example:
        >>> faults = FaultPlan().slow(worker=3, step=5, seconds=2.0).kill(1, step=7)
        >>> [str(fault) for fault in faults.planned]
        ['slow(worker=3, step=5)', 'kill(worker=1, step=7)']
        >>> faults.all_fired
        False
    """

    def __init__(self) -> None:
        self.planned: list[Fault] = []
        self.fired: list[Fault] = []
        self._left: dict[int, list[Fault]] = {}  # by step, those still to come

    @property
    def all_fired(self) -> bool:
        """Whether everything planned has happened, and once."""
        return sorted(f.id for f in self.fired) == [f.id for f in self.planned]

    def slow(self, worker: int, step: int, seconds: float, after: int = 0) -> Self:
        """Let a worker sleep."""
        return self._add("slow", worker, step, after, _positive("slow", seconds))

    def stop(
        self, worker: int, step: int, seconds: float, after: int = 0, on: str = ""
    ) -> Self:
        """Stop a worker by SIGSTOP; SIGCONT follows after `seconds`."""
        long = _positive("stop", seconds)
        return self._add("stop", worker, step, after, long, on=on)

    def kill(self, worker: int, step: int, after: int = 0, on: str = "") -> Self:
        """Kill a worker by SIGKILL."""
        return self._add("kill", worker, step, after, on=on)

    def corrupt(self, worker: int, step: int, how: str = "nan") -> Self:
        """Spoil the first message that a worker sends in a step."""
        if how not in CORRUPTIONS:
            problem = f"corrupt: how = {how!r} is not known"
            raise InvalidOptions("faults", problem, f"one of {list(CORRUPTIONS)}")
        return self._add("corrupt", worker, step, how=how)

    def leave(self, worker: int, step: int) -> Self:
        """Kill a worker before a step starts."""
        return self._add("leave", worker, step)

    def join(self, worker: int, step: int) -> Self:
        """Let a worker come (back) right before a step, and not earlier."""
        return self._add("join", worker, step)

    def _add(
        self,
        kind: str,
        worker: int,
        step: int,
        after: int = 0,
        seconds: float = 0.0,
        how: str = "",
        on: str = "",
    ) -> Self:
        if on not in ("", *MOMENTS):
            problem = f"{kind}: on = {on!r} is not known"
            raise InvalidOptions("faults", problem, f"one of {list(MOMENTS)}")
        for name, value in (("worker", worker), ("step", step), ("after", after)):
            if not isinstance(value, int) or value < 0:
                problem = f"{kind}: {name} = {value!r}"
                raise InvalidOptions("faults", problem, "a whole number, 0 or more")
        fault = Fault(len(self.planned), kind, worker, step, after, seconds, how, on)
        self.planned.append(fault)
        self._left.setdefault(step, []).append(fault)
        return self

    # -- for engines -----------------------------------------------------------------

    def begin(self, workers: int) -> None:
        """Begin a run: nothing has fired yet, and nobody is away by its delays.

        Raises:
            InvalidOptions: If a fault is about a worker that there is not.
        """
        own = [fault for fault in self.planned if fault.how != _DELAYS]
        self.planned = [
            msgspec.structs.replace(fault, id=id_) for id_, fault in enumerate(own)
        ]
        for fault in self.planned:
            if fault.worker >= workers:
                problem = f"{fault}, but there are {workers} workers"
                raise InvalidOptions("faults", problem, f"workers below {workers}")
        self.fired = []
        self._left = {}
        for fault in self.planned:
            self._left.setdefault(fault.step, []).append(fault)

    def note(self, id_: int) -> Fault:
        """Note that a fault is being carried out."""
        fault = self.planned[id_]
        self.fired.append(fault)
        self._left[fault.step].remove(fault)
        return fault

    def for_workers(self) -> list[Fault]:
        """Return what workers do to themselves, and has not happened yet."""
        return [f for faults in self._left.values() for f in faults if f.is_own]

    def due(self, kind: str, step: int, worker: int | None = None) -> list[Fault]:
        """Return what the root is to do in a step, and has not done yet."""
        return [
            fault
            for fault in self._left.get(step, ())
            if fault.kind == kind
            and not fault.is_own
            and worker in (None, fault.worker)
        ]

    def stays_away(self, worker: int, step: int) -> bool:
        """Whether a worker is to stay away: it joins later, or has left for good."""
        moves = sorted(
            (fault.step, fault.id, fault.kind)
            for fault in self.planned
            if fault.worker == worker and fault.kind in ("leave", "join")
        )
        later = [kind for at, _, kind in moves if at > step]
        before = [kind for at, _, kind in moves if at <= step]
        return later[:1] == ["join"] or (not later and before[-1:] == ["leave"])

    def first_absent(self) -> set[int]:
        """Return the workers that are not there in the beginning: late joiners."""
        first: dict[int, Fault] = {}
        for fault in sorted(self.planned, key=lambda f: f.step):
            if fault.kind in ("kill", "leave", "join"):
                first.setdefault(fault.worker, fault)
        return {worker for worker, fault in first.items() if fault.kind == "join"}


def _positive(kind: str, seconds: float) -> float:
    if not 0 < seconds < math.inf:
        problem = f"{kind}: seconds = {seconds}"
        raise InvalidOptions("faults", problem, "a number greater than 0")
    return float(seconds)


def away(plan: FaultPlan, times: Times) -> Times:
    """Plan the absences that infinite times mean; return the times without them.

    As in a simulation: a worker whose times are infinite is lost before that step, and
    joins when they are finite again.
    """
    there = np.isfinite(times.fixed + times.unit)
    for worker in range(there.shape[1]):
        was = True
        for step, is_ in enumerate(there[:, worker].tolist()):
            if was and not is_:
                plan._add("leave", worker, step, how=_DELAYS)
            elif is_ and not was:
                plan._add("join", worker, step, how=_DELAYS)
            was = is_
    fixed, unit = (np.where(there, x, 0.0) for x in (times.fixed, times.unit))
    return Times(fixed=fixed, unit=unit, stretch=times.stretch)


def no_delays(workers: int) -> Times:
    """Return times that add nothing."""
    return Times(fixed=np.zeros((1, workers)), unit=np.zeros((1, workers)))


class Injector:
    """A worker's own faults and delays.

    Args:
        worker: Its number.
        faults: Of all workers, those still to come.
        fixed: Seconds to sleep before the first part of a step, (steps,); repeated.
        part: Seconds to sleep for every part, (steps,); repeated.
        say: Tells the root, at once.
        stretch: How many times as long every part is to take, (steps,); repeated.
            None: as long as it takes.
    """

    def __init__(
        self,
        worker: int,
        faults: Collection[Fault],
        fixed: NDArray[np.float64],
        part: NDArray[np.float64],
        say: Callable[[list[Said]], None],
        stretch: NDArray[np.float64] | None = None,
    ) -> None:
        self._faults = {f.id: f for f in faults if f.worker == worker}
        self._fixed, self._part, self._stretch = fixed, part, stretch
        self._begun = 0.0  # when the part in hand began to be computed
        self._say = say
        self._step = -1

    def before_part(
        self, step: int, computed: int, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """Strike, and sleep as long as the part is to take.

        Args:
            step: The step.
            computed: Parts of it computed so far.
            sleep: Sleeps so many seconds, or until the part is abandoned.
        """
        row = step % len(self._fixed)
        seconds = float(self._part[row])
        if step != self._step:
            self._step = step
            seconds += float(self._fixed[row])
        self._strike(step, computed)
        if seconds > 0:
            sleep(seconds)
        self._begun = time.perf_counter()

    def after_part(
        self, step: int, computed: int, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """Sleep until the part has taken long enough; strike before its report.

        Args:
            step: The step.
            computed: Parts of it computed so far, this one too.
            sleep: Sleeps so many seconds, or until the part is abandoned.
        """
        if self._stretch is not None:
            factor = float(self._stretch[step % len(self._stretch)])
            if factor > 1:
                sleep((factor - 1) * (time.perf_counter() - self._begun))
        self._strike(step, computed)

    def after_saying(
        self, said: Collection[Said], asked: Collection[int], computed: int
    ) -> None:
        """Strike if a sum has been closed that nobody has asked for.

        Args:
            said: What the root was just told.
            asked: Segments whose sums were asked for.
            computed: Parts of the step computed so far.
        """
        if not self._faults:
            return
        closings = [told for told in said if isinstance(told, Told) and told.closed]
        for told in closings:
            if told.done > 0 and told.segment not in asked:
                self._strike_at("held", told.step, computed)

    def before_message(self, step: int, computed: int, said: list[Said]) -> None:
        """Strike before a message is sent, but after what was to be said before it.

        Args:
            step: The step.
            computed: Parts of it computed so far.
            said: What comes before the message; emptied if the root was told.
        """
        if self._due("stop", step, computed, "upload") or self._due(
            "kill", step, computed, "upload"
        ):
            self._say(said.copy())
            said.clear()
            self._strike_at("upload", step, computed)

    def corruption(self, step: int) -> str:
        """Return in which way a message of this step is to be wrong, if at all."""
        for fault in self._due("corrupt", step, 0):
            self._fire(fault)
            return fault.how
        return ""

    def _strike(self, step: int, computed: int) -> None:
        for fault in self._due("slow", step, computed):
            self._fire(fault)
            time.sleep(fault.seconds)
        self._strike_at("", step, computed)

    def _strike_at(self, on: str, step: int, computed: int) -> None:
        for kind, number in (("stop", signal.SIGSTOP), ("kill", signal.SIGKILL)):
            for fault in self._due(kind, step, computed, on):
                self._fire(fault)
                signal.pthread_kill(threading.get_ident(), number)  # this thread first

    def _due(self, kind: str, step: int, computed: int, on: str = "") -> list[Fault]:
        return [
            fault
            for fault in self._faults.values()
            if (fault.kind, fault.step, fault.on) == (kind, step, on)
            and computed >= fault.after
        ]

    def _fire(self, fault: Fault) -> None:
        del self._faults[fault.id]
        self._say([Fired(fault.id)])


def spoil(rows: list[NDArray[Any]], how: str) -> None:
    """Make the numbers of a message wrong."""
    values = {"nan": math.nan, "inf": math.inf}
    for row in rows[:1] if how in values else ():
        row[len(row) // 2] = values[how]


def mangle(sent: Sent, how: str) -> list[Said]:
    """Return what is said instead of a message.

    What cannot be mistaken for the message is said before it; a wrong length is all
    that the root gets to hear.
    """
    replace = msgspec.structs.replace
    match how:
        case "size":
            return [replace(sent, size=sent.size + 1)]
        case "step":
            return [replace(sent, step=sent.step + 1), sent]
        case "unknown":
            return [replace(sent, message=sent.message + 1_000_000), sent]
        case "repeat":
            return [sent, sent]
        case _:
            return [sent]
