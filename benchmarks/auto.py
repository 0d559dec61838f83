"""How close `auto` comes to the best possible, in virtual time.

    python benchmarks/auto.py --json auto.json    # in full: an hour on two idle cores
    python benchmarks/auto.py --ring              # few copies instead: a quarter of it
    python benchmarks/auto.py --quick             # few seeds, 8 workers, for a look
    python benchmarks/auto.py --regimes exp,SE --workers 32 --pieces 8 --shares .1

A worker takes x seconds for the uncoded load: (1 - f) x before its first part and f x
in proportion to the load. Every regime is drawn once for a seed and a number of
workers, so all f, all parts and all schemes meet the same x.

- calm: 1 s and 2 % of the absolute value of a normal number; the base of all but exp
- exp: half a second and an exponential of the same mean
- ge10: ten times as slow, 4 % of the time, in spells of ten steps on average
- het: workers of four makes, 1, 1.5, 2 and 3 times as slow, by turns
- pause: with probability .02 a pause of .5 to 5 s before the first part
- spike: with probability .02 slow by a factor of 3 to 20, for one step
- dead: one worker is lost after a third of the run, which is noticed at once
- AR, SE: recorded, with workers of their own; every row once, so there is one seed

An order takes half a percent of the median x to its worker and a report as much back,
and workers stop at once. The bounds are those of whoever knows all x beforehand and
pays neither: with whole parts, in the simulator's own rounding, or fluid.

Rivals are in units of the fluid bound. uncoded and two_stage (everything everywhere)
run on the same machine. Uneven loads follow a moving average of log x, wait for all,
and are told f, who is lost, and everybody's x after each step. Codes are fractional
(frc) and cyclic (cyc) with tolerance 1 to 4, and 2 or 4 static clusters of the latter:
the best of them in hindsight, without any latency, which favours them.

x does not change within a step, so whoever has reported two parts is known exactly. Of
noise inside a step, which real workers have, this says nothing.

Aims: within 1.03 of the whole-part bound at f = 1 and 1.05 below; within 1.002 of
uncoded where all are well; work up to 1.05 of the parts at f = 1; with `--ring`, that
looking early is better than waiting for the first idle worker. Exit code 1 if one is
missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.bounds import clairvoyant, clairvoyant_whole, ring_bound
from codedgrad.core import Command, Event, Order
from codedgrad.delays import (
    Chain,
    Classes,
    Dead,
    Delays,
    Pauses,
    Replay,
    ShiftedExponential,
    Spikes,
    Sticky,
    Times,
    traces,
)
from codedgrad.errors import CodedgradError
from codedgrad.schemes import CodedScheme, build, clustered, cyclic, fractional
from codedgrad.schemes.auto.earliest_end import level, trimmed
from codedgrad.sim import Machine, run_events
from codedgrad.sim.arrays.codes import step_seconds

Floats: TypeAlias = NDArray[np.float64]
Missed: TypeAlias = list[str]

SYNTHETIC = ("calm", "exp", "ge10", "het", "pause", "spike", "dead")
RECORDED = tuple(sorted(traces()))
MAKES = (1.0, 1.5, 2.0, 3.0)
LATENCY = 0.005  # of the median x, one way
BESIDE = 8  # parts a worker, where others are compared
WEIGHT = 0.3  # of the last log x in uneven loads
COLD = 5  # first steps, in which nothing is known
TAKEN_APART = ("exp", "ge10", "spike", "het")
RING = 3  # copies
UNEVEN = "uneven"  # a scheme of this file
AIMS = {True: 1.03, False: 1.05}  # times the whole-part bound, at f = 1 and below
CALM, WORK = 1.002, 1.05
NO_WORSE = 1.002  # times waiting, that looking early may take in any one regime
ROUNDING = 1e-6  # of a step


# -- regimes -------------------------------------------------------------------------


@dataclass(frozen=True)
class Calm:
    """A second and a little more."""

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        unit = 1.0 + 0.02 * np.abs(rng.standard_normal((steps, workers)))
        return Times(np.zeros_like(unit), unit)


def law(regime: str, rng: np.random.Generator, steps: int, workers: int) -> Delays:
    match regime:
        case "calm":
            return Calm()
        case "exp":
            return ShiftedExponential(floor=0.5, mean=0.5)
        case "ge10":  # slow for a share of .04
            return Chain(Calm(), Sticky(factor=10, enter=0.1 * 0.04 / 0.96, leave=0.1))
        case "het":
            makes = [MAKES[w % len(MAKES)] for w in range(workers)]
            return Chain(Calm(), Classes(makes))
        case "pause":
            return Chain(Calm(), Pauses(0.02, 0.5, 5.0))
        case "spike":
            return Chain(Calm(), Spikes(0.02, 3.0, 20.0))
        case "dead":
            return Chain(Calm(), Dead(int(rng.integers(workers)), steps // 3))
    return Replay.read(regime)


def drawn(regime: str, workers: int, steps: int, seed: int) -> Times:
    """Return x as seconds that grow with the load, and pauses as fixed ones."""
    number = (*SYNTHETIC, *RECORDED).index(regime)
    child = np.random.SeedSequence(seed, spawn_key=(number, workers))
    rng = np.random.default_rng(child)
    delays = law(regime, rng, steps, workers)
    if isinstance(delays, Replay):
        steps = min(steps, len(delays.seconds))
    return delays.sample(rng, steps, workers)


def shared(times: Times, share: float) -> Times:
    """Return times of which only a share grows with the load."""
    fixed = np.full_like(times.unit, np.inf)
    there = np.isfinite(times.unit)
    np.multiply(times.unit, 1.0 - share, out=fixed, where=there)
    return Times(times.fixed + fixed, share * times.unit)


# -- runs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What is played."""

    regime: str
    workers: int
    pieces: int
    share: float

    @property
    def parts(self) -> int:
        return self.workers * self.pieces

    def __str__(self) -> str:
        return f"{self.regime:<6} {self.workers:>3} {self.pieces:>3} {self.share:>4.3g}"


