"""CodedReduce: every parent decodes, whoever is late, lost, back or not finite."""

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import product

import numpy as np
import pytest
from msgspec import structs

from codedgrad import codes
from codedgrad.codes.tree import ROOT, Tree, allocate
from codedgrad.core import (
    Assign,
    Capabilities,
    Combine,
    Command,
    Coordinator,
    Event,
    GiveUp,
    MessageArrived,
    MessageFailed,
    Scheme,
    StepStarted,
    TimerFired,
    Upload,
    WakeAt,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import ShiftedExponential, Times, draw
from codedgrad.errors import CodedgradError
from codedgrad.learning.estimators import Reliability
from codedgrad.schemes import (
    CodedReduce,
    build,
    coded_reduce,
    cyclic,
    fractional,
    uncoded,
)
from codedgrad.schemes.coded_reduce.seating import Seating, deal, with_the_absent_last
from codedgrad.sim import Machine, Simulator, record
from codedgrad.testing import Invariants, Schedule, SimulatedFault, check_scheme, run
from codedgrad.testing.faulty_simulator import Troubled
from codedgrad.trace import replay

from ..tree_oracle import delivers

TWELVE = coded_reduce(12, 3, 1)  # 0 to 2 above 3 to 5, 6 to 8 and 9 to 11
LEAVES = range(3, 12)


class Cluster:
    """Workers that say something when a test lets them; all decisions are watched.

    Attributes:
        orders: Given in the open step, of those that are there.
        end: How the last step ended; None while it is open.
    """

    def __init__(
        self, scheme: CodedReduce, capabilities: Capabilities | None = None
    ) -> None:
        self.tree = scheme.tree
        self.coordinator = Coordinator(scheme, capabilities)
        self.invariants = Invariants(scheme, capabilities)
        self.step, self.at = -1, 0.0
        self.orders: list[Assign | Upload] = []
        self.sizes: dict[int, int] = {}
        self.end: Combine | GiveUp | None = None

    def feed(self, event: Event) -> list[Command]:
        """Let something happen a moment later; return the orders it leads to."""
        self.at += 2.0**-10
        event = structs.replace(event, at=self.at)
        commands = self.coordinator.handle(event)
        self.invariants(event, commands)
        for command in commands:
            match command:
                case Assign(_, segment):
                    self.orders.append(command)
                    self.sizes[segment.id] = len(segment.parts)
                case Upload():
                    self.orders.append(command)
                case Combine() | GiveUp():
                    self.end = command
        return [command for command in commands if not isinstance(command, WakeAt)]

    def start(self) -> list[Command]:
        self.step += 1
        self.orders.clear()
        self.sizes.clear()
        self.end = None
        return self.feed(StepStarted(self.step, 0.0))

    def lose(self, *workers: int) -> list[Command]:
        self.orders = [order for order in self.orders if owner(order) not in workers]
        return self.feed(WorkersLost(workers, 0.0))

    def join(self, *workers: int) -> list[Command]:
        return self.feed(WorkersJoined(workers, 0.0))

    def message(self, worker: int) -> tuple[int, int]:
        """Return the message that a worker was asked for last, and its segment."""
        for order in reversed(self.orders):
            if owner(order) == worker and order.message is not None:
                return order.message, sum_of(order)
        raise LookupError(worker)

    def send(self, worker: int, finite: bool = True) -> list[Command]:
        """Let a worker send what it was asked for last."""
        message, segment = self.message(worker)
        cuts = ((segment, self.sizes[segment]),)
        return self.feed(MessageArrived(self.step, worker, message, cuts, 0.0, finite))

    def fail(self, worker: int) -> list[Command]:
        """Let that message be unusable."""
        message, _ = self.message(worker)
        return self.feed(MessageFailed(self.step, worker, message, "torn", 0.0))

    def run_out(self) -> list[Command]:
        """Let the time of the step run out."""
        state = self.coordinator.state
        assert state is not None
        self.at = state.started + state.deadline.seconds
        return self.feed(TimerFired(0.0))

    def play(self, late: Collection[int], order: Callable = list) -> Combine | None:
        """Take a step in which all but the late send what they are asked for."""
        self.start()
        said = set[int]()
        while self.end is None:
            asked = [o for o in self.orders if o.message not in (None, *said)]
            ready = [o for o in asked if owner(o) not in late]
            if not ready:
                self.run_out()
                break
            for each in order(ready):
                if self.end is None and each.message is not None:
                    said.add(each.message)
                    cuts = ((sum_of(each), self.sizes[sum_of(each)]),)
                    args = self.step, owner(each), each.message, cuts, 0.0
                    self.feed(MessageArrived(*args))
        return self.end if isinstance(self.end, Combine) else None


def owner(order: Assign | Upload) -> int:
    return order.segment.worker if isinstance(order, Assign) else order.worker


def sum_of(order: Assign | Upload) -> int:
    return order.segment.id if isinstance(order, Assign) else order.segments[0]


def shuffled(seed: int) -> Callable[[list], list]:
    rng = np.random.default_rng(seed)
    return lambda items: [items[i] for i in rng.permutation(len(items))]


def who(cluster: Cluster) -> set[int]:
    """The workers of the messages that the last sum weighs."""
    state = cluster.coordinator.history.records[-1].state
    assert isinstance(cluster.end, Combine)
    return {state.messages[message].worker for message, _ in cluster.end.weights}


def subsets(workers: int) -> Iterator[tuple[int, ...]]:
    """All of them, each differing from the one before by one worker."""
    for number in range(2**workers):
        gray = number ^ (number >> 1)
        yield tuple(worker for worker in range(workers) if gray >> worker & 1)


# -- the worked example: 3 children, 2 layers, tolerance 1, 15 parts -------------------


def test_the_orders_of_a_step_are_the_allocation_of_the_tree() -> None:
    """The example's own B is not ours: its numbers are in tests/codes/test_tree.py."""
    matrix = codes.cyclic(3, 1).B.toarray().tolist()
    wanted = allocate(Tree(children=3, layers=2), matrix, 15)
    given = {owner(o): o for o in Cluster(TWELVE).start() if isinstance(o, Assign)}
    assert sorted(given) == list(range(12))
    for worker, order in given.items():
        parts, weights = wanted.own[worker]
        assert order.segment.parts == parts
        assert order.segment.coefficients == pytest.approx(weights, rel=1e-15)
        assert len(parts) == TWELVE.load == 4
        assert order.whole


def test_leaves_send_to_the_worker_above_and_inner_workers_wait_to_be_asked() -> None:
    given = Cluster(TWELVE).start()
    assert [(owner(o), o.to, o.message is None) for o in given] == [
        (0, ROOT, True), (3, 0, False), (4, 0, False), (5, 0, False),
        (1, ROOT, True), (6, 1, False), (7, 1, False), (8, 1, False),
        (2, ROOT, True), (9, 2, False), (10, 2, False), (11, 2, False),
    ]  # fmt: skip


def test_a_parent_is_asked_for_its_sum_and_what_it_has_heard_as_soon_as_it_can() -> (
    None
):
    cluster = Cluster(TWELVE)
    cluster.start()
    assert cluster.send(5) == []
    (upload,) = cluster.send(3)
    decoding = dict(codes.decode(TWELVE.code, [0, 2]).weights)
    heard = {0: cluster.message(3)[0], 2: cluster.message(5)[0]}
    own = next(o.segment.id for o in cluster.orders if owner(o) == 0)
    assert upload == Upload(
        0, 0, upload.message, (own,),
        tuple(sorted((heard[child], a) for child, a in decoding.items())), ROOT,
    )  # fmt: skip
    assert cluster.send(4) == []  # one too late


def test_the_root_ends_the_step_with_the_messages_of_the_first_layer_alone() -> None:
    cluster = Cluster(TWELVE)
    assert cluster.play(late=(1, 4)) is not None
    assert who(cluster) == {0, 2}
    weights = {w for _, w in cluster.end.weights}
    assert weights == {a for _, a in codes.decode(TWELVE.code, [0, 2]).weights}


@pytest.mark.parametrize("rule", ["decodable", "threshold"])
def test_the_sum_is_exact_with_one_late_at_every_parent_whoever_it_is(
    rule: str,
) -> None:
    """All 256 patterns; `Invariants` rebuilds every sum from the orders given."""
    cluster = Cluster(coded_reduce(12, 3, 1, rule=rule))
    families = [range(3), range(3, 6), range(6, 9), range(9, 12)]
    for late in product(*((None, *family) for family in families)):
        missing = {worker for worker in late if worker is not None}
        combine = cluster.play(missing, shuffled(cluster.step + 1))
        assert combine is not None, late
        assert combine.residual < 1e-20


def test_weights_are_inherited_down_three_layers() -> None:
    cluster = Cluster(coded_reduce(39, 3, 1))
    rng = np.random.default_rng(0)
    families = [range(n, n + 3) for n in range(0, 39, 3)]
    for _ in range(40):
        late = {int(rng.choice(family)) for family in families}
        assert cluster.play(late, shuffled(cluster.step + 1)) is not None


# -- the deliver rule ------------------------------------------------------------------


def test_a_sum_comes_exactly_where_the_deliver_rule_says_so_however_late_they_are() -> (
    None
):
    """All 4096 sets of late workers, 640 of which can be done without."""
    cluster = Cluster(coded_reduce(12, 3, 1, rule="threshold"))
    found = 0
    for late in subsets(12):
        alive = set(range(12)).difference(late)
        expected = delivers(cluster.tree, 1, alive)
        assert (cluster.play(late) is not None) == expected, late
        found += expected
    assert found == 640


def test_a_sum_comes_exactly_where_the_deliver_rule_says_so_if_they_are_lost() -> None:
    cluster = Cluster(TWELVE)
    gone: set[int] = set()
    found = 0
    for late in list(subsets(12))[::7]:
        for worker in gone.symmetric_difference(late):
            (cluster.lose if worker in late else cluster.join)(worker)
        gone = set(late)
        expected = delivers(TWELVE.tree, 1, set(range(12)) - gone)
        assert (cluster.play(late) is not None) == expected, late
        found += expected
    assert found > 60


def test_decoding_as_soon_as_possible_is_never_later_than_counting() -> None:
    """Repetition needs one child of every pair; counting needs any three of four."""
    early = Cluster(coded_reduce(20, 4, 1))
    counted = Cluster(coded_reduce(20, 4, 1, inner="cyclic", rule="threshold"))
    rng = np.random.default_rng(1)
    more = 0
    for _ in range(120):
        late = set(rng.choice(20, size=rng.integers(12), replace=False).tolist())
        first = early.play(late) is not None
        second = counted.play(late) is not None
        assert second == delivers(early.tree, 1, set(range(20)) - late)
        assert first >= second
        more += first and not second
    assert more > 10


def test_any_late_workers_up_to_the_tolerance_are_survived_and_not_one_more() -> None:
    assert TWELVE.tolerance == 1
    assert Cluster(TWELVE).play(late=(0, 1)) is None
    for worker in range(12):
        assert Cluster(TWELVE).play(late=(worker,)) is not None


def test_a_step_that_cannot_be_saved_says_who_is_missing_and_what_would_help() -> None:
    cluster = Cluster(TWELVE)
    cluster.lose(0)
    cluster.play(late=(1, 4))
    assert isinstance(cluster.end, GiveUp)
    assert "not decodable after 1800 s" in cluster.end.reason
    assert "lost workers [0]" in cluster.end.reason
    assert "late workers [1, 3, 4, 5]" in cluster.end.reason
    assert "a tolerance of 2 would have survived at the root" in cluster.end.reason


def test_who_is_below_a_worker_that_has_enough_is_not_called_missing() -> None:
    cluster = Cluster(TWELVE)
    cluster.play(late=(0, 1, 5))
    assert isinstance(cluster.end, GiveUp)
    assert "late workers [0, 1];" in cluster.end.reason


# -- special trees ---------------------------------------------------------------------


def times(workers: int, steps: int = 30, seed: int = 0) -> Times:
    law = ShiftedExponential(floor=1.0, mean=0.6)
    return draw(law, steps=steps, workers=workers, seed=seed)


@pytest.mark.parametrize("rule", ["decodable", "threshold"])
@pytest.mark.parametrize(
    ("options", "plain"),
    [
        ({"tolerance": 1}, lambda rule: fractional(6, 1, rule=rule)),
        (
            {"tolerance": 1, "inner": "cyclic"},
            lambda rule: cyclic(6, 1, rule=rule),
        ),
        ({"tolerance": 3}, lambda rule: cyclic(6, 3, rule=rule)),
        ({"tolerance": 0}, lambda rule: uncoded(6)),
    ],
    ids=["fractional", "cyclic", "cyclic of 3", "uncoded"],
)
def test_a_tree_of_one_layer_is_plain_gradient_coding(
    options: dict, plain: Callable[[str], Scheme], rule: str
) -> None:
    """The same commands at the same moments, number by number."""
    tree = coded_reduce(6, 6, rule=rule, **options)
    assert (tree.load, tree.parts) == (tree.tolerance + 1, 6)
    runs = [
        [(entry.event, entry.commands) for entry in record(scheme, times(6)).entries]
        for scheme in (tree, plain(rule))
    ]
    assert runs[0] == runs[1]
    assert sum(isinstance(c, Combine) for _, commands in runs[0] for c in commands) > 9


def test_without_a_tolerance_it_is_the_uncoded_tree() -> None:
    scheme = coded_reduce(12, 3, 0)
    assert scheme.parts == 12
    assert scheme.placement == tuple((part,) for part in ORDER_12)
    cluster = Cluster(scheme)
    combine = cluster.play(late=())
    assert {weight for _, weight in combine.weights} == {1.0}
    assert who(cluster) == {0, 1, 2}
    uploads = [o for o in cluster.orders if isinstance(o, Upload)]
    assert {a for upload in uploads for _, a in upload.gathered} == {1.0}
    for worker in range(12):
        assert Cluster(scheme).play(late=(worker,)) is None


ORDER_12 = (0, 4, 8, 1, 2, 3, 5, 6, 7, 9, 10, 11)


def test_an_uncoded_tree_takes_as_long_as_its_slowest_worker() -> None:
    drawn = times(12)
    steps = list(Simulator(coded_reduce(12, 3, 0)).run(drawn))
    part = drawn.part(12)
    assert [step.seconds for step in steps] == pytest.approx(part.max(axis=1))


def test_a_chain_is_a_tree_too() -> None:
    cluster = Cluster(coded_reduce(4, 1, 0))
    assert cluster.play(late=()) is not None
    assert who(cluster) == {0}


@pytest.mark.parametrize(
    "scheme",
    [
        coded_reduce(12, 3, 1, rule="threshold"),
        coded_reduce(12, 3, 2),
        coded_reduce(12, 3, 1, parts=20),
        coded_reduce(14, 2, 1),
        coded_reduce(14, 2, 1, inner="cyclic", seats="reliable"),
        coded_reduce(4, 1, 0),
    ],
    ids=lambda s: f"{s.workers} {s.name}",
)
def test_trees_of_all_kinds_pass_the_conformance_suite(scheme: CodedReduce) -> None:
    check_scheme(scheme, schedules=10)


# -- lost, and back --------------------------------------------------------------------


def test_a_lost_inner_worker_makes_those_below_it_late_for_this_step_alone() -> None:
    cluster = Cluster(TWELVE)
    cluster.start()
    for worker in (3, 4):
        cluster.send(worker)
    cluster.lose(0)  # it was asked to send, and has not
    assert [cluster.send(worker) for worker in (5,)] == [[]]  # nobody hears it
    for worker in (6, 7, 9, 10, 1):
        cluster.send(worker)
    (end,) = cluster.send(2)
    assert isinstance(end, Combine)
    assert who(cluster) == {1, 2}
    cluster.join(0)
    assert cluster.play(late=(2,)) is not None
    assert who(cluster) == {0, 1}


def test_who_is_below_a_worker_that_is_away_is_asked_when_it_comes_and_not_before() -> (
    None
):
    cluster = Cluster(TWELVE)
    cluster.lose(1)
    cluster.lose(7)
    assert {owner(order) for order in cluster.start()} == set(range(12)) - {1, 6, 7, 8}
    assert cluster.join(7) == []  # whom should it send to?
    given = cluster.join(1)
    assert [(owner(order), order.to) for order in given] == [
        (1, ROOT), (6, 1), (7, 1), (8, 1),
    ]  # fmt: skip
    assert all(isinstance(order, Assign) for order in given)


@pytest.mark.parametrize("back", [(1, 6, 7), (7, 6, 1)], ids=["above", "below"])
def test_a_parent_and_those_below_it_that_are_back_together_are_each_asked_once(
    back: tuple[int, ...],
) -> None:
    """Whichever of them the event names first."""
    cluster = Cluster(TWELVE)
    cluster.start()
    cluster.send(8)
    assert cluster.lose(6, 1, 7) == []
    given = cluster.join(*back)
    assert [(owner(order), order.to) for order in given] == [
        (1, ROOT), (6, 1), (7, 1), (8, 1),
    ]  # fmt: skip
    assert [type(order) for order in given] == [Assign, Assign, Assign, Upload]


def test_those_below_send_what_they_have_once_more_to_who_is_back() -> None:
    cluster = Cluster(TWELVE)
    cluster.start()
    segment = {w: cluster.message(w)[1] for w in LEAVES}
    cluster.send(3)
    cluster.lose(0)
    cluster.lose(5)
    assert cluster.send(4) == []
    given = cluster.join(0)
    assert [type(order) for order in given] == [Assign, Upload, Upload]
    for order, worker in zip(given[1:], (3, 4), strict=True):
        assert (order.worker, order.segments, order.gathered) == (
            worker, (segment[worker],), (),
        )  # fmt: skip
        assert order.to == 0
    assert cluster.send(3) == []
    (upload,) = cluster.send(4)
    assert (upload.worker, len(upload.gathered)) == (0, 2)
    for worker in (6, 7, 1):
        cluster.send(worker)
    (end,) = cluster.send(0)
    assert isinstance(end, Combine)  # and `Invariants` has weighed it


def test_a_message_to_a_former_life_is_not_heard_by_the_next() -> None:
    cluster = Cluster(TWELVE)
    cluster.start()
    old = cluster.message(3)
    cluster.lose(0)
    cluster.join(0)
    message, segment = old
    cuts = ((segment, 4),)
    assert cluster.feed(MessageArrived(0, 3, message, cuts, 0.0)) == []
    assert cluster.coordinator.ignored == {"repeated": 1}
    assert cluster.send(4) == []  # so there is one message, not two
    (upload,) = cluster.send(3)
    assert old[0] not in dict(upload.gathered)


def test_in_three_layers_a_sum_that_was_gathered_is_sent_once_more_as_it_is() -> None:
    cluster = Cluster(coded_reduce(14, 2, 1))  # 6 and 7 below 2, and 2 below 0
    cluster.start()
    (upload,) = cluster.send(6)
    assert (upload.worker, upload.to) == (2, 0)
    (asked,) = cluster.send(2)
    assert asked.worker == 0
    cluster.lose(0)
    given = cluster.join(0)
    again = next(o for o in given if isinstance(o, Upload) and o.worker == 2)
    assert (again.segments, again.gathered) == (upload.segments, upload.gathered)
    assert not [o for o in given if owner(o) in (6, 7)]  # it has heard enough
    cluster.send(2)
    (end,) = cluster.send(0)
    assert isinstance(end, Combine)


def test_what_is_gathered_while_the_receiver_is_away_is_sent_when_it_is_back() -> None:
    cluster = Cluster(coded_reduce(14, 2, 1))
    cluster.start()
    cluster.lose(0)
    assert cluster.send(6) == []  # worker 2 has enough, and nobody to send it to
    sent = [o for o in cluster.join(0) if isinstance(o, Upload)]
    assert [(o.worker, o.to, len(o.gathered)) for o in sent] == [(2, 0, 1)]


def test_who_is_back_after_it_was_heard_has_nothing_to_do_nor_those_below() -> None:
    """It holds no sum any more: whatever would be sent to it would be for nothing."""
    cluster = Cluster(coded_reduce(3, 1, 0))  # a chain: 2 to 1 to 0
    cluster.start()
    cluster.send(2)
    cluster.send(1)
    for worker in (1, 2):
        cluster.lose(worker)
        assert cluster.join(worker) == []
    (end,) = cluster.send(0)
    assert isinstance(end, Combine)


def test_who_was_heard_by_a_worker_that_is_lost_then_is_asked_again() -> None:
    cluster = Cluster(coded_reduce(3, 1, 0))
    cluster.start()
    cluster.send(2)
    cluster.send(1)
    for worker in (1, 2):
        cluster.lose(worker)
        cluster.join(worker)
    cluster.lose(0)
    given = cluster.join(0)
    assert [(owner(o), type(o)) for o in given] == [(w, Assign) for w in range(3)]
    for worker in (2, 1):
        cluster.send(worker)
    (end,) = cluster.send(0)
    assert isinstance(end, Combine)


def test_who_comes_back_below_a_parent_that_has_enough_is_left_alone() -> None:
    cluster = Cluster(TWELVE)
    cluster.start()
    cluster.send(3)
    cluster.send(4)
    cluster.lose(5)
    assert cluster.join(5) == []


def schedule(seed: int, workers: int) -> Schedule:
    """Draw losses and joins in pairs, and a little of everything else."""
    rng = np.random.default_rng(seed)
    faults: list[SimulatedFault] = []
    for _ in range(rng.integers(2, 2 * workers)):
        worker, lost = int(rng.integers(workers)), rng.exponential(1.5)
        faults.append(SimulatedFault("lose", 0, worker, lost))
        faults.append(SimulatedFault("join", 0, worker, lost + rng.exponential(0.7)))
    for kind in rng.choice(["slow", "nan", "fail", "delay", "mute", "diverge"], 2):
        faults.append(
            SimulatedFault(str(kind), 0, int(rng.integers(workers)), 0.0, 5.0)
        )
    rows = int(rng.choice([1, 2, 1000]))
    engine = Capabilities(rows_per_worker=rows)
    latency = float(rng.choice([0.0, 0.05]))
    return Schedule(seed, 2, tuple(faults), latency, engine)


@pytest.mark.parametrize(
    "scheme",
    [coded_reduce(3, 1, 0), coded_reduce(6, 2, 1), TWELVE, coded_reduce(14, 2, 1)],
    ids=lambda s: f"{s.workers}",
)
def test_no_order_of_losses_and_joins_breaks_a_rule(scheme: CodedReduce) -> None:
    for seed in range(400 // scheme.workers + 20):
        assert run(schedule(seed, scheme.workers), scheme) is None


# -- messages that fail ----------------------------------------------------------------


@pytest.mark.parametrize("worker", [3, 0], ids=["a leaf", "an inner worker"])
def test_a_message_that_failed_is_asked_for_once_more_and_then_its_worker_is_late(
    worker: int,
) -> None:
    cluster = Cluster(TWELVE)
    cluster.start()
    below = list(TWELVE.tree.below(worker))[:2]
    for child in below:
        cluster.send(child)
    first = cluster.message(worker)
    again = cluster.fail(worker)
    assert isinstance(again[0], Assign)
    assert again[0].segment.parts == TWELVE.placement[worker]
    if worker == 0:  # with what it has gathered, which nobody has to send again
        gathered = {cluster.message(child)[0] for child in below}
        assert {message for message, _ in again[1].gathered} == gathered
    assert cluster.message(worker) != first
    assert cluster.fail(worker) == []
    for other in (6, 7, 9, 10, 1):
        cluster.send(other)
    (end,) = cluster.send(2)
    assert isinstance(end, Combine)


def test_a_message_that_fails_after_its_parent_had_enough_is_not_asked_for_again() -> (
    None
):
    cluster = Cluster(TWELVE)
    cluster.start()
    cluster.send(3)
    cluster.send(4)
    assert cluster.fail(5) == []


def test_a_step_is_given_up_as_soon_as_nothing_more_can_come() -> None:
    cluster = Cluster(coded_reduce(6, 2, 0))
    cluster.start()
    for _ in range(2):
        cluster.fail(2)
    for worker in (3, 4, 5):
        cluster.send(worker)
    assert cluster.end is None  # worker 1 was asked
    (end,) = cluster.send(1)
    assert isinstance(end, GiveUp)
    assert "no more can come; late workers [0, 2]" in end.reason


def test_a_step_is_not_given_up_while_somebody_is_away_who_could_help() -> None:
    cluster = Cluster(coded_reduce(6, 2, 0))
    cluster.start()
    cluster.lose(2)
    for worker in (3, 4, 5, 1):
        assert not any(isinstance(c, GiveUp) for c in cluster.send(worker))
    assert [owner(order) for order in cluster.join(2)] == [2]


def test_who_is_away_and_of_no_use_is_not_waited_for() -> None:
    cluster = Cluster(coded_reduce(6, 2, 0))
    cluster.start()
    cluster.send(4)
    cluster.lose(4)  # it was heard
    for _ in range(2):
        cluster.fail(2)
    for worker in (3, 5):
        cluster.send(worker)
    (end,) = cluster.send(1)
    assert isinstance(end, GiveUp)


def test_who_is_back_to_find_all_its_room_taken_by_an_opinion_is_late() -> None:
    cluster = Cluster(TWELVE, Capabilities(rows_per_worker=1))
    cluster.start()
    cluster.lose(7)
    assert cluster.send(10, finite=False) == []  # nobody has room for an opinion
    (question,) = cluster.join(7)
    assert (owner(question), question.to) == (7, ROOT)
    assert question.segment.parts == TWELVE.placement[10]


def test_a_message_that_failed_is_not_made_again_where_an_opinion_took_its_room() -> (
    None
):
    cluster = Cluster(TWELVE, Capabilities(rows_per_worker=1))
    cluster.start()
    assert cluster.send(10, finite=False) == []
    (question,) = cluster.fail(7)
    assert (owner(question), question.to) == (7, ROOT)


def test_who_was_lost_with_what_it_was_asked_for_is_not_waited_for() -> None:
    cluster = Cluster(coded_reduce(6, 2, 0))
    cluster.start()
    cluster.send(2)
    cluster.send(3)
    cluster.lose(0)
    cluster.join(0)
    cluster.send(3)
    for _ in range(2):
        cluster.fail(2)
    for worker in (4, 5):
        cluster.send(worker)
    (end,) = cluster.send(1)
    assert isinstance(end, GiveUp)
    assert "no more can come" in end.reason


# -- not finite ------------------------------------------------------------------------


def test_a_leaf_alone_with_its_nan_is_contradicted_by_its_siblings_together() -> None:
    cluster = Cluster(TWELVE)
    cluster.start()
    assert cluster.send(3, finite=False) == []  # what it holds is on its way
    assert cluster.send(4) == []
    assert [owner(order) for order in cluster.send(5)] == [0]  # which has enough
    assert cluster.coordinator.state.contradicted == [3]
    for worker in (6, 7, 0, 1):
        cluster.send(worker)
    assert isinstance(cluster.end, Combine)
    assert not cluster.coordinator.history.records[-1].diverged


@pytest.mark.parametrize("bad", [3, 0], ids=["a leaf", "an inner worker"])
@pytest.mark.parametrize("scheme", [TWELVE, coded_reduce(14, 2, 1)], ids=str)
def test_one_bad_worker_never_gets_into_the_sum(scheme: CodedReduce, bad: int) -> None:
    blamed = 0
    for seed in range(12):
        fault = SimulatedFault("nan", step=0, worker=bad)
        # the others are slow, so that the bad one is among those who are heard
        slow = [
            SimulatedFault("slow", 0, other, size=3.0)
            for other in range(scheme.workers)
            if scheme.tree.parent(other) == scheme.tree.parent(bad) and other != bad
        ]
        plan = Schedule(seed, 1, (fault, *slow))
        assert run(plan, scheme) is None
        simulator = Troubled(plan, scheme, lambda event, commands: None)
        assert simulator.next_step().combined
        ended = simulator.coordinator.history.records[-1]
        assert not ended.diverged
        assert set(ended.contradicted) <= {bad}
        blamed += bool(ended.contradicted)
    assert blamed > 0


def test_an_inner_worker_is_asked_again_for_its_own_parts_and_not_for_others() -> None:
    """What it has gathered was finite, and is not its to compute."""
    cluster = Cluster(coded_reduce(6, 2, 0))
    cluster.start()
    for worker in (2, 3):
        cluster.send(worker)
    (question,) = cluster.send(0, finite=False)
    assert (owner(question), question.to) == (0, ROOT)
    assert question.segment.parts == cluster.coordinator.scheme.placement[0]
    cuts = ((question.segment.id, 1),)
    given = cluster.feed(MessageArrived(0, 0, question.message, cuts, 0.0))
    assert [type(order) for order in given] == [Assign, Upload]  # once more, then
    assert cluster.coordinator.state.contradicted == [0]


def test_a_nan_that_was_handed_over_is_passed_on_and_blames_nobody() -> None:
    """Nobody else has the parts of a leaf in an uncoded tree, and it says so twice."""
    cluster = Cluster(coded_reduce(6, 2, 0))
    cluster.start()
    (question,) = cluster.send(2, finite=False)
    cuts = ((question.segment.id, 1),)
    answer = MessageArrived(0, 2, question.message, cuts, 0.0, finite=False)
    assert cluster.feed(answer) == []  # handed over
    (upload,) = cluster.send(3)
    assert upload.worker == 0
    assert cluster.send(0, finite=False) == []  # heard at once, and nobody is asked
    another, _ = cluster.message(4)
    assert [owner(o) for o in cluster.send(4, finite=False)] == [4]  # it is asked
    state = cluster.coordinator.state
    assert (state.contradicted, state.doubted) == ([], [another])


# -- seats -----------------------------------------------------------------------------


def seats_after(late: Iterable[int], steps: int = 21) -> tuple[CodedReduce, list]:
    """Run some steps in which some are always late; return who sat where in each."""
    scheme = coded_reduce(12, 3, 1, seats="reliable")
    unit = times(12, steps).unit.copy()
    unit[:, list(late)] *= 100.0
    simulator = Simulator(scheme)
    found = []
    for step in simulator.run(Times(fixed=np.zeros_like(unit), unit=unit)):
        assert step.combined
        found.append(simulator.coordinator.history.follow(Seating(scheme.tree)).seat)
    return scheme, found


def test_who_is_always_late_sits_at_the_bottom_and_never_two_below_one_parent() -> None:
    late = (0, 4, 8)
    scheme, found = seats_after(late)
    assert found[0] == tuple(range(12))
    place = {worker: at for at, worker in enumerate(found[-1])}
    assert all(scheme.tree.is_leaf(place[worker]) for worker in late)
    assert len({scheme.tree.parent(place[worker]) for worker in late}) == 3


def test_seats_are_kept_for_twenty_steps() -> None:
    _, found = seats_after((0, 4, 8), steps=42)
    changes = [step for step in range(1, 42) if found[step] != found[step - 1]]
    assert changes == [20, 40]


def test_after_seats_have_changed_orders_follow_them() -> None:
    scheme = coded_reduce(12, 3, 1, seats="reliable")
    cluster = Cluster(scheme)
    for _ in range(20):
        cluster.play(late=(0, 6))
    cluster.start()
    seat = cluster.coordinator.history.follow(Seating(scheme.tree)).seat
    assert scheme.tree.is_leaf(seat.index(0))
    above = {owner(o): o.to for o in cluster.orders}
    for place, worker in enumerate(seat):
        parent = scheme.tree.parent(place)
        assert above[worker] == (ROOT if parent == ROOT else seat[parent])
    parts = {owner(o): o.segment.parts for o in cluster.orders}
    own = [parts[worker] for worker in seat]
    assert own == [scheme.layout.own[place][0] for place in range(12)]


def test_a_worker_with_nobody_to_gather_from_is_not_called_late() -> None:
    """Its children are: it was never asked for a message."""
    cluster = Cluster(coded_reduce(12, 3, 1, seats="reliable"))
    for _ in range(18):
        assert cluster.play(late=(3, 4)) is not None
    cluster.start()
    late = cluster.coordinator.history.follow(Reliability(forget=1.0)).straggle
    assert late[0] == 0.5  # nothing is known
    assert late[1:3] == (0.05, 0.05)
    assert late[3:6] == (0.95, 0.95, 0.05)


def test_where_seats_change_anybody_may_be_asked_for_anything() -> None:
    scheme = coded_reduce(12, 3, 1, seats="reliable")
    assert scheme.placement == (tuple(range(15)),) * 12
    assert TWELVE.placement == tuple(parts for parts, _ in TWELVE.layout.own)


def test_seats_are_the_same_when_a_run_is_replayed() -> None:
    scheme = coded_reduce(12, 3, 1, seats="reliable")
    unit = times(12, steps=45).unit.copy()
    unit[:, [1, 5]] *= 20.0
    drawn = Times(fixed=np.zeros_like(unit), unit=unit)
    kept = record(scheme, drawn, Machine(drain=True))
    assert replay(kept, scheme) is None
    difference = replay(kept, TWELVE)  # seats did change
    assert difference is not None


def test_when_the_well_seated_die_the_next_step_is_seated_without_them() -> None:
    scheme = coded_reduce(12, 3, 1, seats="reliable")
    unit = times(12, steps=40).unit.copy()
    unit[:, [0, 1]] /= 8.0
    fixed = np.zeros_like(unit)
    fixed[25:35, [0, 1]] = np.inf  # more than the root survives, for ten steps
    drawn, seats, simulator = Times(fixed, unit), [], Simulator(scheme)
    for step in simulator.run(drawn):
        assert step.combined
        seats.append(scheme.seated(simulator.coordinator.history))
    learnt = simulator.coordinator.history.follow(Seating(scheme.tree)).seat
    assert {0, 1} <= set(seats[24][:3])
    for seat in seats[25:35]:
        assert len({scheme.tree.parent(seat.index(worker)) for worker in (0, 1)}) == 2
        assert all(scheme.tree.is_leaf(seat.index(worker)) for worker in (0, 1))
    assert seats[-1] == learnt  # they are back
    kept = record(scheme, drawn, Machine(drain=True))
    assert replay(kept, scheme) is None


def test_those_who_are_not_there_sit_last_and_apart() -> None:
    tree, alive = Tree(children=3, layers=2), [True] * 12
    given = tuple(range(12))
    assert with_the_absent_last(tree, given, alive) == given
    for worker in (0, 2, 7):
        alive[worker] = False
    seat = with_the_absent_last(tree, given, alive)
    assert seat[:3] == (1, 3, 6)
    places = [seat.index(worker) for worker in (0, 2, 7)]
    assert len({tree.parent(place) for place in places}) == 3


def test_the_best_sit_at_the_top_and_the_rest_are_dealt_out() -> None:
    tree = Tree(children=3, layers=2)
    seat = deal(tree, [*range(11, -1, -1)])
    assert seat[:3] == (11, 10, 9)
    assert [seat[n : n + 3] for n in (3, 6, 9)] == [(8, 5, 2), (7, 4, 1), (6, 3, 0)]


# -- names and numbers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("coded_reduce(3, 1)", "coded_reduce(children=3, tolerance=1)"),
        (
            "coded_reduce(3, 1, inner=cyclic, parts=20, seats=reliable, "
            "rule=threshold)",
            "coded_reduce(children=3, tolerance=1, inner=cyclic, parts=20, "
            "seats=reliable, rule=threshold)",
        ),
        ("coded_reduce(children=12, tolerance=0)", None),
    ],
)
def test_a_tree_can_be_built_from_its_name(text: str, name: str | None) -> None:
    first = build(text, 12)
    assert isinstance(first, CodedReduce)
    assert name in (None, first.name)
    again = build(first.name, 12)
    assert isinstance(again, CodedReduce)
    assert str(again) == first.name
    assert (again.tree, again.parts, again.seats) == (
        first.tree, first.parts, first.seats,
    )  # fmt: skip
    assert again.rule == first.rule
    assert again.placement == first.placement
    assert (again.code.B != first.code.B).nnz == 0


