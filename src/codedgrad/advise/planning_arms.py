"""What `auto` does with workers that give one answer a call.

It has several ways then, and chooses anew in every step. Which one it took shows in the
lists with which a step begins: the same list for several workers, as a code would have
it, or lists of different lengths, or even ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from codedgrad.core import Assign, Command, Event, Scheme, StepStarted
from codedgrad.delays import Times
from codedgrad.sim import Machine, run_events

__all__ = ["arm_of", "arms_taken"]


def arms_taken(scheme: Scheme, times: Times, machine: Machine) -> str:
    """Simulate a scheme, and say in a few words how its steps mostly began.

    Args:
        scheme: What to run.
        times: Of one run.
        machine: What the engine can do.
    """
    counts: Counter[str] = Counter()

    def watch(event: Event, commands: Sequence[Command]) -> None:
        if isinstance(event, StepStarted):
            counts[arm_of(commands)] += 1

    run_events(scheme, times, machine, watch=watch)
    arm, count = counts.most_common(1)[0]
    return f"{arm} in {count} of {times.steps} steps"


def arm_of(commands: Sequence[Command]) -> str:
    """Say with which lists a step begins.

    Example:
        >>> from codedgrad.core import Segment
        >>> lists = [(0, (0, 1)), (1, (0, 1)), (2, (2, 3)), (3, (2, 3))]
        >>> arm_of([Assign(0, Segment(i, w, parts, (1.0, 1.0)), None)
        ...         for i, (w, parts) in enumerate(lists)])
        'every list with 2 workers'
    """
    lists = [c.segment.parts for c in commands if isinstance(c, Assign)]
    times = Counter(part for parts in lists for part in parts)
    if not times:
        return "nothing"
    copies, count = Counter(times.values()).most_common(1)[0]
    if copies > 1 and 2 * count > len(times):
        return f"every list with {copies} workers"
    longest, shortest = max(map(len, lists)), min(map(len, lists))
    return "even lists" if longest - shortest <= 1 else "lists by expected speed"
