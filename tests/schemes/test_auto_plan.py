"""What a step that is planned again says, event by event, with times made up by hand.

Parts take a second and a round trip takes a tenth, unless a test says otherwise.
"""

import math
from itertools import pairwise

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Capabilities,
    Combine,
    Command,
    Coordinator,
    Cut,
    Drop,
    Event,
    GiveUp,
    History,
    MessageArrived,
    MessageFailed,
    Progressed,
    Segment,
    State,
    StepStarted,
    TimerFired,
    Traits,
    Upload,
    WakeAt,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.orders import Orders
from codedgrad.delays import Times
from codedgrad.schemes import Auto, auto
from codedgrad.schemes.auto import change_orders as changing
from codedgrad.schemes.auto import uploads as collecting
from codedgrad.schemes.auto.forecast import Forecast
from codedgrad.schemes.auto.plan import LivePlan
from codedgrad.schemes.auto.reassign import PartLayout
from codedgrad.schemes.auto.worker_lists import Hands, Sight
from codedgrad.sim import Machine, Network
from codedgrad.sim.driver import Simulator
from codedgrad.sim.events import run_events

TRIP = 0.1  # seconds


def expected(
    layout: PartLayout,
    pace: float | list[float] = 1.0,
    fixed: float | list[float] = 0.0,
    *,
    step: float | None = None,
    trip: float = TRIP,
    sending: float | None = None,
    share: float = 1.0,
    uneven: bool = False,
    cautious: bool = False,
    surprises: tuple[float, ...] = (),
) -> Forecast:
    """Make a forecast; a step takes as long as the uncoded load typically does."""
    each = np.broadcast_to(np.asarray(pace, dtype=float), layout.workers)
    begin = np.broadcast_to(np.asarray(fixed, dtype=float), layout.workers)
    usual = float(np.median(begin + layout.pieces * each))
    return Forecast(
        begin,
        each,
        usual if step is None else step,
        trip,
        trip if sending is None else sending,
        share,
        uneven,
        cautious,
        surprises,
    )


class Known:
    """A scheme whose steps are all expected to be the same."""

    name = "known"
    exact = True

    def __init__(
        self, layout: PartLayout, forecast: Forecast, early: bool = True
    ) -> None:
        self.workers = layout.workers
        self.parts = layout.parts
        self.placement = layout.placement
        self.tolerance = layout.copies - 1
        self._plan = layout, forecast, early

    traits = Traits()

    def plan(self, step: int, history: History) -> LivePlan:
        return LivePlan(*self._plan)


class Table:
    """A coordinator to whom things are told one by one, all at given moments."""

    def __init__(
        self,
        workers: int,
        pieces: int,
        copies: int | None = None,
        *,
        lost: tuple[int, ...] = (),
        rows: int = 1_000_000,
        early: bool = True,
        **options: object,
    ) -> None:
        layout = PartLayout(workers, workers * pieces, copies or workers)
        scheme = Known(layout, expected(layout, **options), early)
        self.coordinator = Coordinator(scheme, Capabilities(rows_per_worker=rows))
        self.wake = math.inf
        for worker in lost:
            self.tell(WorkersLost((worker,), at=0.0))
        self.given = self.tell(StepStarted(0, at=0.0))

    @property
    def state(self) -> State:
        assert self.coordinator.state is not None
        return self.coordinator.state

    def tell(self, event: Event) -> list[Command]:
        """Return what is to be done, but for the timer, which is kept."""
        said = self.coordinator.handle(event)
        for command in said:
            if isinstance(command, WakeAt):
                self.wake = command.at
        return [command for command in said if not isinstance(command, WakeAt)]

    def done(
        self,
        worker: int,
        segment: int,
        parts: int,
        at: float,
        closed: bool | None = None,
    ) -> list[Command]:
        """Let so many parts of a segment be merged; it closes at its border."""
        if closed is None:
            closed = parts == self.state.segments[segment].keep
        return self.tell(Progressed(0, worker, segment, parts, closed, at))

    def hear(self, worker: int, message: int, at: float) -> list[Command]:
        """Let a message come whose segments are all closed."""
        known = self.state.segments
        ids = self.state.messages[message].segments
        cuts = tuple((id_, known[id_].done) for id_ in ids)
        assert all(known[id_].closed for id_ in ids)
        return self.tell(MessageArrived(0, worker, message, cuts, at))

    def wait(self, until: float = math.inf) -> list[Command]:
        """Let timers fire until something is to be done."""
        for _ in range(200):
            if self.wake > until:
                return []
            at, self.wake = self.wake, math.inf
            if said := self.tell(TimerFired(at)):
                return said
        raise AssertionError("timers fire for ever")


def give(
    segment: int, worker: int, parts: tuple[int, ...], message: int | None = None
) -> Assign:
    return Assign(0, Segment(segment, worker, parts, (1.0,) * len(parts)), message)


def cut(worker: int, segment: int, keep: int = 0) -> Cut:
    return Cut(0, worker, segment, keep)


def ask(worker: int, message: int, *segments: int) -> Upload:
    return Upload(0, worker, message, segments)


def combine(*messages: int) -> Combine:
    return Combine(0, tuple((message, 1.0) for message in messages), 0.0)


def taken(
    scheme: Auto,
    unit: np.ndarray,
    fixed: float = 0.0,
    latency: float = 0.001,
    network: Network | None = None,
) -> float:
    """Return how long simulated steps take together, of which a share is fixed."""
    seconds = Times(fixed * unit, (1.0 - fixed) * unit)
    machine = Machine(drain=False, latency=latency, network=network)
    return float(run_events(scheme, seconds, machine).seconds.sum())


# -- the start -------------------------------------------------------------------------


