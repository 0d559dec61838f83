"""Recordings played again."""

import numpy as np
import pytest

from codedgrad.delays import GRID, Replay, on_grid, read_matrix, traces, write_matrix

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def test_rows_come_in_their_order_and_start_again() -> None:
    times = Replay(ROWS).sample(np.random.default_rng(0), 7, 2)
    assert times.unit[:, 0].tolist() == [1, 3, 5, 1, 3, 5, 1]
    assert np.all(times.fixed == 0)


def test_the_recorded_order_uses_no_randomness() -> None:
    rng = np.random.default_rng(0)
    Replay(ROWS).sample(rng, 7, 2)
    assert rng.random() == np.random.default_rng(0).random()


def test_shuffled_rows_stay_whole_and_come_equally_often() -> None:
    times = Replay(ROWS, order="shuffled").sample(np.random.default_rng(0), 9000, 2)
    assert np.all(times.unit[:, 1] == times.unit[:, 0] + 1)
    for value in (1, 3, 5):  # 5 standard errors: a false alarm in 2 million
        share = np.mean(times.unit[:, 0] == value)
        assert abs(share - 1 / 3) < 5 * np.sqrt(2 / 9 / 9000)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_two_shares_add_up_to_what_was_recorded(share) -> None:
    recorded = read_matrix(traces()["SE"]).seconds
    times = Replay.read("SE", share=share).sample(np.random.default_rng(0), 43, 32)
    np.testing.assert_allclose(times.fixed + times.unit, recorded, atol=GRID)
    np.testing.assert_allclose(times.unit, share * recorded, atol=GRID)


def test_the_first_worker_of_the_bundled_job_is_as_slow_as_it_was_made() -> None:
    times = Replay.read("AR").sample(np.random.default_rng(0), 44, 4)
    means = times.unit.mean(axis=0)
    assert means[0] / means[1:].mean() == pytest.approx(2.25, abs=0.02)
    assert np.all(times.unit[:, 0] > times.unit[:, 1:].max(axis=1))


def test_a_file_of_ones_own_is_played_like_a_bundled_one(tmp_path) -> None:
    file = tmp_path / "own.csv"
    write_matrix(file, [5, 6, 9], ROWS / 3, ["a", "b"])
    times = Replay.read(str(file)).sample(np.random.default_rng(0), 3, 2)
    assert np.array_equal(times.unit, on_grid(ROWS / 3))


def test_a_recording_may_be_changed_after_it_was_taken() -> None:
    rows = ROWS.copy()
    law = Replay(rows)
    rows[:] = 7
    assert law.seconds[0, 0] == 1
