"""The root's clock leaves out what the root was away for, and nothing else."""

import logging

import pytest

from codedgrad.engines.clock import LOOK, Clock


class Times:
    """A clock and a thread's CPU time, moved by hand."""

    def __init__(self) -> None:
        self.read = self.busy = 100.0

    def clock(self) -> Clock:
        return Clock(lambda: self.read, lambda: self.busy)


def test_an_absence_within_a_step_is_left_out() -> None:
    times = Times()
    clock = times.clock()
    clock.watch()
    times.read += 1000.0
    assert clock.now() == 0.0
    times.read += 0.25
    assert (clock.now(), clock.away) == (0.25, 1000.0)


@pytest.mark.parametrize(("seconds", "counted"), [(1.0, 1.0), (1.01, 0.5)])
def test_a_wait_may_last_as_long_as_was_meant_and_a_little_longer(
    seconds: float, counted: float
) -> None:
    times = Times()
    clock = times.clock()
    clock.watch()
    clock.wait(LOOK)
    times.read += seconds
    assert clock.now() == counted


def test_time_that_the_root_computes_counts() -> None:
    times = Times()
    clock = times.clock()
    clock.watch()
    times.read += 30.0
    times.busy += 29.75
    assert (clock.now(), clock.away) == (30.0, 0.0)


def test_between_steps_all_time_counts() -> None:
    times = Times()
    clock = times.clock()
    times.read += 10.0
    assert clock.now() == 10.0
    clock.watch()
    times.read += 5.0
    clock.unwatch()  # the absence was in the step
    assert clock.now() == 10.0
    times.read += 20.0
    assert (clock.now(), clock.away) == (30.0, 5.0)


def test_it_never_goes_back() -> None:
    times = Times()
    clock = times.clock()
    clock.watch()
    shown = []
    for gap in (0.1, 0.6, 3.0, 0.4, 0.5, 90.0, 0.0):
        clock.wait(0.3)
        times.read += gap
        shown.append(clock.now())
    assert shown == sorted(shown)
    assert shown[-1] == pytest.approx(0.1 + 0.6 + 0.3 + 0.4 + 0.5 + 0.3)


@pytest.mark.parametrize(("seconds", "lines"), [(4.9, 0), (5.0, 1)])
def test_a_long_absence_is_said(
    seconds: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    times = Times()
    clock = times.clock()
    clock.watch()
    times.read += seconds
    with caplog.at_level(logging.WARNING, "codedgrad"):
        clock.now()
    assert len(caplog.messages) == lines
    assert all("was away for 5 s" in text for text in caplog.messages)