def test_everybody_begins_with_its_own_parts() -> None:
    table = Table(2, 4)
    assert table.given == [give(0, 0, (0, 1, 2, 3)), give(1, 1, (4, 5, 6, 7))]
    assert table.wake == pytest.approx(1.3 * 4.0)  # a look, whatever was heard


def test_who_is_expected_to_be_slow_begins_with_less() -> None:
    table = Table(2, 3, pace=[1.0, 2.0], uneven=True)
    assert table.given == [give(0, 0, (0, 1, 2, 5)), give(1, 1, (3, 4))]


def test_who_is_expected_to_be_slow_begins_with_the_same_if_loads_are_even() -> None:
    table = Table(2, 3, pace=[1.0, 2.0])
    assert table.given == [give(0, 0, (0, 1, 2)), give(1, 1, (3, 4, 5))]


def test_parts_of_who_is_not_there_are_given_to_the_others_at_the_start() -> None:
    table = Table(3, 2, lost=(1,))
    assert table.given == [give(0, 0, (0, 1, 2)), give(1, 2, (4, 5, 3))]


def test_the_same_goes_for_a_first_step_of_which_nothing_is_known() -> None:
    table = Table(3, 2, lost=(1,), pace=0.0, step=0.0, trip=0.0)
    assert table.given == [give(0, 0, (0, 1, 2)), give(1, 2, (4, 5, 3))]
    assert table.wake == 6.0  # a hundredth of how long a first step may take


# -- about to run dry ------------------------------------------------------------------


def three_times_slower() -> Table:
    """Worker 1 needs three seconds a part, which nobody expected."""
    table = Table(2, 4)
    assert table.done(0, 0, 1, at=1.0) == []
    assert table.done(0, 0, 2, at=2.0) == []
    assert table.done(1, 1, 1, at=2.9) == []
    return table


def test_a_worker_about_to_run_dry_is_given_parts_before_it_has_none() -> None:
    """It has one left. The last parts of the other's list come first, that is cut."""
    table = three_times_slower()
    assert table.done(0, 0, 3, at=3.0) == [give(2, 0, (7, 6)), cut(1, 1, keep=2)]


def test_who_will_not_be_given_more_is_asked_for_its_sum_ahead() -> None:
    """One message for both of its segments; nothing is asked for at the end."""
    table = three_times_slower()
    table.done(0, 0, 3, at=3.0)
    assert table.done(0, 0, 4, at=4.0) == []
    assert table.done(0, 2, 1, at=5.0) == [ask(0, 3, 0, 2), ask(1, 4, 1)]
    assert table.done(1, 1, 2, at=5.8) == []
    assert table.done(0, 2, 2, at=6.0) == []
    assert table.hear(1, 4, at=6.1) == []
    assert table.hear(0, 3, at=6.1) == [combine(3, 4)]


def test_where_all_are_alike_no_part_changes_hands() -> None:
    table = Table(2, 4)
    for part in (1, 2):
        assert table.done(0, 0, part, at=1.0 * part) == []
        assert table.done(1, 1, part, at=1.01 * part) == []
    assert table.done(0, 0, 3, at=3.0) == [ask(0, 2, 0)]
    assert table.done(1, 1, 3, at=3.03) == [ask(1, 3, 1)]
    assert table.done(0, 0, 4, at=4.0) == []
    assert table.done(1, 1, 4, at=4.04) == []
    assert table.hear(0, 2, at=4.05) == []
    assert table.hear(1, 3, at=4.09) == [combine(2, 3)]


def test_a_worker_runs_dry_a_round_trip_before_it_has_nothing_to_do() -> None:
    """A round trip takes more than two parts: it is given more with three left."""
    table = Table(2, 6, trip=2.2)
    for part in (1, 2):
        assert table.done(0, 0, part, at=1.0 * part) == []
    assert table.done(1, 1, 1, at=2.9) == []
    assert table.done(0, 0, 3, at=3.0) == [give(2, 0, (11, 10, 9)), cut(1, 1, keep=3)]


def test_a_gain_that_is_next_to_nothing_changes_no_list() -> None:
    """Worker 0 could do the last part of worker 1 by 5.0; 1 is there at 5.003."""
    for last, moves in ((5.003, False), (5.1, True)):
        table, pace = Table(2, 4), last / 4
        for part in (1, 2):
            table.done(0, 0, part, at=1.0 * part)
            table.done(1, 1, part, at=pace * part)
        said = table.done(0, 0, 3, at=3.0)
        assert said == ([give(2, 0, (7,)), cut(1, 1, keep=3)] if moves else [])


def test_who_is_cautious_changes_lists_only_for_what_is_clearly_late() -> None:
    """By more than 0.15 of a step of 4 s."""
    for cautious, last, moves in (
        (False, 5.5, True),
        (True, 5.5, False),
        (True, 5.7, True),
    ):
        table, pace = Table(2, 4, cautious=cautious), last / 4
        for part in (1, 2):
            table.done(0, 0, part, at=1.0 * part)
            table.done(1, 1, part, at=pace * part)
        said = table.done(0, 0, 3, at=3.0)
        assert (said == [give(2, 0, (7,)), cut(1, 1, keep=3)]) is moves


# -- parts under way -------------------------------------------------------------------


def stuck_in_its_last_part() -> Table:
    """Worker 0 is through and heard; worker 1 is at part 3 since 1.0, for too long."""
    table = Table(2, 2)
    table.done(0, 0, 1, at=1.0)
    table.done(1, 1, 1, at=1.0)
    table.done(0, 0, 2, at=2.0)
    assert table.hear(0, 2, at=2.05) == []
    assert table.state.messages.keys() == {2, 3}  # both are asked for
    return table


def test_a_part_under_way_on_a_late_worker_is_copied_with_a_message_of_its_own() -> (
    None
):
    """When a quarter of the time that it has taken is more than doing it again."""
    table = stuck_in_its_last_part()
    assert table.wait() == [give(4, 0, (3,), message=5)]
    assert 1.0 + 1.25 * (table.state.now - 1.0) > table.state.now + TRIP + 1.0


