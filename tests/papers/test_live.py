"""Papers on real processes: one tiny race, and what is said of made-up ones."""

from pathlib import Path

import numpy as np
import pytest
import torch

from codedgrad.delays import ShiftedExponential, draw
from codedgrad.papers import Effort
from codedgrad.papers.gc_dc.live import _against
from codedgrad.papers.heterogeneous.live import (
    HOLD_UP,
    STRAGGLE,
    UNIT,
    _tables,
    _verdict,
    held_up,
)
from codedgrad.papers.racing import (
    Race,
    by_class,
    equal_steps,
    panel,
    pictures_here,
    score_at,
    table,
)
from codedgrad.torch.pictures import digits
from codedgrad.torch.rehearsal import Trial


def trial(step: float, scores: list[float], off: float = 0.0) -> Trial:
    seconds = np.full(len(scores), step)
    return Trial("a", Path(), seconds, np.array(scores), (), off)


@pytest.mark.long
def test_schemes_train_the_same_network_on_processes_of_their_own() -> None:
    shares: list[float] = []
    times = draw(ShiftedExponential(0.002, 0.001), steps=3, workers=4, seed=1)
    schemes = {"one": "fractional(1)", "other": "dynamic(2, 1)"}
    race = Race(schemes, digits(), times, Effort(advance=shares.append), share=0.5)
    trials = race.run()
    assert list(trials) == ["one", "other"]
    assert shares == pytest.approx([0.5 / 6] * 6)
    one, other = trials.values()
    np.testing.assert_allclose(one.score, other.score, atol=0.01)
    assert max(one.deviation, other.deviation) < 1e-5
    assert not one.path.exists()  # records are not kept
    assert "4 worker processes of one machine, 1438 pictures of digits" in str(race)
    drawn = panel("p", trials)
    assert drawn.curves[0].x[-1] == pytest.approx(one.seconds.sum())


def test_by_class_every_worker_has_classes_of_its_own() -> None:
    data = digits()
    sorted_ = by_class(data, 8, seed=1)
    labels = sorted_.train[1]
    assert sorted(labels.tolist()) == sorted(data.train[1].tolist())
    shards = np.array_split(labels.numpy(), 8)
    assert max(len(set(shard.tolist())) for shard in shards) <= 3
    assert any(np.any(np.diff(shard) < 0) for shard in shards)  # shuffled within
    pictures, classes = sorted_.train
    known = {tuple(p.tolist()): int(c) for p, c in zip(*data.train, strict=True)}
    for p, c in zip(pictures[:50], classes[:50], strict=True):
        assert known[tuple(p.tolist())] == int(c)


def test_the_pictures_are_few_enough_to_be_copied() -> None:
    data = pictures_here()
    assert len(data.train[1]) <= 12_000
    assert len(data.test[1]) <= 2_000
    assert torch.isfinite(data.train[0]).all()


def test_scores_are_those_reached_by_then() -> None:
    found = trial(0.5, [0.1, 0.6, 0.8])
    assert [score_at(found, at) for at in (0.4, 0.5, 1.2, 9.0)] == [0.0, 0.1, 0.6, 0.8]


def test_a_goal_that_is_not_reached_is_a_dash() -> None:
    found = table({"a": trial(0.5, [0.1, 0.6])}, goal=0.9, end=1.0)
    shown = [c.text(v) for c, v in zip(found.columns, found.rows[0], strict=True)]
    assert shown == ["a", "0.500", "0.500", "60.0", "60.0", "-"]
    assert found.columns[3].header == "after 1.0 s [%]"


def test_who_is_faster_is_what_was_measured() -> None:
    trials = {"m": trial(0.1, [0.5, 0.6]), "s": trial(0.2, [0.5, 0.58], off=1e-7)}
    assert _against(trials, "m", "s") == "m is faster than s: 0.50 of its mean step."
    assert "is not faster than" in _against(trials, "s", "m")
    said = equal_steps(trials)
    assert "differ by 2.0 points" in said
    assert "by 1e-07" in said


def test_the_code_pays_or_does_not_after_equal_seconds() -> None:
    trials = {
        "ignore: a": trial(0.1, [0.1, 0.2, 0.3, 0.4]),
        "interval: b": trial(0.2, [0.3, 0.5]),
    }
    assert "w, the code pays: after 0.4 s" in _verdict("w", trials)
    trials["interval: b"] = trial(0.2, [0.3, 0.4])
    assert "the code does not pay" in _verdict("w", trials)
    both = _tables({"own": trials, "all": trials}, goal=0.9)
    assert [row[0] for row in both.rows][1:3] == ["own, interval: b", "all, ignore: a"]


def test_workers_are_held_up_as_often_as_is_said() -> None:
    # 4 standard errors of 4000 steps.
    times = held_up(4000, seed=0)
    p = np.array(STRAGGLE)
    assert set(np.unique(times.fixed)) == {0.0, HOLD_UP}
    gap = np.abs((times.fixed > 0).mean(axis=0) - p)
    assert np.all(gap <= 4 * np.sqrt(p * (1 - p) / 4000))
    assert times.unit == pytest.approx(UNIT)