@dataclass(frozen=True)
class Run:
    """A scheme in a case, once."""

    case: Case
    scheme: str
    seed: int
    steps: int
    latency: float = LATENCY
    drain: bool = False

    @property
    def cost(self) -> tuple[int, bool]:
        """What to sort by, so that long runs do not come last."""
        return self.case.parts, self.scheme.startswith("auto")


@dataclass(frozen=True)
class Played:
    """How a run went; arrays of shape (steps,)."""

    seconds: Floats
    whole: Floats
    fluid: Floats
    work: float  # of the parts
    messages: float  # a worker and step
    orders: float  # a worker and step
    trip: float  # seconds, one way


def play(run: Run) -> Played:
    case = run.case
    x = drawn(case.regime, case.workers, run.steps, run.seed)
    times = shared(x, case.share)
    whole = clairvoyant_whole(times.fixed, times.part(case.parts), case.parts)
    fluid = np.minimum(clairvoyant(times.fixed, times.unit), whole)
    trip = run.latency * float(np.median(x.unit[np.isfinite(x.unit)]))
    if run.scheme == UNEVEN:
        seconds = uneven(case, x, times) + 2.0 * trip
        return Played(seconds, whole, fluid, 1.0, 1.0, 1.0, trip)
    orders = 0

    def count(event: Event, commands: list[Command]) -> None:
        nonlocal orders
        orders += sum(isinstance(command, Order) for command in commands)

    machine = Machine(drain=run.drain, latency=trip)
    scheme = build(run.scheme, case.workers)
    found = run_events(scheme, times, machine, watch=count)
    return Played(
        found.seconds,
        whole,
        fluid,
        float(found.work.mean()) / scheme.parts,
        float(found.messages.mean()) / case.workers,
        orders / (times.steps * case.workers),
        trip,
    )


def uneven(case: Case, x: Times, times: Times) -> Floats:
    """Return the seconds of loads by a moving average, when all are waited for."""
    seen, part = x.fixed + x.unit, times.part(case.parts)
    mean = np.zeros(case.workers)  # of log x; at first all are alike
    seconds = np.empty(times.steps)
    for step, now in enumerate(seen):
        there = np.isfinite(now)
        expected = np.exp(mean)
        free = np.where(there, (1.0 - case.share) * expected, np.inf)
        pace = case.share * expected / case.pieces
        room = level(free, pace, case.parts, np.zeros(0)).room
        loads = trimmed(room, free, pace, case.parts)
        used = loads > 0
        ends = times.fixed[step, used] + loads[used] * part[step, used]
        seconds[step] = ends.max()
        weight = 1.0 if step == 0 else WEIGHT
        mean[there] += weight * (np.log(now[there]) - mean[there])
    return seconds