def test_whoever_is_done_first_counts_if_it_is_the_copy() -> None:
    table = stuck_in_its_last_part()
    table.wait()
    assert table.done(0, 4, 1, at=6.7) == [cut(1, 1)]
    assert table.hear(0, 5, at=6.8) == []
    assert table.done(1, 1, 1, at=6.8, closed=True) == []
    assert table.hear(1, 3, at=6.8) == [combine(2, 3, 5)]


def test_whoever_is_done_first_counts_if_it_is_the_first() -> None:
    table = stuck_in_its_last_part()
    table.wait()
    assert table.done(1, 1, 2, at=6.0) == []
    assert table.hear(1, 3, at=6.1) == [combine(2, 3)]


def test_a_part_that_both_have_done_is_in_the_sum_once() -> None:
    """The cut came too late, and the copy is here as well."""
    table = stuck_in_its_last_part()
    table.wait()
    table.done(0, 4, 1, at=6.6)
    assert table.done(1, 1, 2, at=6.65) == []
    assert table.hear(0, 5, at=6.7) == []
    assert table.hear(1, 3, at=6.7) == [combine(2, 3)]


def test_whoever_is_outdone_is_stopped() -> None:
    """Workers 1 and 2 are both stuck; 0 has a copy when 1 is through after all."""
    table = Table(3, 2)
    for worker in range(3):
        table.done(worker, worker, 1, at=1.0)
    table.done(0, 0, 2, at=2.0)
    table.hear(0, 3, at=2.05)
    copies = [give(6, 0, (3,), message=7), give(8, 0, (5,), message=9)]
    assert table.wait() == copies
    assert table.done(1, 1, 2, at=table.state.now + 0.1)[0] == cut(0, 6)


def test_whoever_is_outdone_is_stopped_at_once() -> None:
    """Though lists were looked at less than a round trip ago."""
    table = Table(3, 2)
    for worker in range(3):
        table.done(worker, worker, 1, at=1.0)
    table.done(0, 0, 2, at=2.0)
    table.hear(0, 3, at=2.05)
    table.wait()
    at = table.state.now + 0.3 * TRIP
    said = table.done(1, 1, 2, at=at) + table.wait(until=at + 0.1 * TRIP)
    assert cut(0, 6) in said


def stuck_among_idle() -> Table:
    """Worker 4 is stuck in part 9, all the others idle; steps usually take 50 s."""
    table = Table(5, 2, step=50.0)
    for worker in range(5):
        table.done(worker, worker, 1, at=1.0)
    for worker in range(4):
        table.done(worker, worker, 2, at=2.0)
    for message in list(table.state.messages)[:4]:
        table.hear(table.state.messages[message].worker, message, at=2.05)
    return table


def copies_until(table: Table, until: float) -> list[tuple[int, ...]]:
    orders: list[Command] = []
    while said := table.wait(until):
        orders += said
    return [c.segment.parts for c in orders if isinstance(c, Assign)]


def test_no_more_than_three_are_at_a_part() -> None:
    table = stuck_among_idle()
    assert copies_until(table, 99.0) == [(9,), (9,)]


def test_a_part_that_three_are_stuck_in_is_given_to_others_in_the_end() -> None:
    table = stuck_among_idle()
    assert copies_until(table, 400.0) == [(9,)] * 4


def test_a_part_is_taken_away_where_its_worker_is_certain_to_be_late() -> None:
    """Worker 0 is much quicker of late. What 1 has done before is asked for."""
    table = Table(2, 4, trip=0.02)
    table.done(1, 1, 1, at=0.9)
    table.done(0, 0, 1, at=1.75)
    table.done(1, 1, 2, at=1.8)  # at part 6 until 2.7
    table.done(0, 0, 2, at=1.85)
    assert table.done(0, 0, 3, at=1.95) == [cut(1, 1), ask(1, 2, 1), give(3, 0, (6, 7))]


def taken_with_its_list() -> list[Command]:
    """Worker 1 has two segments, and 0, which comes back, is to do the rest of both."""
    table = Table(2, 3, pace=[0.1, 1.0], step=10.0)
    table.done(1, 1, 1, at=0.5)
    taken = table.done(1, 1, 2, at=1.0)
    assert taken == [cut(0, 0, keep=1), give(2, 1, (2, 1, 0))]
    table.tell(WorkersLost((0,), at=1.05))
    said = table.tell(WorkersJoined((0,), at=5.0))  # 1 is stuck in part 5
    assert [c.segment.parts for c in said if isinstance(c, Assign)] == [(5, 0, 1, 2)]
    return said


def test_what_comes_after_a_part_that_is_taken_away_is_taken_as_well() -> None:
    said = taken_with_its_list()
    assert cut(1, 1) in said
    assert cut(1, 2) in said
    assert [c.segments for c in said if isinstance(c, Upload)] == [(1,)]


def test_a_part_that_is_the_first_of_its_segment_is_not_taken_but_copied() -> None:
    """Worker 1 has reached its border, and has not said that it has closed there."""
    table = Table(2, 3, pace=[0.1, 1.0], step=10.0, lost=(0,))
    table.done(1, 0, 1, at=0.5)
    table.done(1, 0, 2, at=1.0)
    table.tell(WorkersJoined((0,), at=1.05))
    assert table.wait() == [give(1, 0, (2, 1, 0)), cut(1, 0, keep=3)]
    table.tell(WorkersLost((0,), at=1.2))
    assert table.wait() == [give(2, 1, (0, 1, 2))]
    table.done(1, 0, 3, at=1.5, closed=False)  # and is at part 0 since then
    table.tell(WorkersJoined((0,), at=5.0))
    assert table.wait()[0] == give(3, 0, (0,), message=4)


