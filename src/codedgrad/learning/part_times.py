"""How long a worker took for each part of a step, read from the record of the step.

The root sees a part end by the worker's report. It sees when the part began because the
worker computes one part after the other: a part begins when the one before it ends, or
when the worker is given something to do. A worker that is dropped in the middle of a
part finishes that part first and only then takes up the next step, so that:

- what the part in hand took is said when the worker is free of it (`WorkerFreed`);
- the first part of the next step begins then, and not when it was assigned.

A part that is cut away inside a step is finished too. If the worker goes on with
another segment nothing says when: the time of the two parts is known together, and half
of it is counted for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from codedgrad.core.history import Record


@dataclass(slots=True)
class PartTimes:
    """What one step showed of one worker.

    Attributes:
        seconds: Of each part that it finished, in order.
        began: When the part in hand at the end of the step was begun, on the clock of
            the events; NaN if there was none.
        pending: Parts in hand then: 1 where the worker reports every part.
        until: When it was last known not to have finished them.
        lost_at: When the worker was lost during the step; NaN if it was not.
        was_asked: Whether it was given any part.
    """

    seconds: list[float] = field(default_factory=list)
    began: float = math.nan
    pending: int = 0
    until: float = math.nan
    lost_at: float = math.nan
    was_asked: bool = False

    def free(self, seconds: float, unused: int = 0) -> None:
        """Note how long the part in hand took, now that it is over.

        Args:
            seconds: Of the worker's last part.
            unused: Parts that it reported after the end of the step, and before the
                last one; each is taken to have been as long.
        """
        if self.pending == 1:
            if seconds > 0:  # else the worker was dropped before it began the part
                self.seconds += [seconds] * (1 + unused)
            self.pending, self.began = 0, math.nan

    @property
    def elapsed(self) -> float:
        """Seconds that the part in hand had taken by the end of the step, at least."""
        return max(0.0, self.until - self.began) / self.pending if self.pending else 0.0


def part_times(record: Record, worker: int, free_since: float) -> PartTimes:
    """Read how long a worker took for each part.

    Args:
        record: Of the step.
        worker: The worker.
        free_since: When it was free of the last step that it was at before; -inf if it
            had nothing in hand.
    """
    drains = not record.state.capabilities.interrupts_part
    freed = record.state.freed.get(worker, ())
    seen = PartTimes(was_asked=bool(record.state.held[worker]))
    abandoned = math.nan  # when a part was begun that was then cut away
    for stretch in record.stretches(worker):
        last, unseen = max(stretch.start, free_since), 0
        if not math.isnan(abandoned):
            last, unseen = abandoned, 1
        before, abandoned = 0, math.nan
        for done, at in stretch.marks:
            if done > before:
                parts = done - before + unseen
                seen.seconds += [max(0.0, at - last) / parts] * parts
                before, last, unseen = done, at, 0
        if stretch.ended == "lost":
            seen.lost_at = stretch.end
            seen.pending, seen.began = 0, math.nan
        elif stretch.left and stretch.end <= last:
            continue  # it waited behind another segment, and was never begun
        elif stretch.left and stretch.ended == "cut" and drains:
            abandoned = last
            for at, seconds in freed:
                if stretch.end <= at <= record.state.now:  # it was idle then
                    seen.seconds.append(seconds)
                    abandoned, free_since = math.nan, at
                    break
        elif stretch.left:
            seen.began, seen.pending, seen.until = last, stretch.left, stretch.end
        else:
            seen.pending, seen.began = 0, math.nan
    if not math.isnan(abandoned):
        seen.began, seen.pending, seen.until = abandoned, 1, record.state.now
    return seen
