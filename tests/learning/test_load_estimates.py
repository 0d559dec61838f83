"""What workers did after a slow part: which observations count, and how much."""

import pytest

from codedgrad.learning.load_estimates import TELLING, SlowPartObserver


def observed(*observations: tuple[int, float, float]) -> SlowPartObserver:
    observer = SlowPartObserver(load=8.0)
    for step, stays, size in observations:
        observer.add(step, stays, size)
    return observer


@pytest.mark.parametrize(
    ("size", "counted"),
    [(3.0, 9.0), (4.0, 16.0), (4.1, TELLING**2), (50.0, TELLING**2)],
)
def test_a_pause_longer_than_half_a_load_counts_for_little(
    size: float, counted: float
) -> None:
    assert observed((0, 0.0, size)).evidence.weight == pytest.approx(counted)


def test_a_slow_machine_counts_whatever_its_size() -> None:
    assert observed((0, 1.0, 50.0)).evidence.weight == 2500.0


def test_pauses_of_one_step_tell_nothing_however_many_they_are() -> None:
    slow, pause = (0, 1.0, 3.0), (1, 0.2, 3.0)
    one = observed(slow, pause).evidence
    assert (one.count, one.mean()) == (2, pytest.approx(0.6))
    for pauses in (2, 3, 8):
        several = observed(slow, *[pause] * pauses).evidence
        assert (several.count, several.weight) == (1, pytest.approx(9.0))
        assert several.mean() == pytest.approx(1.0)


def test_a_slow_machine_in_a_step_of_pauses_still_counts() -> None:
    found = observed((1, 0.0, 3.0), (1, 1.0, 3.0), (1, 0.0, 3.0)).evidence
    assert (found.count, found.mean()) == (1, pytest.approx(1.0))


def test_pauses_of_different_steps_all_count() -> None:
    assert observed((1, 0.0, 3.0), (2, 0.0, 3.0), (3, 0.0, 3.0)).evidence.count == 3