# -- workers of whom nothing was heard -------------------------------------------------


def not_shown_up() -> Table:
    """Worker 1 should have reported at 1.0; at 2.0 worker 0 is through."""
    table = Table(2, 2)
    assert table.done(0, 0, 1, at=1.0) == [ask(0, 2, 0)]
    assert table.done(0, 0, 2, at=2.0) == [give(3, 0, (3, 2)), cut(1, 1, keep=1)]
    table.hear(0, 2, at=2.05)
    return table


def test_all_parts_of_who_has_not_shown_up_are_given_to_others() -> None:
    """What it should be at comes last, and then nobody counts on it any more."""
    table = not_shown_up()
    assert table.done(0, 3, 1, at=3.0) == [ask(0, 4, 3)]
    assert table.done(0, 3, 2, at=4.0) == []
    assert table.hear(0, 4, at=4.1) == [combine(2, 4)]


def test_who_shows_up_after_all_counts() -> None:
    table = not_shown_up()
    assert table.done(0, 3, 1, at=3.0) == [ask(0, 4, 3)]
    said = table.done(1, 1, 1, at=3.1)  # part 2, which 0 is at
    assert said == [cut(0, 3), ask(1, 5, 1)]
    assert table.hear(1, 5, at=3.2) == []
    assert table.done(0, 3, 1, at=3.2, closed=True) == []
    assert table.hear(0, 4, at=3.3) == [combine(2, 4, 5)]


def test_what_shows_up_too_late_is_not_in_the_sum() -> None:
    """Both have done part 2; worker 0 was through with it first."""
    table = not_shown_up()
    table.done(0, 3, 1, at=3.0)
    table.done(0, 3, 2, at=4.0)
    assert table.done(1, 1, 1, at=4.05) == []
    assert table.hear(0, 4, at=4.1) == [combine(2, 4)]


def test_who_has_not_shown_up_is_given_no_more_as_long_as_others_have() -> None:
    """Worker 2 would be the first to be through, if it comes as expected."""
    table = Table(3, 3, pace=[1.0, 1.0, 0.1], fixed=[0.0, 0.0, 2.9], step=3.0)
    table.done(1, 1, 1, at=1.0)
    table.done(0, 0, 1, at=2.0)
    said = table.done(1, 1, 2, at=2.0)
    said += table.wait(until=2.0 + 1.1 * TRIP)
    given = [c.segment for c in said if isinstance(c, Assign)]
    assert [(segment.worker, segment.parts) for segment in given] == [(1, (2,))]


def test_who_was_idle_begins_a_round_trip_after_it_is_given_more() -> None:
    table = not_shown_up()
    plan = table.coordinator._plan
    assert isinstance(plan, LivePlan)
    ends = {worker: end for _, worker, end in plan._hands.sight(table.state).under_way}
    assert ends[0] == pytest.approx(2.0 + TRIP + 1.0)


def border_in_doubt() -> Table:
    """Parts take 0.1 s, and orders longer: worker 1 may be anywhere in its list."""
    table = Table(2, 4, pace=0.1, trip=0.35)
    for part in (1, 2, 3, 4):
        table.done(0, 0, part, at=0.1 * part)
    table.hear(0, 2, at=0.42)
    assert table.wait() == [cut(1, 1), give(3, 1, (4,)), give(4, 0, (4,))]
    return table


def test_a_border_that_nobody_knows_is_confirmed_first() -> None:
    """Parts 5 to 7 are nobody's until the segment has closed."""
    table = border_in_doubt()
    assert table.done(1, 1, 0, at=0.85, closed=True)[0] == give(5, 0, (5, 6, 7))


def test_parts_before_a_confirmed_border_are_done() -> None:
    table = border_in_doubt()
    said = table.done(1, 1, 2, at=0.85, closed=True)  # parts 4 and 5
    assert said[:2] == [cut(0, 4), give(5, 0, (6, 7))]
    assert ask(1, 7, 1) in said


def test_a_border_that_is_never_confirmed_is_not_waited_for_in_vain() -> None:
    """Ten round trips, and three times what sending takes."""
    table = border_in_doubt()
    since = table.state.now
    assert table.wait() == [ask(0, 5, 4)]
    said = table.wait()
    assert said[0] == give(6, 0, (5, 6, 7))
    assert table.state.now == pytest.approx(since + 13 * 0.35)


# -- probes ----------------------------------------------------------------------------


def slow_one() -> Table:
    """Worker 2 is so slow that it is given nothing."""
    table = Table(3, 2, pace=[1.0, 1.0, 9.0], uneven=True, step=2.0)
    assert table.given == [
        give(0, 0, (0, 1, 5)),
        give(1, 1, (2, 3, 4)),
        give(2, 2, (5,)),  # the last of its own, to show its pace
    ]
    return table


def test_who_is_given_nothing_does_a_part_that_is_never_in_the_sum() -> None:
    table = slow_one()
    for part in (1, 2):
        assert table.done(0, 0, part, at=1.0 * part) in ([], [ask(0, 3, 0)])
        assert table.done(1, 1, part, at=1.0 * part) in ([], [ask(1, 4, 1)])
    assert table.done(2, 2, 1, at=2.9) == []
    table.done(0, 0, 3, at=3.0)
    table.done(1, 1, 3, at=3.0)
    assert {m: k.segments for m, k in table.state.messages.items()} == {
        3: (0,),
        4: (1,),
    }
    assert table.hear(0, 3, at=3.1) == []
    assert table.hear(1, 4, at=3.1) == [combine(3, 4)]


