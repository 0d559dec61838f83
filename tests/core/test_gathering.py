"""Messages that go to workers, and messages that gather them: state and session."""

import math
from collections.abc import Callable

import pytest

from codedgrad.core import (
    ROOT,
    Ask,
    Assign,
    Capabilities,
    Coordinator,
    Decision,
    Drop,
    Event,
    Finish,
    Ledger,
    MessageArrived,
    MessageFailed,
    Orders,
    Segment,
    Send,
    Session,
    State,
    StepStarted,
    Traits,
    Upload,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.patience import Deadline
from codedgrad.errors import BrokenPlan
from codedgrad.schemes import coded_reduce
from codedgrad.testing.invariants import check_state

PARTS = 5


class Step:
    """An open step of four workers who may have any of five parts.

    Workers 0 to 2 are given part 0 to 2 and worker 3 the last two, with coefficients
    2, 3, 4 and 5. Segments are 0 to 3.
    """

    def __init__(self) -> None:
        self.alive = [True] * 4
        everything = (frozenset(range(PARTS)),) * 4
        deadline, engine = Deadline(60.0, "a test"), Capabilities()
        self.state = State(0, 0.0, everything, PARTS, self.alive, deadline, engine)
        for worker, parts in enumerate(((0,), (1,), (2,), (3, 4))):
            weights = (worker + 2.0,) * len(parts)
            segment = Segment(worker, worker, parts, weights)
            self.state.obey(Assign(0, segment, None, whole=True))

    def ask(
        self,
        worker: int,
        *gathered: tuple[int, float],
        to: int = ROOT,
        segment: int | None = None,
    ) -> int:
        """Ask for the sum of a worker, its first unless another is named."""
        message = self.state.next_id
        sums = (worker if segment is None else segment,)
        self.state.obey(Upload(0, worker, message, sums, gathered, to))
        return message

    def hear(self, message: int, finite: bool = True) -> str:
        """Let a message arrive; return why not, if it is turned away."""
        known = self.state.messages[message]
        cuts = tuple(
            (id_, len(self.state.segments[id_].segment.parts)) for id_ in known.segments
        )
        event = MessageArrived(0, known.worker, message, cuts, 1.0, finite)
        return self.state.accept(event)

    def sent(self, worker: int, *gathered: tuple[int, float], to: int = ROOT) -> int:
        """Ask for the sum of a worker, and hear it."""
        message = self.ask(worker, *gathered, to=to)
        assert self.hear(message) == ""
        return message

    def lose(self, worker: int) -> None:
        self.alive[worker] = False
        self.state.forget(worker, "lost")

    def check(self) -> None:
        check_state(self.state)


@pytest.fixture
def step() -> Step:
    return Step()


# -- a worker's side -------------------------------------------------------------------


def session() -> Session:
    session = Session(1)
    session.order(Assign(0, Segment(0, 1, (7,), (1.0,)), None, whole=True))
    return session


def test_an_upload_says_what_is_to_be_added_and_where_it_goes() -> None:
    worker = session()
    assert worker.order(Upload(0, 1, 4, (0,), ((2, 0.5), (3, -1.0)), 6)) == []
    *_, send = worker.finish(worker.task)
    assert send == Send(0, 4, ((0, 1),), ((2, 0.5), (3, -1.0)), 6)


def test_without_a_word_messages_go_to_the_root_and_gather_nothing() -> None:
    worker = session()
    worker.finish(worker.task)
    assert worker.order(Upload(0, 1, 4, (0,))) == [Send(0, 4, ((0, 1),), (), ROOT)]


def test_what_is_sent_when_it_is_done_goes_where_the_assignment_says() -> None:
    worker = Session(1)
    worker.order(Assign(0, Segment(0, 1, (7,), (1.0,)), 1, whole=True, to=5))
    *_, send = worker.finish(worker.task)
    assert send == Send(0, 1, ((0, 1),), (), 5)


def test_a_sum_may_be_sent_once_more() -> None:
    worker = session()
    worker.finish(worker.task)
    sends = [
        worker.order(Upload(0, 1, number, (0,), ((2, 0.5),), 6)) for number in (4, 5)
    ]
    assert sends == [[Send(0, n, ((0, 1),), ((2, 0.5),), 6)] for n in (4, 5)]


def test_a_newer_step_forgets_what_was_to_be_gathered() -> None:
    worker = session()
    worker.order(Upload(0, 1, 4, (0,), ((2, 0.5),), 6))
    worker.order(Assign(1, Segment(0, 1, (7,), (1.0,)), 4))
    *_, send = worker.finish(worker.task)
    assert send == Send(1, 4, ((0, 1),))


# -- orders ----------------------------------------------------------------------------


def test_orders_are_built_with_what_is_gathered_and_where_it_goes(step: Step) -> None:
    orders = Orders(step.state)
    segment, message = orders.assign(3, [4], upload=True, whole=True, to=2)
    assert orders.upload(1, [1], [(message, 2.0)], 0) == 6
    assert orders.ask(9.0).orders == (
        Assign(0, Segment(segment, 3, (4,), (1.0,)), message, whole=True, to=2),
        Upload(0, 1, 6, (1,), ((message, 2.0),), 0),
    )


# -- what cannot be meant --------------------------------------------------------------


@pytest.mark.parametrize("to", [-2, 4, 2], ids=["nobody", "nobody else", "itself"])
def test_a_message_goes_to_the_root_or_to_another_worker(step: Step, to: int) -> None:
    with pytest.raises(BrokenPlan, match="sends to a worker that is not there"):
        step.ask(2, to=to)
    segment = Segment(4, 2, (2,), (1.0,))
    with pytest.raises(BrokenPlan, match="sends to a worker that is not there"):
        step.state.obey(Assign(0, segment, 5, to=to))


def test_a_message_does_not_go_to_a_worker_that_is_lost(step: Step) -> None:
    step.lose(1)
    with pytest.raises(BrokenPlan, match="sends to a worker that is not there"):
        step.ask(2, to=1)


def test_nothing_is_gathered_that_has_not_come(step: Step) -> None:
    message = step.ask(2, to=1)
    with pytest.raises(BrokenPlan, match=f"adds message {message}, which is not there"):
        step.ask(1, (message, 1.0))
    with pytest.raises(BrokenPlan, match="adds message 99, which is not there"):
        step.ask(1, (99, 1.0))
    step.hear(message)
    step.ask(1, (message, 1.0))


def test_nothing_is_gathered_that_is_doubted(step: Step) -> None:
    message = step.ask(2, to=1)
    step.hear(message, finite=False)
    with pytest.raises(BrokenPlan, match="which is not there"):
        step.ask(1, (message, 1.0))


@pytest.mark.parametrize("to", [ROOT, 0])
def test_nothing_is_gathered_that_went_elsewhere(step: Step, to: int) -> None:
    message = step.sent(2, to=to)
    with pytest.raises(BrokenPlan, match=f"adds message {message}, which went else"):
        step.ask(1, (message, 1.0))


def test_nothing_is_gathered_that_came_to_a_former_life(step: Step) -> None:
    message = step.sent(2, to=1)
    step.lose(1)
    step.alive[1] = True
    step.state.obey(Assign(0, Segment(5, 1, (1,), (3.0,)), None, whole=True))
    with pytest.raises(BrokenPlan, match=f"adds message {message}, which is not there"):
        step.ask(1, (message, 1.0), segment=5)


def test_nothing_is_gathered_that_came_to_a_worker_before_it_was_dropped(
    step: Step,
) -> None:
    message = step.sent(2, to=1)
    step.state.obey(Drop(0, 1))
    step.state.obey(Assign(0, Segment(5, 1, (1,), (3.0,)), None, whole=True))
    with pytest.raises(BrokenPlan, match=f"adds message {message}, which is not there"):
        step.ask(1, (message, 1.0), segment=5)


def test_a_message_is_added_once(step: Step) -> None:
    message = step.sent(2, to=1)
    with pytest.raises(BrokenPlan, match="adds a message twice"):
        step.ask(1, (message, 1.0), (message, 1.0))


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_are_finite(step: Step, weight: float) -> None:
    message = step.sent(2, to=1)
    with pytest.raises(BrokenPlan, match="a weight that is not finite"):
        step.ask(1, (message, weight))


def test_nothing_is_gathered_into_a_sum_that_may_be_cut(step: Step) -> None:
    """It may be cut to nothing, and then there is no sum to add to."""
    message = step.sent(2, to=1)
    step.state.obey(Assign(0, Segment(5, 1, (1,), (3.0,)), None))
    with pytest.raises(BrokenPlan, match="gathers into a sum that may be cut"):
        step.ask(1, (message, 1.0), segment=5)


def test_a_sum_that_gathers_is_only_ever_sent_as_it_was(step: Step) -> None:
    """Engines add what is gathered to the sum itself."""
    first, second = step.sent(2, to=1), step.sent(3, to=1)
    sent = step.ask(1, (first, 1.0), to=0)
    said = f"shares a sum with message {sent}, which gathers otherwise"
    for gathered in ((), ((first, 2.0),), ((first, 1.0), (second, 1.0))):
        with pytest.raises(BrokenPlan, match=said):
            step.ask(1, *gathered, to=0)
    again = step.ask(1, (first, 1.0))  # to whom does not matter
    assert step.state.messages[again].pending


def test_a_sum_that_was_sent_by_itself_does_not_gather_any_more(step: Step) -> None:
    sent, message = step.ask(1), step.sent(2, to=1)
    with pytest.raises(BrokenPlan, match=f"shares a sum with message {sent}"):
        step.ask(1, (message, 1.0))


def test_sums_that_gather_nothing_may_be_sent_in_any_company(step: Step) -> None:
    step.state.obey(Assign(0, Segment(4, 1, (0,), (1.0,)), None))
    for number, sums in enumerate(((1,), (1, 4), (4,)), 5):
        step.state.obey(Upload(0, 1, number, sums))


def test_another_sum_of_the_same_worker_may_gather_something_else(step: Step) -> None:
    message = step.sent(2, to=1)
    step.state.obey(Assign(0, Segment(5, 1, (0,), (1.0,)), None, whole=True))
    step.ask(1, (message, 1.0))
    step.ask(1, (message, 7.0), segment=5)


class Scripted:
    """Two workers; the second sends to the first, and the plan answers as told."""

    name, workers, parts, tolerance, exact = "scripted", 2, 2, 0, True
    placement = ((0,), (1,))

    def __init__(self, judge: Callable[[State, Event], Decision]) -> None:
        self.judge = judge

    traits = Traits()

    def plan(self, step: int, history: object) -> "Scripted":
        return self

    def first(self, state: State) -> Ask:
        orders = Orders(state)
        orders.assign(0, [0], whole=True)
        orders.assign(1, [1], upload=True, to=0)
        return orders.ask(9.0)


def test_the_root_does_not_weigh_what_was_sent_elsewhere() -> None:
    coordinator = Coordinator(Scripted(lambda s, e: Finish(((2, 1.0),), 0.0)))
    coordinator.handle(StepStarted(0, 0.0))
    with pytest.raises(BrokenPlan, match="uses message 2, sent elsewhere"):
        coordinator.handle(MessageArrived(0, 1, 2, ((1, 1),), 1.0))


# -- whoever is to hear it is lost -----------------------------------------------------


@pytest.mark.parametrize("why", ["lost", "dropped"])
def test_what_is_sent_to_a_worker_is_gone_with_it(step: Step, why: str) -> None:
    came, coming = step.sent(2, to=1), step.ask(3, to=1)
    if why == "lost":
        step.lose(1)
    else:
        step.state.obey(Drop(0, 1))
    for message in (came, coming):
        known = step.state.messages[message]
        assert known.gone
        assert not known.pending
    assert step.hear(coming) == "repeated"
    assert not step.state.segments[3].gone  # its sender still has the sum
    step.check()


def test_what_was_sent_before_stays_gone_when_a_worker_is_back(step: Step) -> None:
    message = step.ask(2, to=1)
    step.lose(1)
    step.alive[1] = True
    assert step.hear(message) == "repeated"
    again = step.ask(2, to=1)
    assert step.hear(again) == ""
    step.check()


def test_losses_of_others_leave_a_message_alone(step: Step) -> None:
    message = step.ask(2, to=1)
    step.lose(0)
    assert step.hear(message) == ""


def test_what_came_to_the_root_stays_when_its_sender_is_lost(step: Step) -> None:
    below = step.sent(2, to=1)
    message = step.sent(1, (below, 0.5))
    for worker in (1, 2):
        step.lose(worker)
    assert not step.state.messages[message].gone
    assert step.state.row(message) == {1: 3.0, 2: 2.0}
    step.check()


def test_what_is_doubted_on_its_way_to_a_worker_is_gone_with_that_worker(
    step: Step,
) -> None:
    message = step.ask(2, to=1)
    step.hear(message, finite=False)
    assert step.state.doubted == [message]
    step.lose(1)
    assert step.state.doubted == []
    step.check()


def test_a_sum_that_fails_takes_with_it_whatever_else_was_to_be_made_of_it(
    step: Step,
) -> None:
    first, second = step.ask(2, to=1), step.ask(2, to=0)
    assert step.state.accept(MessageFailed(0, 2, first, "torn", 1.0)) == ""
    assert step.state.messages[second].gone
    step.check()


# -- what a message holds --------------------------------------------------------------


def test_the_row_of_a_message_is_its_own_and_those_it_gathers_weighted(
    step: Step,
) -> None:
    low = step.sent(3, to=2)
    middle = step.sent(2, (low, 0.5), to=1)
    top = step.sent(1, (middle, -2.0))
    assert step.state.row(low) == {3: 5.0, 4: 5.0}
    assert step.state.row(middle) == {2: 4.0, 3: 2.5, 4: 2.5}
    assert step.state.row(top) == {1: 3.0, 2: -8.0, 3: -5.0, 4: -5.0}


def test_copies_of_a_part_are_added_up_in_a_row(step: Step) -> None:
    step.state.obey(Assign(0, Segment(4, 2, (1, 3), (0.5, 0.25)), None, whole=True))
    message = step.state.next_id
    step.state.obey(Upload(0, 2, message, (4,), (), 1))
    step.hear(message)
    top = step.sent(1, (message, 2.0))
    assert step.state.row(top) == {1: 4.0, 3: 0.5}


def test_what_is_under_way_will_hold_what_was_gathered_for_it(step: Step) -> None:
    low = step.sent(3, to=2)
    message = step.state.messages[step.ask(2, (low, 0.5))]
    assert step.state.to_come(message) == {2, 3, 4}


# -- where parts stand -----------------------------------------------------------------


def test_parts_are_covered_when_their_sum_comes_to_the_root_and_not_before(
    step: Step,
) -> None:
    low = step.sent(3, to=1)
    assert step.state.ledger.uncovered == PARTS
    assert step.state.ledger.covered == [0] * PARTS
    step.sent(1, (low, 1.0))
    assert step.state.ledger.covered == [0, 1, 0, 1, 1]
    step.check()


def test_parts_that_others_gathered_outlive_their_worker_once_they_are_heard(
    step: Step,
) -> None:
    low = step.sent(3, to=1)
    message = step.ask(1, (low, 1.0))
    step.lose(3)
    ledger = step.state.ledger
    assert ledger.missing == PARTS  # as far as is counted
    step.hear(message)
    assert ledger.missing == 2
    assert ledger.is_finished(3)
    step.check()


def test_covering_what_nobody_holds_leaves_it_not_missing() -> None:
    ledger = Ledger(2)
    ledger.assign((1,))
    ledger.cover((0, 1))
    assert (ledger.missing, ledger.uncovered) == (0, 0)
    ledger.cover((0,))
    assert (ledger.missing, ledger.uncovered) == (0, 0)
    assert ledger.covered == [2, 1]


# -- not finite ------------------------------------------------------------------------


class Tree:
    """Six workers: 2 and 3 below 0, 4 and 5 below 1."""

    def __init__(self, tolerance: int = 0) -> None:
        self.coordinator = Coordinator(coded_reduce(6, 2, tolerance))
        self.given = self.coordinator.handle(StepStarted(0, 0.0))
        self.at = 0.0

    @property
    def state(self) -> State:
        state = self.coordinator.state
        assert state is not None
        return state

    def feed(self, event: Event) -> list:
        commands = self.coordinator.handle(event)
        self.given += commands
        return commands

    def send(self, worker: int, finite: bool = True) -> list:
        """Let a worker send what it was asked for last."""
        order = next(
            o for o in reversed(self.given)
            if isinstance(o, Assign | Upload) and o.message is not None
            and (o.segment.worker if isinstance(o, Assign) else o.worker) == worker
        )  # fmt: skip
        ids = order.segments if isinstance(order, Upload) else (order.segment.id,)
        known = {
            o.segment.id: len(o.segment.parts)
            for o in self.given
            if isinstance(o, Assign)
        }
        cuts = tuple((id_, known[id_]) for id_ in ids)
        self.at += 1.0
        args = 0, worker, order.message, cuts, self.at
        return self.feed(MessageArrived(*args, finite))


def test_what_passes_on_a_nan_that_was_handed_over_is_handed_over() -> None:
    tree = Tree()
    tree.send(2, finite=False)
    tree.send(2, finite=False)  # its own second opinion
    assert tree.state.diverged
    tree.send(3)
    assert tree.send(0, finite=False) == []
    assert tree.state.doubted == []
    assert len(tree.state.heard) == 3


def test_who_passes_on_a_nan_does_not_agree_with_anybody() -> None:
    tree = Tree()
    tree.send(2, finite=False)
    tree.send(2, finite=False)
    tree.send(3)
    tree.send(0, finite=False)
    (question,) = tree.send(4, finite=False)
    assert question.segment.worker == 4  # nothing is known of its parts
    tree.send(4)
    assert tree.state.contradicted == [4]


def test_who_passes_on_a_nan_is_not_blamed_for_it() -> None:
    """Even if others say later that what it had gathered should have been finite."""
    tree = Tree(tolerance=1)  # whoever is below a parent holds the same
    for worker in (1, 3, 4, 5):
        tree.feed(WorkersLost((worker,), tree.at))
    tree.send(2, finite=False)
    tree.send(2, finite=False)
    assert tree.state.diverged
    tree.feed(WorkersJoined((1,), tree.at))
    tree.feed(WorkersJoined((4,), tree.at))
    tree.send(4)
    assert tree.state.contradicted == []
    tree.send(0, finite=False)
    assert tree.coordinator.history.records[-1].contradicted == ()


def test_a_sender_is_asked_again_for_its_own_parts_and_not_for_what_it_gathered() -> (
    None
):
    tree = Tree()
    tree.send(2)
    tree.send(3)
    (question,) = tree.send(0, finite=False)
    assert set(question.segment.parts) == tree.state.placement[0]


def test_what_was_gathered_contradicts_a_nan_together_with_an_opinion() -> None:
    tree = Tree()
    tree.send(2)
    tree.send(3)
    tree.send(0, finite=False)
    again = tree.send(0)
    assert tree.state.contradicted == [0]
    assert [type(order) for order in again] == [Assign, Upload]
