"""The same models from tables as from Python."""

import tomllib

import numpy as np

from codedgrad.delays import (
    Chain,
    Classes,
    Dead,
    Jitter,
    Markov,
    Pauses,
    Replay,
    ShiftedExponential,
    Speeds,
    Spikes,
    Sticky,
    build,
)

EVERYTHING = """
[[delays]]
kind = "markov"
fast = {floor = 1}
slow = {kind = "shifted-exponential", floor = 5, mean = 0.5, fixed_mean = 1}
enter = 0.1
leave = 0.3
[[delays]]
kind = "spikes"
probability = 0.01
low = 10
high = 40
[[delays]]
kind = "sticky"
factor = 10
workers = [0, 2]
always = true
[[delays]]
kind = "classes"
factors = [1, 2.5]
[[delays]]
kind = "speeds"
low = 0.5
high = 2
[[delays]]
kind = "jitter"
[[delays]]
kind = "pauses"
probability = 0.5
low = 0
high = 1
[[delays]]
kind = "dead"
worker = 3
step = 10
"""


def test_tables_make_what_python_makes() -> None:
    law = ShiftedExponential(5, 0.5, fixed_mean=1)
    assert build(tomllib.loads(EVERYTHING)["delays"]) == Chain(
        Markov(ShiftedExponential(1), law, 0.1, 0.3),
        Spikes(0.01, 10, 40),
        Sticky(10, workers=(0, 2), always=True),
        Classes((1, 2.5)),
        Speeds(0.5, 2),
        Jitter(),
        Pauses(0.5, 0, 1),
        Dead(3, 10),
    )


def test_one_table_is_the_law_itself() -> None:
    assert build([{"kind": "shifted-exponential", "floor": 2}]) == ShiftedExponential(2)


def test_a_recording_is_named_by_its_path() -> None:
    law = build([{"kind": "replay", "path": "AR", "share": 0.5, "order": "shuffled"}])
    assert isinstance(law, Replay)
    assert (law.share, law.order, law.seconds.shape) == (0.5, "shuffled", (44, 4))


def test_building_does_not_touch_the_tables() -> None:
    tables = tomllib.loads(EVERYTHING)["delays"]
    build(tables)
    assert tables == tomllib.loads(EVERYTHING)["delays"]


def test_lists_in_a_table_may_be_changed_later() -> None:
    factors = [1.0, 2.0]
    law = build(
        [{"kind": "shifted-exponential"}, {"kind": "classes", "factors": factors}]
    )
    factors[0] = 7.0
    assert law.sample(np.random.default_rng(0), 1, 2).unit.tolist() == [[1, 2]]