def test_a_probe_does_not_make_a_part_done() -> None:
    """Parts 0 to 4 are, and 5 by worker 2 alone."""
    table = slow_one()
    for part in (1, 2):
        table.done(0, 0, part, at=1.0 * part)
        table.done(1, 1, part, at=1.0 * part)
    table.done(2, 2, 1, at=2.9)
    table.done(1, 1, 3, at=3.0)
    table.hear(1, 4, at=3.1)
    assert not table.state.missing
    table.tell(WorkersLost((0,), at=3.2))
    said = table.wait()
    given = [p for c in said if isinstance(c, Assign) for p in c.segment.parts]
    assert sorted(given) == [0, 1, 5]


def test_a_cover_is_never_made_of_probes() -> None:
    """Part 5 is in no other segment."""
    table = slow_one()
    table.done(2, 2, 1, at=0.5)
    plan = table.coordinator._plan
    assert isinstance(plan, LivePlan)
    state = table.state
    assert 5 in plan._sums.collect(state, Orders(state), {2})


def test_who_shows_that_it_is_quick_is_given_parts() -> None:
    table = slow_one()
    said = table.done(2, 2, 1, at=0.5)
    assert said == [cut(0, 0, keep=2), cut(1, 1, keep=2), give(3, 2, (5, 4))]


# -- losses, and who is silent ---------------------------------------------------------


def test_parts_of_a_lost_worker_are_given_out_at_once() -> None:
    """Also what it had done and not sent."""
    table = Table(3, 2)
    for worker in range(3):
        table.done(worker, worker, 1, at=1.0)
    lost_at = 1.05
    assert table.tell(WorkersLost((1,), at=lost_at)) == []
    assert table.wake == pytest.approx(lost_at)  # after what else happens now
    said = table.wait()
    assert said[:2] == [give(4, 0, (2,)), give(5, 2, (3,))]


def four_that_compute() -> Table:
    """All four have done the first of their two parts, and sent nothing."""
    table = Table(4, 2)
    for worker in range(4):
        table.done(worker, worker, 1, at=1.0)
    assert table.wake == pytest.approx(1.0 + TRIP)
    return table


def taken_over(said: list[Command]) -> dict[int, tuple[int, ...]]:
    return {c.segment.worker: c.segment.parts for c in said if isinstance(c, Assign)}


def test_workers_that_are_lost_together_are_not_given_each_other_s_parts() -> None:
    """The loss overtakes a timer, so the plan looks at this very event."""
    table = four_that_compute()
    said = table.tell(WorkersLost((1, 2), at=1.2))
    assert taken_over(said) == {0: (2, 4), 3: (3, 5)}


def test_parts_of_a_worker_are_given_to_one_whose_loss_is_told_afterwards() -> None:
    """So engines tell of the workers of a host together. Worker 2 gets part 3."""
    table = four_that_compute()
    assert taken_over(table.tell(WorkersLost((1,), at=1.2))) == {0: (2,), 2: (3,)}
    assert table.tell(WorkersLost((2,), at=1.2)) == []
    assert taken_over(table.wait()) == {0: (4,), 3: (3, 5)}


def test_workers_that_are_lost_together_are_left_out_when_a_timer_brings_the_look() -> (
    None
):
    table = four_that_compute()
    assert table.tell(WorkersLost((1, 2), at=1.05)) == []
    assert taken_over(table.wait()) == {0: (2, 4), 3: (3, 5)}
    assert table.state.now == pytest.approx(1.05)


def test_workers_that_join_together_are_given_parts_at_one_look() -> None:
    table = Table(3, 2, lost=(1, 2))
    assert table.given == [give(0, 0, (0, 1, 2, 3, 4, 5))]
    table.done(0, 0, 1, at=1.0)
    assert table.tell(WorkersJoined((1, 2), at=1.2)) == []
    said = table.wait()
    assert set(taken_over(said)) == {1, 2}
    assert table.state.now == pytest.approx(1.2)


def test_what_a_lost_worker_has_sent_is_not_done_again() -> None:
    table = Table(2, 2)
    table.done(0, 0, 1, at=1.0)
    table.done(1, 1, 1, at=1.0)
    table.done(0, 0, 2, at=2.0)
    table.hear(0, 2, at=2.05)
    table.tell(WorkersLost((0,), at=2.1))
    table.done(1, 1, 2, at=2.2)
    assert table.hear(1, 3, at=2.3) == [combine(2, 3)]


def test_who_joins_is_given_parts_at_once() -> None:
    table = Table(2, 2, lost=(1,))
    assert table.given == [give(0, 0, (0, 1, 2, 3))]
    table.done(0, 0, 1, at=1.0)
    assert table.tell(WorkersJoined((1,), at=1.2)) == []
    assert table.wait() == [cut(0, 0, keep=3), give(1, 1, (3,))]
    assert table.state.now == pytest.approx(1.2)


def test_a_sum_that_fails_is_done_again_by_somebody_else_if_it_can_be() -> None:
    """Worker 0 is idle, and the other one is not."""
    table = Table(2, 2)
    table.done(0, 0, 1, at=1.0)
    table.done(1, 1, 1, at=1.0)
    table.done(0, 0, 2, at=2.0)
    table.tell(MessageFailed(0, 0, 2, "torn", at=2.05))
    assert table.wait() == [give(4, 1, (0, 1))]


def silent() -> Table:
    """The sum of worker 0 should be here after 10 round trips and 3 sendings."""
    table = Table(2, 2)
    table.done(0, 0, 1, at=1.0)
    table.done(1, 1, 1, at=1.0)
    table.done(0, 0, 2, at=2.0)
    assert table.wait() == [give(4, 1, (0, 1))]
    assert table.state.now == pytest.approx(2.0 + 13 * TRIP)
    return table


def test_parts_of_who_does_not_send_its_sum_in_time_are_done_by_others() -> None:
    table = silent()
    table.done(1, 1, 2, at=3.31)
    assert table.hear(1, 3, at=3.35) == []
    assert table.done(1, 4, 1, at=4.3) == [ask(1, 5, 4)]
    assert table.done(1, 4, 2, at=5.3) == []
    assert table.hear(1, 5, at=5.4) == [combine(3, 5)]


