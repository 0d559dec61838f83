"""Workers that have made another job than the root, or than each other."""

import os

import numpy as np
import pytest

from codedgrad.engines import Local
from codedgrad.engines.host.same_job import SameJob, fingerprint_of, host_name
from codedgrad.errors import JobFailed
from codedgrad.jobs import Fingerprint, NumpyJob


class Own(NumpyJob):
    def __init__(self, **required: str) -> None:
        super().__init__(lambda x, part, step: (0.0, 1.0, x), 1)
        self._required = required

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self._required, {"pace": "swift"}, "do as the root does")


def test_workers_are_compared_with_each_other_where_the_root_has_no_job() -> None:
    engine = Local()
    with pytest.raises(JobFailed) as caught:
        engine.start(lambda: Own(pid=str(os.getpid())), Own().layout, 2)
    one, other = (str(caught.value).count(f"worker {number}") for number in (0, 1))
    assert (one, other) == (1, 1)
    assert "its pid is " in str(caught.value)


def test_both_values_and_the_host_are_named() -> None:
    same = SameJob()
    same.root(Own(size="3"))
    same.check(0, host_name(), fingerprint_of(Own(size="3")))
    with pytest.raises(JobFailed) as caught:
        same.check(1, "far-away", fingerprint_of(Own(size="4")))
    assert str(caught.value) == (
        "worker 1 on far-away: its size is 4, the root's is 3; do as the root does"
    )


def test_what_only_one_side_knows_is_not_compared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    same = SameJob()
    same.root(Own(size="3"))
    same.check(0, "", fingerprint_of(Own(colour="red")))
    same.check(1, "", Fingerprint())
    assert not caplog.records


def test_a_difference_that_is_only_noted_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    same = SameJob()
    same.root(None)
    for worker in range(3):
        same.check(worker, "", Fingerprint({}, {"version of numpy": "1.2.3"}))
    assert [record.getMessage() for record in caplog.records] == [
        f"worker 0: its version of numpy is 1.2.3, the root's is {np.__version__}"
    ]