@cache
def codes(workers: int) -> dict[str, CodedScheme]:
    """Return the codes there are for so many workers."""
    found: dict[str, CodedScheme] = {}
    families: dict[str, Callable[[int, int], CodedScheme]] = {
        "frc": fractional,
        "cyc": cyclic,
        "2 x cyc": lambda n, s: clustered(n, 2, s),
        "4 x cyc": lambda n, s: clustered(n, 4, s),
    }
    for name, family in families.items():
        for tolerance in range(1, 5):
            try:
                found[f"{name} {tolerance}"] = family(workers, tolerance)
            except CodedgradError:  # there is none, or it loses too many digits
                continue
    return found


def best_code(case: Case, steps: int, seeds: int) -> tuple[str, float]:
    """Return the code that takes the fewest seconds in a case, and how many."""
    runs = [
        shared(drawn(case.regime, case.workers, steps, seed), case.share)
        for seed in range(seeds)
    ]
    found = {
        name: sum(float(step_seconds(code, times).sum()) for times in runs)
        for name, code in codes(case.workers).items()
    }
    return min(found.items(), key=lambda item: item[1], default=("-", np.inf))


def play_all(runs: Iterable[Run], jobs: int) -> dict[Run, Played]:
    """Play runs, each once, in processes of their own."""
    todo = sorted(set(runs), key=lambda run: run.cost, reverse=True)
    found: dict[Run, Played] = {}
    began, is_shown = time.monotonic(), sys.stderr.isatty()
    with ProcessPoolExecutor(jobs) as pool:
        waiting = {pool.submit(play, run): run for run in todo}
        try:
            for future in as_completed(waiting):
                found[waiting[future]] = future.result()
                if is_shown:
                    spent = f"{len(found)} of {len(todo)} runs"
                    spent += f", {time.monotonic() - began:.0f} s"
                    print(f"\r{spent}", end="", file=sys.stderr, flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if is_shown:
        print(file=sys.stderr)
    return found


# -- sums over seeds -----------------------------------------------------------------


def over(played: Sequence[Played], bound: str = "whole", first: int = 0) -> float:
    """Return the seconds of all runs over their bounds, from step `first` on."""
    spent = sum(float(each.seconds[first:].sum()) for each in played)
    return spent / sum(float(getattr(each, bound)[first:].sum()) for each in played)


def error(played: Sequence[Played]) -> float:
    """Return the standard error of `over`; NaN for one run."""
    if len(played) < 2:
        return float("nan")
    spent = np.array([each.seconds.sum() for each in played])
    bound = np.array([each.whole.sum() for each in played])
    gaps = spent - spent.sum() / bound.sum() * bound
    return float(gaps.std(ddof=1) / len(played) ** 0.5 / bound.mean())


def number(value: float, form: str = ".3f") -> str:
    if np.isnan(value):
        return "-"
    return "never" if np.isinf(value) else f"{value:{form}}"


def cells(values: Iterable[float], width: int = 9, form: str = ".3f") -> str:
    return "".join(f"{number(value, form):>{width}}" for value in values)


# -- what was asked for --------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """How much of it."""

    seeds: int
    steps: int
    workers: tuple[int, ...]
    pieces: tuple[int, ...]
    regimes: tuple[str, ...]
    shares: tuple[float, ...]
    beside: int  # seeds of rivals, at most
    beside_at: tuple[float, ...]  # shares at which there are rivals
    apart: int  # seeds of what is taken apart, at most
    taken: tuple[str, ...]

    def seeds_of(self, case: Case, most: int | None = None) -> range:
        """Return seeds; what was recorded has one."""
        if case.regime in RECORDED:
            return range(1)
        return range(self.seeds if most is None else min(most, self.seeds))

    def runs(self, case: Case, scheme: str, most: int | None = None) -> list[Run]:
        return [
            Run(case, scheme, seed, self.steps) for seed in self.seeds_of(case, most)
        ]

    def cases(self, pieces: Sequence[int], shares: Sequence[float]) -> list[Case]:
        return [
            Case(regime, n, c, f)
            for regime in self.regimes
            for n in workers_of(regime, self.workers)
            for c in pieces
            for f in shares
        ]


FULL = Size(
    seeds=20,
    steps=100,
    workers=(8, 32),
    pieces=(8, 16),
    regimes=(*SYNTHETIC, *RECORDED),
    shares=(1.0, 0.5, 0.1),
    beside=20,
    beside_at=(1.0, 0.5, 0.1),
    apart=5,
    taken=TAKEN_APART,
)
QUICK = Size(
    seeds=2,
    steps=40,
    workers=(8,),
    pieces=(8,),
    regimes=SYNTHETIC,
    shares=(1.0, 0.5, 0.1),
    beside=1,
    beside_at=(1.0,),
    apart=1,
    taken=("exp",),
)


@cache
def workers_of(regime: str, given: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of workers a regime is played with."""
    if regime in RECORDED:
        return (Replay.read(regime).seconds.shape[1],)
    return given


def auto_of(case: Case, options: str = "") -> str:
    return f"auto(pieces={case.pieces}{options})"


# -- the scoreboard ------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """What `auto` did in a case, over all seeds."""

    regime: str
    workers: int
    pieces: int
    share: float
    seeds: int
    whole: float  # seconds over the bound with whole parts
    error: float  # of that
    worst: float  # seed
    fluid: float
    work: float
    messages: float
    orders: float
    uncoded: float  # seconds over uncoded ones; NaN: not asked
    least: float  # seconds of a step over its bound with whole parts


def score(case: Case, auto: Sequence[Played], even: Sequence[Played]) -> Score:
    ratio = float("nan")
    if case.regime == "calm":
        ratio = over(auto) / over(even)  # of the same bounds
    return Score(
        **asdict(case),
        seeds=len(auto),
        whole=over(auto),
        error=error(auto),
        worst=max(over([each]) for each in auto),
        fluid=over(auto, "fluid"),
        work=float(np.mean([each.work for each in auto])),
        messages=float(np.mean([each.messages for each in auto])),
        orders=float(np.mean([each.orders for each in auto])),
        uncoded=ratio,
        least=min(float((each.seconds / each.whole).min()) for each in auto),
    )


def show_scores(scores: Sequence[Score], missed: Missed) -> None:
    print("auto: seconds over bounds; a worker's messages, and orders, in a step\n")
    heads = ("/ whole", "error", "worst", "/ fluid", "work / k", "messages", "orders")
    columns = "".join(f"{head:>9}" for head in heads)
    print(f"{'regime':<6} {'n':>3} {'c':>3} {'f':>4} {columns}{'/ uncoded':>11}")
    for found in scores:
        case = Case(found.regime, found.workers, found.pieces, found.share)
        values = cells([found.whole])
        values += cells([found.error], form=".4f")
        values += cells([found.worst, found.fluid, found.work, found.messages])
        values += cells([found.orders], form=".2f")
        if not np.isnan(found.uncoded):
            values += cells([found.uncoded], 11, ".4f")
        print(f"{case} {values}")
        judge(str(case), found, missed)
    print("worst: of one seed\n")
    for share in sorted({found.share for found in scores}, reverse=True):
        some = [found for found in scores if found.share == share]
        high = max(some, key=lambda found: found.whole)
        middle = median(found.whole for found in some)
        print(
            f"f = {share:g}: median {middle:.3f}, worst {number(high.whole)} "
            f"({high.regime}, n = {high.workers}, c = {high.pieces})"
        )


def judge(name: str, found: Score, missed: Missed) -> None:
    name = " ".join(name.split())
    aim = AIMS[found.share == 1.0]
    if not found.whole <= aim:
        missed.append(f"{name}: {number(found.whole, '.4f')} of the bound, not {aim}")
    if found.uncoded > CALM:
        missed.append(f"{name}: {found.uncoded:.4f} of uncoded, not {CALM}")
    if found.share == 1.0 and found.work > WORK:
        missed.append(f"{name}: work {found.work:.3f} of the parts, not {WORK}")
    if found.least < 1.0 - ROUNDING:
        missed.append(f"{name}: a step took {found.least:.6f} of its bound")


@dataclass(frozen=True)
class Rivals:
    """Seconds over the fluid bound, on the same seeds."""

    regime: str
    workers: int
    share: float
    auto: float
    uncoded: float
    code: float
    code_name: str
    two_stage: float
    uneven: float


def uncoded_of(case: Case) -> str:
    return f"uncoded(pieces={case.pieces})"


def two_stage_of(case: Case) -> str:
    return f"two_stage(copies=all, pieces={case.pieces})"


def rivals(case: Case, size: Size, played: dict[Run, Played]) -> Rivals:
    def ratio(scheme: str) -> float:
        runs = size.runs(case, scheme, size.beside)
        return over([played[run] for run in runs], "fluid")

    seeds = size.seeds_of(case, size.beside)
    name, spent = best_code(case, size.steps, len(seeds))
    auto = [played[run] for run in size.runs(case, auto_of(case), size.beside)]
    return Rivals(
        case.regime,
        case.workers,
        case.share,
        over(auto, "fluid"),
        ratio(uncoded_of(case)),
        spent / sum(float(each.fluid.sum()) for each in auto),
        name if np.isfinite(spent) else "-",
        ratio(two_stage_of(case)),
        ratio(UNEVEN),
    )


def show_rivals(found: Sequence[Rivals], seeds: int) -> None:
    print(f"\nseconds over the fluid bound, c = {BESIDE}, seeds: {seeds}\n")
    heads = (
        f"{'auto':>9}{'uncoded':>9}{'code':>9} {'':<10}{'two_stage':>9}{'uneven':>9}"
    )
    print(f"{'regime':<6} {'n':>3} {'f':>4} {heads}")
    for each in found:
        name = f"{each.regime:<6} {each.workers:>3} {each.share:>4.3g}"
        left = cells([each.auto, each.uncoded, each.code])
        right = cells([each.two_stage, each.uneven])
        print(f"{name} {left} {each.code_name:<10}{right}")


# -- what the rest is made of --------------------------------------------------------


@dataclass(frozen=True)
class Excess:
    """Seconds beyond the whole-part bound, in shares of it."""

    regime: str
    workers: int
    pieces: int
    share: float
    as_is: float
    at_once: float  # latency 0
    warm: float  # latency 0, from step `COLD` on
    drained: float  # as it is, with parts that cannot be stopped
    two_trips: float  # the first order and the last message, which everybody pays


def variants(case: Case, size: Size) -> dict[str, list[Run]]:
    """Return runs of a case by what is changed."""

    def runs(latency: float, drain: bool) -> list[Run]:
        return [
            Run(case, auto_of(case), seed, size.steps, latency, drain)
            for seed in size.seeds_of(case, size.apart)
        ]

    return {
        "as is": runs(LATENCY, False),
        "at once": runs(0.0, False),
        "drained": runs(LATENCY, True),
    }


def excess(case: Case, size: Size, played: dict[Run, Played]) -> Excess:
    sets = {
        name: [played[run] for run in runs]
        for name, runs in variants(case, size).items()
    }
    first, warm = sets["as is"], float("nan")
    if size.steps > COLD:
        warm = over(sets["at once"], first=COLD) - 1.0
    trips = sum(2.0 * each.trip * len(each.whole) for each in first)
    return Excess(
        **asdict(case),
        as_is=over(first) - 1.0,
        at_once=over(sets["at once"]) - 1.0,
        warm=warm,
        drained=over(sets["drained"]) - 1.0,
        two_trips=trips / sum(float(each.whole.sum()) for each in first),
    )


def show_excess(found: Sequence[Excess], seeds: int) -> None:
    print(f"\nwhat the rest is made of, % of the whole-part bound; seeds: {seeds}\n")
    print(
        f"{'':<19} {'as it is':>9} = {'two':>7} + {'re-plan':>7} + {'cold':>7} + "
        f"{'rest':>7} {'latency 0':>10} {'draining':>9} {'adds':>7}"
    )
    print(
        f"{'regime':<6} {'n':>3} {'c':>3} {'f':>4} {'':>9}   {'trips':>7}   "
        f"{'latency':>7}   {'start':>7}"
    )
    for each in found:
        case = Case(each.regime, each.workers, each.pieces, each.share)
        apart = (
            each.as_is,
            each.two_trips,
            each.as_is - each.at_once - each.two_trips,
            each.at_once - each.warm,
            each.warm,
            each.at_once,
            each.drained,
            each.drained - each.as_is,
        )
        cell = [number(100.0 * value, ".2f") for value in apart]
        print(
            f"{case} {cell[0]:>9}   {cell[1]:>7}   {cell[2]:>7}   {cell[3]:>7}   "
            f"{cell[4]:>7} {cell[5]:>10} {cell[6]:>9} {cell[7]:>7}"
        )
    print(
        "two trips: the first order and the last message, which everybody pays\n"
        "re-plan latency: what else goes away without latency\n"
        f"cold start: what goes away from step {COLD} on, then; rest: what stays\n"
        "draining: parts under way cannot be stopped"
    )


def scoreboard(size: Size, jobs: int, missed: Missed) -> dict[str, Any]:
    cases = size.cases(size.pieces, size.shares)
    beside = [c for c in cases if c.pieces == BESIDE and c.share in size.beside_at]
    ends = [f for f in size.shares if f in (1.0, 0.1)]
    apart = [
        case
        for case in cases
        if case.regime in size.taken and case.share in ends
        if case.pieces == min(size.pieces)
    ]
    runs = [run for case in cases for run in size.runs(case, auto_of(case))]
    calm = [case for case in cases if case.regime == "calm"]
    runs += [run for case in calm for run in size.runs(case, uncoded_of(case))]
    for case in beside:
        codes(case.workers)  # made once, before there are processes
        for scheme in (uncoded_of(case), two_stage_of(case), UNEVEN):
            runs += size.runs(case, scheme, size.beside)
    for case in apart:
        runs += [run for some in variants(case, size).values() for run in some]
    played = play_all(runs, jobs)

    def of(case: Case, scheme: str) -> list[Played]:
        return [played[run] for run in size.runs(case, scheme) if run in played]

    scores = [score(c, of(c, auto_of(c)), of(c, uncoded_of(c))) for c in cases]
    show_scores(scores, missed)
    others = [rivals(case, size, played) for case in beside]
    if others:
        show_rivals(others, size.beside)
    found = [excess(case, size, played) for case in apart]
    if found:
        show_excess(found, min(size.apart, size.seeds))
    return {
        "scores": list(map(asdict, scores)),
        "rivals": list(map(asdict, others)),
        "excess": list(map(asdict, found)),
    }


# -- few copies ----------------------------------------------------------------------


@dataclass(frozen=True)
class Ring:
    """Seconds over the fluid bound, f = 1."""

    regime: str
    workers: int
    everywhere: float
    early: float
    waiting: float
    known: float  # fluid on the ring, all known beforehand; NaN: with pauses
    half: float  # the same, planned again once, at half a step


def ring(size: Size, jobs: int, missed: Missed) -> dict[str, Any]:
    cases = [c for c in size.cases((BESIDE,), (1.0,)) if c.workers > RING]
    runs = [run for c in cases for s in on_ring(c) for run in size.runs(c, s)]
    played = play_all(runs, jobs)
    print(
        f"{RING} copies on a ring, c = {BESIDE}, f = 1: seconds over the fluid bound\n"
    )
    heads = f"{'r = n':>9}{'early':>9}{'waiting':>9}{'early /':>9}"
    print(f"{'regime':<6} {'n':>3} {heads}{'known':>9}{'half':>9}")
    found = [on_a_ring(case, size, played) for case in cases]
    for each in found:
        name = f"{each.regime:<6} {each.workers:>3}"
        gain = each.early / each.waiting
        values = each.everywhere, each.early, each.waiting, gain, each.known, each.half
        print(f"{name} {cells(values)}")
    print(
        f"early, waiting: r = {RING}, looking before anybody idles, or only then\n"
        "known, half: fluid, on the ring, if all is known from the start, or from\n"
        "half a median step on; not where there are pauses"
    )
    judge_ring(found, missed)
    return {"ring": list(map(asdict, found))}


def on_ring(case: Case) -> tuple[str, str, str]:
    """Return the schemes to compare: everywhere, early, waiting."""
    few = f", copies={RING}"
    return auto_of(case), auto_of(case, few), auto_of(case, f"{few}, early=false")


def on_a_ring(case: Case, size: Size, played: dict[Run, Played]) -> Ring:
    sets = [[played[run] for run in size.runs(case, s)] for s in on_ring(case)]
    fluid = sum(float(each.fluid.sum()) for each in sets[0])
    known = half = float("nan")
    if case.regime != "pause":
        units = [
            drawn(case.regime, case.workers, size.steps, seed).unit
            for seed in size.seeds_of(case)
        ]
        known, half = (
            sum(float(bound(unit).sum()) for unit in units) / fluid
            for bound in (
                partial(ring_bound, copies=RING),
                partial(ring_bound, copies=RING, replanned=0.5),
            )
        )
    ratios = [over(each, "fluid") for each in sets]
    return Ring(case.regime, case.workers, *ratios, known, half)


def judge_ring(found: Sequence[Ring], missed: Missed) -> None:
    for workers in sorted({each.workers for each in found if each.regime in SYNTHETIC}):
        some = [e for e in found if e.workers == workers and e.regime in SYNTHETIC]
        gains = [each.early / each.waiting for each in some]
        mean = float(np.exp(np.mean(np.log(gains))))
        print(f"n = {workers}: early over waiting {mean:.3f} on average")
        if not mean < 1.0:
            missed.append(f"ring, n = {workers}: early is not better on average")
    for each in found:
        if not each.early <= NO_WORSE * each.waiting:
            missed.append(f"ring, {each.regime}, n = {each.workers}: early is worse")


# -- the command line ----------------------------------------------------------------


def several(kind: Callable[[str], Any], text: str) -> tuple[Any, ...]:
    return tuple(kind(word) for word in text.split(",") if word)


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise ValueError(text)
    return value


def share(text: str) -> float:
    if not 0.0 < (value := float(text)) <= 1.0:
        raise ValueError(text)
    return value


def known(text: str) -> str:
    if text not in FULL.regimes:
        raise ValueError(text)
    return text


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="auto against the best possible")
    parser.add_argument("--quick", action="store_true", help="for a look")
    parser.add_argument("--ring", action="store_true", help="few copies, instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--jobs", type=positive, default=2, help="processes")
    for name, kind in {"seeds": positive, "steps": positive}.items():
        parser.add_argument(f"--{name}", type=kind)
    lists = {"workers": positive, "pieces": positive, "regimes": known, "shares": share}
    for name, kind in lists.items():
        parse = partial(several, kind)
        parse.__name__ = f"list of {name}"  # type: ignore[attr-defined]  # for errors
        parser.add_argument(f"--{name}", type=parse)
    return parser.parse_args()


def size_of(given: argparse.Namespace) -> Size:
    """Return what was asked for; what was not is as in a quick or a full run."""
    base = QUICK if given.quick else FULL
    named = ("seeds", "steps", "workers", "pieces", "regimes", "shares")
    asked = {key: value for key in named if (value := getattr(given, key))}
    size = replace(base, **asked)
    if given.quick:
        return size
    return replace(size, beside=size.seeds, beside_at=size.shares)


def without_inf(value: Any) -> Any:
    """Return the same with None for what is no number in JSON."""
    if isinstance(value, dict):
        return {key: without_inf(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_inf(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def main() -> int:
    given, missed = arguments(), Missed()
    size, began = size_of(given), time.monotonic()
    print(
        f"{size.seeds} seeds of {size.steps} steps, "
        f"latency {LATENCY:.1%} of the median step each way\n"
    )
    found = (ring if given.ring else scoreboard)(size, given.jobs, missed)
    if given.json:
        about = {"size": asdict(size), "latency": LATENCY, "missed": missed}
        given.json.write_text(json.dumps(without_inf(about | found), indent=1) + "\n")
    print(f"\n{time.monotonic() - began:.0f} s")
    if given.ring:
        print("aims: looking early is better on average, and never clearly worse:")
    else:
        print(
            f"aims: {AIMS[True]} of the whole-part bound at f = 1, {AIMS[False]} "
            f"below; {CALM} of uncoded\nin calm; work {WORK} of the parts at f = 1:"
        )
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