def test_who_was_silent_counts_again_when_it_speaks() -> None:
    table = silent()
    table.done(1, 1, 2, at=3.31)
    assert table.hear(1, 3, at=3.35) == []
    assert table.hear(0, 2, at=3.4) == [combine(2, 3)]


def test_who_was_silent_is_given_parts_again_when_it_speaks() -> None:
    table = silent()
    assert table.hear(0, 2, at=3.4) == []
    said = table.wait()  # worker 1 does no longer what is here, nor 0 nothing
    assert cut(1, 4) in said
    table.tell(WorkersLost((1,), at=3.6))
    [order] = table.wait()
    assert order == give(5, 0, (2, 3))


def test_who_is_alone_and_fails_after_it_was_silent_does_it_all_again() -> None:
    table = Table(2, 2, lost=(1,))
    table.done(0, 0, 4, at=4.0)
    assert table.state.messages[1].pending
    assert table.wait(until=9.0) == []  # it is silent, and there is nobody else
    torn = MessageFailed(0, 0, 1, "torn", at=9.5)
    assert table.tell(torn) == [give(2, 0, (0, 1, 2, 3))]


def test_who_speaks_again_takes_over_from_who_does_not() -> None:
    table = Table(2, 2)
    for at, parts in ((1.0, 1), (2.0, 2)):
        table.done(0, 0, parts, at)
        table.done(1, 1, parts, at)
    assert table.wait(until=3.4) == []  # nobody has sent: both are silent
    assert table.hear(0, 2, at=3.5) == [give(4, 0, (2, 3))]


def test_where_nothing_takes_time_timers_are_few() -> None:
    fired = 0

    def count(event: Event, commands: list[Command]) -> None:
        nonlocal fired
        fired += isinstance(event, TimerFired)

    nothing = np.zeros(4)
    part = np.array([0.0, 1e-300, 1.0, 1.0])
    simulator = Simulator(auto(4, 4), latency=0.0, watch=count)
    for _ in range(3):
        simulator.step(nothing, part)
    assert fired <= 3 * 200


def test_where_steps_are_long_a_sum_has_a_quarter_of_one() -> None:
    table = Table(2, 2, step=40.0)
    table.done(0, 0, 1, at=1.0)
    table.done(1, 1, 1, at=1.0)
    table.done(0, 0, 2, at=2.0)
    assert table.wait() == [give(4, 0, (3,), message=5)]
    assert table.wait() == [give(6, 1, (0, 1))]
    assert table.state.now == pytest.approx(2.0 + 10.0)


def test_a_sum_that_was_there_when_it_was_asked_for_has_a_deadline_as_well() -> None:
    """Worker 0 idles for a while before it is clear that it is not given more."""
    table = Table(3, 2)
    table.done(0, 0, 1, at=0.6)
    table.done(1, 1, 1, at=1.0)
    table.done(2, 2, 1, at=1.0)
    table.done(0, 0, 2, at=1.2)
    assert table.wait() == [ask(0, 5, 0)]
    asked = table.state.now
    table.done(1, 1, 2, at=2.0)
    table.hear(1, 3, at=2.05)
    assert give(6, 1, (0, 1)) in table.wait(until=4.0)
    assert table.state.now == pytest.approx(asked + 13 * TRIP)


# -- sums ------------------------------------------------------------------------------


def test_a_first_step_asks_for_sums_only_when_they_are_there() -> None:
    """So it shows how long a round trip takes."""
    table = Table(2, 2, pace=0.0, step=0.0, trip=0.0)
    assert table.done(0, 0, 1, at=1.0) == []
    assert table.done(1, 1, 1, at=1.0) == []
    assert table.done(0, 0, 2, at=2.0) == []
    assert table.done(1, 1, 2, at=2.01) == [ask(0, 2, 0), ask(1, 3, 1)]
    assert table.hear(1, 3, at=2.1) == []
    assert table.hear(0, 2, at=2.1) == [combine(2, 3)]


def past_its_border(parts: int) -> Table:
    """Let worker 1 close a first step's list beyond where it was cut.

    Until then worker 0 has done so many of the parts that it was given instead.
    """
    table = Table(2, 4, pace=0.0, step=0.0, trip=0.0)
    for part in (1, 2):
        assert table.done(0, 0, part, at=0.25 * part) == []
    assert table.done(0, 0, 3, at=0.75) == [
        give(2, 0, (7, 6, 5, 4)),
        cut(1, 1, keep=1),
    ]
    assert table.done(1, 1, 1, at=0.9, closed=False) == [cut(0, 2, keep=3)]
    table.done(0, 0, 4, at=1.0)
    for part in range(1, parts + 1):
        table.done(0, 2, part, at=1.0 + 0.25 * part)
    return table


def test_a_sum_that_is_asked_for_at_the_end_has_a_deadline() -> None:
    """In a first step 0.002 of the scale on which plans look, 600 s."""
    table = Table(2, 2, pace=0.0, step=0.0, trip=0.0)
    table.done(0, 0, 1, at=1.0)
    table.done(1, 1, 1, at=1.0)
    table.done(0, 0, 2, at=2.0)
    assert table.done(1, 1, 2, at=2.01) == [ask(0, 2, 0), ask(1, 3, 1)]
    table.hear(1, 3, at=2.1)
    said = table.wait()
    assert [c.segment.parts for c in said if isinstance(c, Assign)] == [(0, 1)]
    assert table.state.now < 2.01 + 2.5


def test_only_a_disjoint_cover_is_asked_for() -> None:
    """Worker 1 has done all of its parts, so that 0 did two of them for nothing."""
    table = past_its_border(parts=2)
    said = table.done(1, 1, 4, at=1.6, closed=True)
    assert said == [ask(0, 3, 0), ask(1, 4, 1)]
    assert table.hear(0, 3, at=1.7) == []
    assert table.hear(1, 4, at=1.7) == [combine(3, 4)]


