"""The worker's side: which part is next, what is reported, and the races."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.core import (
    Assign,
    Cut,
    Drop,
    Progress,
    Segment,
    Send,
    Session,
    Task,
    Upload,
)


def assign(
    id: int, parts: tuple[int, ...], message: int | None = None, step: int = 0
) -> Assign:
    return Assign(step, Segment(id, 0, parts, (1.0,) * len(parts)), message)


def finish(session: Session) -> list[object]:
    assert session.task is not None
    return session.finish(session.task)


def test_segments_are_computed_in_the_order_they_were_given() -> None:
    session = Session(0)
    session.order(assign(0, (4, 2)))
    session.order(assign(1, (7,)))
    seen = []
    while session.task is not None:
        seen.append((session.task.segment, session.task.part))
        finish(session)
    assert seen == [(0, 4), (0, 2), (1, 7)]


def test_coefficients_come_with_their_parts() -> None:
    session = Session(0)
    session.order(Assign(3, Segment(5, 0, (1, 2), (0.5, -2.0)), None))
    assert session.task == Task(3, 5, 1, 0.5)
    finish(session)
    assert session.task == Task(3, 5, 2, -2.0)


def test_what_was_given_as_a_whole_is_not_cut() -> None:
    session = Session(0)
    session.order(Assign(0, Segment(0, 0, (1, 2), (1.0, 1.0)), 1, whole=True))
    finish(session)
    assert session.order(Cut(0, 0, 0, keep=0)) == []
    assert finish(session)[-1] == Send(0, 1, ((0, 2),))


def test_every_part_is_reported_and_the_last_one_closes() -> None:
    session = Session(0)
    session.order(assign(0, (1, 2)))
    assert finish(session) == [Progress(0, 0, 1, closed=False)]
    assert finish(session) == [Progress(0, 0, 2, closed=True)]
    assert session.task is None


def test_a_message_bound_to_its_segment_goes_out_when_it_closes() -> None:
    session = Session(0)
    session.order(assign(0, (1,), message=1))
    assert finish(session) == [Progress(0, 0, 1, closed=True), Send(0, 1, ((0, 1),))]


def test_without_progress_a_message_speaks_for_itself() -> None:
    session = Session(0, progress=False)
    session.order(assign(0, (1, 2), message=1))
    session.order(assign(2, (3,)))
    assert finish(session) == []
    assert finish(session) == [Send(0, 1, ((0, 2),))]
    assert finish(session) == [Progress(0, 2, 1, closed=True)]  # nothing else tells


def test_a_cut_beyond_what_is_merged_closes_there() -> None:
    session = Session(0)
    session.order(assign(0, (1, 2, 3, 4)))
    finish(session)
    assert session.order(Cut(0, 0, 0, keep=2)) == []
    assert finish(session) == [Progress(0, 0, 2, closed=True)]
    assert session.task is None


def test_a_cut_that_comes_too_late_closes_where_the_worker_is() -> None:
    session = Session(0)
    session.order(assign(0, (1, 2, 3, 4)))
    finish(session)
    finish(session)
    assert session.order(Cut(0, 0, 0, keep=1)) == [Progress(0, 0, 2, closed=True)]


def test_a_part_under_way_beyond_the_border_is_not_merged_when_it_finishes() -> None:
    session = Session(0)
    session.order(assign(0, (1, 2)))
    under_way = session.task
    assert under_way is not None
    assert session.order(Cut(0, 0, 0, keep=0)) == [Progress(0, 0, 0, closed=True)]
    assert session.task is None
    assert session.finish(under_way) == []


def test_a_cut_may_be_tightened_and_never_loosened() -> None:
    session = Session(0)
    session.order(assign(0, (1, 2, 3, 4)))
    session.order(Cut(0, 0, 0, keep=1))
    session.order(Cut(0, 0, 0, keep=3))
    assert finish(session) == [Progress(0, 0, 1, closed=True)]


def test_a_cut_of_a_closed_or_unknown_segment_says_nothing() -> None:
    session = Session(0)
    session.order(assign(0, (1,)))
    finish(session)
    assert session.order(Cut(0, 0, 0, keep=0)) == []
    assert session.order(Cut(0, 0, 9, keep=0)) == []


def test_a_cut_of_a_waiting_segment_lets_the_worker_go_on_with_the_present_one() -> (
    None
):
    session = Session(0)
    session.order(assign(0, (1, 2)))
    session.order(assign(1, (3,)))
    under_way = session.task
    assert session.order(Cut(0, 0, 1, keep=0)) == [Progress(0, 1, 0, closed=True)]
    assert session.task is under_way


def test_one_message_of_several_segments_waits_for_all_of_them() -> None:
    session = Session(0)
    session.order(assign(0, (1,)))
    session.order(assign(1, (2, 3)))
    finish(session)
    assert session.order(Upload(0, 0, 5, (0, 1))) == []
    finish(session)
    assert session.order(Cut(0, 0, 1, keep=0)) == [
        Progress(0, 1, 1, closed=True),
        Send(0, 5, ((0, 1), (1, 1))),
    ]


def test_an_upload_of_closed_segments_goes_out_at_once_and_once() -> None:
    session = Session(0)
    session.order(assign(0, (1,)))
    finish(session)
    assert session.order(Upload(0, 0, 5, (0,))) == [Send(0, 5, ((0, 1),))]
    session.order(assign(1, (2,)))
    assert finish(session) == [Progress(0, 1, 1, closed=True)]


def test_an_upload_of_something_unknown_is_ignored() -> None:
    session = Session(0)
    session.order(assign(0, (1,)))
    assert session.order(Upload(0, 0, 5, (0, 7))) == []
    assert finish(session) == [Progress(0, 0, 1, closed=True)]


def test_a_drop_abandons_everything_of_its_step() -> None:
    session = Session(0)
    session.order(assign(0, (1, 2), message=1))
    under_way = session.task
    session.order(Drop(0, 0))
    assert session.task is None
    assert under_way is not None
    assert session.finish(under_way) == []


def test_after_a_drop_the_same_step_may_ask_again() -> None:
    session = Session(0)
    session.order(assign(0, (1, 2)))
    session.order(Drop(0, 0))
    session.order(assign(3, (5,)))
    assert session.task == Task(0, 3, 5, 1.0)


def test_an_order_of_a_newer_step_drops_the_old_one() -> None:
    session = Session(0)
    session.order(assign(0, (1, 2), message=1, step=0))
    session.order(assign(0, (3,), message=1, step=2))
    assert session.task == Task(2, 0, 3, 1.0)
    assert session.order(assign(4, (9,), step=1)) == []  # older: ignored
    assert finish(session) == [Progress(2, 0, 1, closed=True), Send(2, 1, ((0, 1),))]
    assert session.task is None


ORDERS = st.one_of(
    st.builds(
        lambda id, size, upload: ("assign", id, size, upload),
        st.just(0), st.integers(1, 4), st.booleans(),
    ),
    st.tuples(st.just("cut"), st.integers(0, 12), st.integers(0, 4)),
    st.tuples(st.just("upload"), st.lists(st.integers(0, 12), min_size=1, unique=True)),
    st.tuples(st.just("finish")),
)  # fmt: skip


@pytest.mark.hypothesis
@given(st.lists(ORDERS, max_size=40))
def test_whatever_is_ordered_closings_are_final_and_messages_go_once(
    moves: list[tuple[object, ...]],
) -> None:
    session, next_id = Session(0), 0
    sizes: dict[int, int] = {}
    closed: dict[int, int] = {}
    sent: set[int] = set()
    progress: dict[int, list[int]] = {}
    for kind, *rest in moves:
        if kind == "assign":
            _, size, upload = rest
            message = next_id + 1 if upload else None
            reports = session.order(assign(next_id, tuple(range(size)), message))
            sizes[next_id] = size
            next_id += 2 if upload else 1
        elif kind == "cut":
            reports = session.order(Cut(0, 0, rest[0], rest[1]))
        elif kind == "upload":
            reports = session.order(Upload(0, 0, next_id, tuple(rest[0])))
            next_id += 1
        else:
            reports = session.finish(session.task) if session.task else []
        for report in reports:
            if isinstance(report, Progress):
                assert report.segment not in closed
                assert report.done <= sizes[report.segment]
                progress.setdefault(report.segment, []).append(report.done)
                if report.closed:
                    closed[report.segment] = report.done
            else:
                assert report.message not in sent
                sent.add(report.message)
                for segment, done in report.cuts:
                    assert closed[segment] == done
        if session.task is not None:
            assert session.task.segment not in closed
    for dones in progress.values():
        assert all(a <= b for a, b in pairwise(dones))