def test_repetition_is_the_code_wherever_it_fits() -> None:
    assert coded_reduce(20, 4, 1).code.name == codes.fractional(4, 1).name
    assert TWELVE.code.name == codes.cyclic(3, 1).name
    cycled = coded_reduce(20, 4, 1, inner="cyclic")
    assert cycled.code.name == codes.cyclic(4, 1).name


def test_loads_are_those_of_the_law_where_parts_are_left_to_it() -> None:
    for workers, children, tolerance, parts, load in (
        (12, 3, 1, 15, 4), (84, 4, 1, 28, 2), (84, 4, 2, 148, 27), (156, 12, 1, 84, 2),
        (156, 12, 3, 48, 4),
    ):  # fmt: skip
        scheme = coded_reduce(workers, children, tolerance)
        assert (scheme.parts, scheme.load) == (parts, load)
        assert {len(own) for own in scheme.placement} == {load}


def test_where_equal_loads_would_take_too_many_parts_fewer_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = importlib.import_module(coded_reduce.__module__)
    monkeypatch.setattr(module, "_MOST_PARTS", 147)
    scheme = coded_reduce(84, 4, 2)
    assert scheme.parts == 2 * 84
    assert coded_reduce(84, 4, 1).parts == 28


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        ((13, 3, 1), {}, "13 do not fill .* children = 3; try workers = 12 = 3 \\+ 9"),
        ((12, 4, 1), {}, "12 do not fill the layers of a tree with children = 4; try"),
        ((12, 13, 1), {}, "children = 13 is out of range; try .* from 1 to 12"),
        ((12, 0, 0), {}, "children = 0 is out of range; try .* from 1 to 12"),
        ((0, 1, 0), {}, "workers = 0 is out of range; try a whole number, 1 or more"),
        (("a", 1, 0), {}, "workers must be a whole number, got 'a'"),
        ((12, 3, 3), {}, "tolerance = 3 is out of range; try .* from 0 to 2"),
        ((12, 3, -1), {}, "tolerance = -1 is out of range"),
        ((12, 3, 1), {"inner": "x"}, "inner = 'x'; try one of .*cyclic"),
        (
            (12, 3, 1), {"inner": "fractional"},
            "tolerance \\+ 1 = 2 must divide children = 3 .*; try inner = 'cyclic'",
        ),
        ((12, 3, 1), {"parts": 5}, "parts = 5 leave .* without any; try parts = 6"),
        ((12, 3, 1), {"parts": 0}, "parts = 0 is out of range"),
        ((12, 3, 1), {"parts": 2.5}, "parts must be a whole number, got 2.5"),
        ((12, 3, 1), {"seats": "x"}, "seats = 'x'; try one of .*reliable"),
        ((12, 3, 1), {"rule": "x"}, "rule = 'x' is not known; try"),
        (
            (156, 12, 4), {},
            "multiplies rounding errors by 37.7 in each of 2 layers, more than 500",
        ),
        ((420, 20, 3), {"inner": "cyclic"}, "39.9 in .*; try inner = 'fractional'"),
        ((420, 20, 6), {}, "1.15e\\+03 in each of 2 layers.*; try a smaller tolerance"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused_in_one_sentence(
    given: tuple, options: dict, said: str
) -> None:
    with pytest.raises(CodedgradError, match=said) as caught:
        coded_reduce(*given, **options)
    assert "\n" not in str(caught.value)


def test_a_code_that_is_fine_in_one_layer_may_lose_too_much_in_two() -> None:
    assert coded_reduce(12, 12, 4, inner="cyclic").tree.layers == 1
    with pytest.raises(CodedgradError, match="in each of 2 layers"):
        coded_reduce(156, 12, 4)