def test_who_is_stopped_has_a_deadline_for_what_it_was_asked_for_ahead() -> None:
    """Worker 1 is stuck in its last part, and so is 2, whose copy is slower."""
    table = Table(4, 2)
    for worker in range(4):
        table.done(worker, worker, 1, at=1.0)
    table.wait(until=1.0 + 1.1 * TRIP)
    for worker in (0, 3):
        table.done(worker, worker, 2, at=2.0)
    sums = {m.worker: m.id for m in table.state.messages.values()}
    for worker in (0, 3):
        table.hear(worker, sums[worker], at=2.05)
    plan = table.coordinator._plan
    assert isinstance(plan, LivePlan)
    copies: list[Segment] = []
    while len(copies) < 2:
        orders = table.wait()
        assert orders
        copies += [c.segment for c in orders if isinstance(c, Assign)]
    assert math.isinf(plan._sums.until)  # they may yet be through
    [copy] = [c for c in copies if c.parts == (3,)]
    at = table.state.now + 1.0
    said = table.done(copy.worker, copy.id, 1, at) + table.wait(until=at + 0.1 * TRIP)
    assert cut(1, 1) in said
    assert plan._sums.until == pytest.approx(at + 13 * TRIP)


def test_who_never_says_that_it_has_closed_is_not_waited_for() -> None:
    """All is done, and worker 1 has part 4 in a list that it was to close."""
    table = past_its_border(parts=3)
    assert [m.segments for m in table.state.messages.values()] == [(0, 2), (1,)]
    assert not table.state.segments[1].closed
    [first, _] = table.state.messages
    table.hear(0, first, at=1.9)
    said = table.wait()
    assert [c.segment.parts for c in said if isinstance(c, Assign)] == [(4,)]
    assert table.state.now < 1.9 + 2.5


def test_where_all_is_done_and_no_cover_is_disjoint_a_part_is_done_again() -> None:
    """Both have part 5, together with others that the other one has not."""
    table = past_its_border(parts=3)
    said = table.done(1, 1, 2, at=1.8, closed=True)
    assert table.state.missing == 0
    assert [c.segment.parts for c in said if isinstance(c, Assign)] == [(4,)]


def test_where_sending_takes_long_who_runs_dry_is_asked_at_once() -> None:
    """Though it may be given more."""
    for sending, message in ((None, None), (0.5, 4)):
        table = Table(3, 2, step=2.0, sending=sending)
        table.done(0, 0, 1, at=0.6)
        assert table.done(1, 1, 1, at=1.0) == [ask(1, 3, 1)]
        table.done(2, 2, 1, at=1.0)
        said = table.done(0, 0, 2, at=1.2)
        assert (ask(0, 4, 0) in said) is (message is not None)


def test_asking_early_pays_on_a_network_that_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The root takes one message at a time, for 0.2 s."""
    unit = 0.5 + np.random.default_rng(0).exponential(0.5, (8, 4))
    early = taken(auto(4, 1), unit, network=Network(port=0.2))
    monkeypatch.setattr(collecting, "_LONG", math.inf)
    late = taken(auto(4, 1), unit, network=Network(port=0.2))
    assert early < 0.99 * late


# -- when lists are looked at ----------------------------------------------------------


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note when lists are looked at."""
    found: list[float] = []
    before = Hands.sight

    def sight(hands: Hands, state: State) -> Sight:
        found.append(state.now)
        return before(hands, state)

    monkeypatch.setattr(Hands, "sight", sight)
    return found


def test_lists_are_looked_at_once_in_a_round_trip(looks: list[float]) -> None:
    """However many run dry in it; and once more for those who came in between."""
    table = Table(6, 2)
    for worker in range(6):
        table.done(worker, worker, 1, at=1.0 + 0.01 * worker)
    assert looks == [1.0]
    table.wait(until=1.5)
    assert looks == [1.0, pytest.approx(1.1)]
    table.wait(until=1.9)
    assert len(looks) == 2  # nobody is idle


def test_while_somebody_idles_lists_are_looked_at_now_and_then(
    looks: list[float],
) -> None:
    """After a round trip, or a twentieth of the time so far if that is more."""
    table = Table(2, 2)
    table.done(0, 0, 1, at=1.0)
    table.done(1, 1, 1, at=1.0)
    table.done(0, 0, 2, at=2.0)
    table.hear(0, 2, at=2.05)
    looks.clear()
    table.wait(until=5.0)
    assert len(looks) > 10
    gaps = [later - at for at, later in pairwise(looks)]
    for at, gap in zip(looks, gaps, strict=False):
        assert gap == pytest.approx(max(TRIP, 0.05 * at))


def test_a_run_has_no_more_looks_than_round_trips(looks: list[float]) -> None:
    """But for those that must be, when a part that two were at is done."""
    unit = 0.5 + np.random.default_rng(0).exponential(0.5, (6, 6))
    latency = 0.02
    total = taken(auto(6, 8), unit, 0.5, latency)
    assert 10 < len(looks) < total / (2 * latency)
    gaps = [later - at for at, later in pairwise(looks) if at > 2.0]  # when it is known
    assert sum(gap < 0.9 * 2 * latency for gap in gaps) <= 0.1 * len(gaps)


def test_a_ring_is_looked_at_before_anybody_runs_dry() -> None:
    """At a quarter of a step, and twice more. Help takes a detour: 0 helps 1."""
    table = Table(4, 4, copies=2)
    assert table.wake == pytest.approx(1.0)
    for worker in (0, 1, 3):
        table.done(worker, worker, 1, at=0.9)
    said = table.wait()
    assert table.state.now == pytest.approx(2.0)
    assert [c for c in said if isinstance(c, Cut)] == [cut(1, 1, keep=2), cut(2, 2, 1)]
    [first, second] = [c.segment for c in said if isinstance(c, Assign)]
    assert (first.worker, first.parts) == (0, (7, 6))
    assert (second.worker, sorted(second.parts)) == (1, [8, 9, 10, 11])


def test_a_ring_may_be_left_alone_until_somebody_runs_dry() -> None:
    table = Table(4, 4, copies=2, early=False)
    assert table.wake == pytest.approx(1.3 * 4.0)


def test_where_everybody_holds_everything_there_is_no_early_look() -> None:
    assert Table(4, 4).wake == pytest.approx(1.3 * 4.0)


# -- few sums --------------------------------------------------------------------------


def test_a_worker_without_room_sends_what_it_has_and_forgets_it() -> None:
    """It may hold two sums. Those are asked for; when they are here it gets more."""
    table = Table(2, 3, rows=2)
    table.done(0, 0, 1, at=0.4)
    assert table.done(0, 0, 2, at=0.8) == [give(2, 0, (5,)), cut(1, 1, keep=2)]
    table.done(1, 1, 1, at=1.0)
    table.done(0, 0, 3, at=1.2)
    assert table.done(0, 2, 1, at=1.6) == [ask(0, 4, 0, 2)]
    table.tell(WorkersLost((1,), at=1.65))
    assert table.wait(until=1.66) == []  # there is no room
    assert table.hear(0, 4, at=1.7) == []
    assert table.wait() == [Drop(0, 0), give(5, 0, (3, 4))]
    assert table.state.now == pytest.approx(1.7)


def test_what_is_being_given_takes_room_as_well() -> None:
    state = Table(2, 2, rows=3).state
    orders = Orders(state)
    assert changing._rooms(state, orders, 0) == 2
    orders.assign(0, (2,))
    orders.assign(1, (0,))
    assert changing._rooms(state, orders, 0) == 1


def test_where_nobody_has_room_lists_stay_as_they_are() -> None:
    """Parts of the second who is lost wait until somebody is through."""
    table = Table(4, 3, rows=2)
    table.tell(WorkersLost((3,), at=0.5))
    more = [c for c in table.wait(until=0.7) if isinstance(c, Assign)]
    assert sorted(c.segment.worker for c in more) == [0, 1, 2]  # two sums each, now
    table.tell(WorkersLost((2,), at=0.8))
    assert table.wait(until=0.95) == []
    assert len(table.done(0, 0, 1, at=1.0)) == 0


# -- the end of patience ---------------------------------------------------------------


def test_giving_up_a_step_says_who_is_lost_and_who_is_late() -> None:
    table = Table(3, 2, copies=2)
    table.tell(WorkersLost((1,), at=0.5))
    end: list[Command] = []
    while not any(isinstance(c, GiveUp) for c in end):
        end = table.wait()
    [why] = [c.reason for c in end if isinstance(c, GiveUp)]
    assert why == (
        "not all parts were heard after 1800 s (no step has ended yet); "
        "lost workers [1]; late workers [0, 2]"
    )


def test_giving_up_a_step_says_so_if_more_copies_would_have_helped() -> None:
    table = Table(4, 1, copies=2)
    for worker in (0, 3):  # who hold the part of worker 0
        table.tell(WorkersLost((worker,), at=0.1))
    table.wait()
    for at, id_ in ((1.0, 1), (1.1, 2)):
        table.done(id_, id_, 1, at)
    end: list[Command] = []
    while not any(isinstance(c, GiveUp) for c in end):
        for order in end:
            if isinstance(order, Assign):
                segment = order.segment
                table.done(segment.worker, segment.id, 1, at=table.state.now + 0.5)
            elif isinstance(order, Upload):
                table.hear(order.worker, order.message, at=table.state.now)
        end = table.wait()
    [why] = [c.reason for c in end if isinstance(c, GiveUp)]
    assert why.endswith("; more copies than 2 of every part would have helped")


def test_more_copies_help_where_a_part_is_with_nobody_else() -> None:
    table = Table(4, 1, copies=2)
    plan = table.coordinator._plan
    assert isinstance(plan, LivePlan)
    assert plan._is_held_by_none(table.state, {0, 3})  # part 0 is theirs
    assert not plan._is_held_by_none(table.state, {0, 2})
    assert not plan._is_held_by_none(table.state, {0, 1, 2, 3})  # nor would all


# -- what is expected ------------------------------------------------------------------


def expects(took: float, **options: object) -> float:
    """Return when worker 0, of which nothing was heard, should be done with a part."""
    table = Table(2, 2, **options)
    layout = PartLayout(2, 4, 2)
    hands = Hands(expected(layout, **options), 2)
    state = table.state
    hands.give(state, 0, 0, (0, 1))
    state.now = took
    [(_, _, end), *_] = hands.sight(state).under_way
    return end


def test_who_is_not_late_is_expected_as_forecast() -> None:
    assert expects(0.5, fixed=2.0) == pytest.approx(3.0)
    assert expects(3.05, fixed=2.0) == pytest.approx(3.05)  # any moment


def test_who_is_late_is_expected_to_be_later_the_later_it_is() -> None:
    assert expects(1.05) == pytest.approx(1.2 * 1.05)
    assert expects(1.5) == pytest.approx(3.0 * 1.5)


def test_who_is_late_is_expected_as_others_were_who_were_as_late() -> None:
    """Four of five of those took no more than 2.3 times as long as expected."""
    past = (0.9, 1.0, 1.0, 1.1, 2.0, 2.1, 2.2, 2.25, 2.3, 5.0)
    assert expects(1.5, surprises=past) == pytest.approx(2.3)
    assert expects(0.5, surprises=past) == pytest.approx(2.3)
    assert expects(2.24, surprises=past) == pytest.approx(3.0 * 2.24)  # only three
