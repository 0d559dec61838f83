"""Impossible models: the rule, the value given, and values that would work."""

import pickle

import numpy as np
import pytest

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
    Times,
    build,
)
from codedgrad.errors import CodedgradError, InvalidDelays

NAN = float("nan")
LAW = ShiftedExponential()
RNG = np.random.default_rng(0)
THREE = Times(np.zeros((2, 3)), np.ones((2, 3)))
SECONDS = "try seconds from 0 to 8388608"
CHANCE = "try a number from 0 to 1"
FACTOR = "try a factor from 1e-06 to 1000000"
KINDS = (
    "shifted-exponential, markov, replay, spikes, sticky, classes, speeds, jitter, "
    "pauses, dead, slow"
)
CHANGES = "spikes, sticky, classes, speeds, jitter, pauses, dead, slow"


def refused(act) -> str:
    with pytest.raises(InvalidDelays) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("name", ["floor", "mean", "fixed_floor", "fixed_mean"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (-1, "= -1 is out of range"),
        (NAN, "= nan is out of range"),
        (float("inf"), "= inf is out of range"),
        (1e9, "= 1000000000.0 is out of range"),
        (10**400, "= 100000000000000000...0000000000000000000 is out of range"),
        ("1", "must be a number, got '1'"),
        (True, "must be a number, got True"),
        (None, "must be a number, got None"),
    ],
    ids=str,
)
def test_what_is_no_duration_is_refused(name, value, problem) -> None:
    text = refused(lambda: ShiftedExponential(**{name: value}))
    assert text == f"shifted-exponential: {name} {problem}; {SECONDS}"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Markov(LAW, LAW, 1.5, 0.5),
            f"markov: enter = 1.5 is out of range; {CHANCE}",
        ),
        (
            lambda: Markov(LAW, LAW, 0.5, -0.1),
            f"markov: leave = -0.1 is out of range; {CHANCE}",
        ),
        (
            lambda: Markov(LAW, 5, 0.5, 0.1),
            "markov: slow must be a shifted exponential, got 5; "
            "try ShiftedExponential(floor=1)",
        ),
        (
            lambda: Replay([[1.0]], share=2),
            f"replay: share = 2 is out of range; {CHANCE}",
        ),
        (
            lambda: Replay([[1.0]], order="random"),
            "replay: order = 'random' is not known; "
            "try order in ['recorded', 'shuffled']",
        ),
        (
            lambda: Replay([1.0, 2.0]),
            "replay: seconds has shape (2,); try (steps, workers), at least one each",
        ),
        (
            lambda: Replay(np.zeros((0, 3))),
            "replay: seconds has shape (0, 3); try (steps, workers), at least one each",
        ),
        (
            lambda: Replay([["a"]]),
            "replay: seconds must be numbers, got [['a']]; "
            "try a (steps, workers) array",
        ),
        (
            lambda: Replay([[1.0, 2.0], [3.0, NAN]]),
            "replay: row 1, worker 1: nan is not a duration; "
            "try without that row, or with dead for a worker that went away",
        ),
        (
            lambda: Replay([[1.0, 0.0]]),
            "replay: row 0, worker 1: 0.0 is not a duration; "
            "try seconds from 1e-09 to 8388608",
        ),
        (
            lambda: Replay.read(3),
            "replay: path must be a file name, got 3; "
            "try a .csv, .npy or .parquet file",
        ),
        (
            lambda: Spikes(2, 10, 40),
            f"spikes: probability = 2 is out of range; {CHANCE}",
        ),
        (
            lambda: Spikes(0.1, 0, 40),
            f"spikes: low = 0 is out of range; {FACTOR}",
        ),
        (
            lambda: Spikes(0.1, 10, 1e7),
            f"spikes: high = 10000000.0 is out of range; {FACTOR}",
        ),
        (
            lambda: Spikes(0.1, 40, 10),
            "spikes: low = 40 is more than high = 10; try low=10, high=40",
        ),
        (
            lambda: Pauses(NAN, 1, 2),
            f"pauses: probability = nan is out of range; {CHANCE}",
        ),
        (lambda: Pauses(0.1, -1, 2), f"pauses: low = -1 is out of range; {SECONDS}"),
        (
            lambda: Pauses(0.1, 2, 1),
            "pauses: low = 2 is more than high = 1; try low=1, high=2",
        ),
        (lambda: Speeds(0, 1), f"speeds: low = 0 is out of range; {FACTOR}"),
        (
            lambda: Speeds(2, 1),
            "speeds: low = 2 is more than high = 1; try low=1, high=2",
        ),
        (
            lambda: Sticky(0, 0.1, 0.1),
            f"sticky: factor = 0 is out of range; {FACTOR}",
        ),
        (
            lambda: Sticky(2),
            "sticky: enter = 0 and leave = 0, and it is not always; "
            "try enter = 0.01, leave = 0.1",
        ),
        (
            lambda: Sticky(2, 0.1, 0.2, always=True),
            "sticky: always leaves nothing to enter = 0.1, leave = 0.2; "
            "try one or the other",
        ),
        (
            lambda: Sticky(2, always="yes"),
            "sticky: always must be true or false, got 'yes'; try always = true",
        ),
        (
            lambda: Sticky(2, 0.1, 0.2, workers=3),
            "sticky: workers must be a list, got 3; try workers = [...]",
        ),
        (
            lambda: Sticky(2, 0.1, 0.2, workers="03"),
            "sticky: workers must be a list, got '03'; try workers = [...]",
        ),
        (
            lambda: Sticky(2, 0.1, 0.2, workers=()),
            "sticky: workers is empty; try at least one",
        ),
        (
            lambda: Sticky(2, 0.1, 0.2, workers=[-1]),
            "sticky: workers = -1 is out of range; try a whole number, 0 or more",
        ),
        (
            lambda: Sticky(2, 0.1, 0.2, workers=[0.5]),
            "sticky: workers must be a whole number, got 0.5; "
            "try a whole number, 0 or more",
        ),
        (lambda: Classes([]), "classes: factors is empty; try at least one"),
        (
            lambda: Classes([1, 0]),
            f"classes: factors = 0 is out of range; {FACTOR}",
        ),
        (
            lambda: Jitter(workers=0),
            "jitter: workers = 0 is out of range; try a whole number, 1 or more",
        ),
        (
            lambda: Jitter(every=True),
            "jitter: every must be a whole number, got True; "
            "try a whole number, 1 or more",
        ),
        (
            lambda: Dead(-1),
            "dead: worker = -1 is out of range; try a whole number, 0 or more",
        ),
        (
            lambda: Dead(0, step=1.5),
            "dead: step must be a whole number, got 1.5; try a whole number, 0 or more",
        ),
        (
            lambda: Chain(Jitter(), Jitter()),
            "chain: the base must have a method sample, got Jitter; "
            "try a law such as ShiftedExponential()",
        ),
        (
            lambda: Chain(LAW, 3),
            "chain: a change must have a method change, got int; "
            "try one such as Jitter()",
        ),
    ],
)
def test_a_model_that_cannot_be_is_refused(make, text) -> None:
    assert refused(make) == text


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (
            lambda: LAW.sample(RNG, 0, 3),
            "shifted-exponential: steps = 0 is out of range; "
            "try a whole number, 1 or more",
        ),
        (
            lambda: Markov(LAW, LAW, 0.1, 0.1).sample(RNG, 3, 0),
            "markov: workers = 0 is out of range; try a whole number, 1 or more",
        ),
        (
            lambda: Replay([[1.0, 2.0]]).sample(RNG, 3, 4),
            "replay: 2 workers were recorded, 4 are asked for; try workers = 2",
        ),
        (
            lambda: Dead(3).change(THREE, RNG),
            "dead: there is no worker 3 among 3; try a worker from 0 to 2",
        ),
        (
            lambda: Sticky(2, 0.1, 0.1, workers=[0, 3]).change(THREE, RNG),
            "sticky: there is no worker 3 among 3; try a worker from 0 to 2",
        ),
        (
            lambda: Classes([1, 2, 3, 4]).change(THREE, RNG),
            "classes: 4 classes do not fit on 3 workers; try at most 3 factors",
        ),
        (
            lambda: Jitter(workers=4).change(THREE, RNG),
            "jitter: workers = 4 cannot be slow among 3; try workers up to 3",
        ),
        (
            lambda: THREE.part(0),
            "times: parts = 0 is out of range; try a whole number, 1 or more",
        ),
    ],
)
def test_a_run_that_does_not_fit_the_model_is_refused(act, text) -> None:
    assert refused(act) == text


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        (
            [],
            "delays: a list of tables is wanted, got []; "
            "try [{kind = 'shifted-exponential'}]",
        ),
        (
            {"kind": "dead"},
            "delays: a list of tables is wanted, got {'kind': 'dead'}; "
            "try [{kind = 'shifted-exponential'}]",
        ),
        (
            "markov",
            "delays: a list of tables is wanted, got 'markov'; "
            "try [{kind = 'shifted-exponential'}]",
        ),
        (
            ["markov"],
            "delays: each model must be a table, got 'markov'; "
            "try {floor = 1.0, mean = 0.2} or the like",
        ),
        (
            [{"floor": 1}],
            f"delays: {{'floor': 1}} has no kind; try kind = one of {KINDS}",
        ),
        (
            [{"kind": "stiky"}],
            f"delays: kind = 'stiky' is not known; try 'sticky' of {KINDS}",
        ),
        (
            [{"kind": 3}],
            f"delays: kind = 3 is not known; try one of {KINDS}",
        ),
        (
            [{"kind": "jitter"}],
            "delays: the first table must be a law, jitter is a change; "
            "try first one of shifted-exponential, markov, replay",
        ),
        (
            [{"kind": "shifted-exponential"}, {"kind": "shifted-exponential"}],
            "delays: only the first table may be a law, shifted-exponential comes "
            f"later; try there one of {CHANGES}",
        ),
        (
            [{"kind": "shifted-exponential", "flor": 1}],
            "shifted-exponential: there is no key 'flor'; "
            "try 'floor' of floor, mean, fixed_floor, fixed_mean",
        ),
        (
            [{"kind": "replay", "seconds": [[1]]}],
            "replay: there is no key 'seconds'; try one of path, share, order",
        ),
        ([{"kind": "replay"}], "replay: the key path is missing; try all of path"),
        (
            [{"kind": "markov", "enter": 0.1}],
            "markov: the key fast is missing; try all of fast, slow, enter, leave",
        ),
        (
            [{"kind": "markov", "fast": 1, "slow": {}, "enter": 0.1, "leave": 0.1}],
            "markov: fast must be a table, got 1; "
            "try {floor = 1.0, mean = 0.2} or the like",
        ),
        (
            [
                {
                    "kind": "markov",
                    "fast": {"kind": "markov"},
                    "slow": {},
                    "enter": 0.1,
                    "leave": 0.1,
                }
            ],
            "markov: fast has kind = 'markov'; "
            "try kind = 'shifted-exponential', or no kind",
        ),
        (
            [
                {
                    "kind": "markov",
                    "fast": {},
                    "slow": {"mean": "long"},
                    "enter": 0.1,
                    "leave": 0.1,
                }
            ],
            f"markov: slow: mean must be a number, got 'long'; {SECONDS}",
        ),
        (
            [{"kind": "shifted-exponential"}, {"kind": "dead", "worker": "0"}],
            "dead: worker must be a whole number, got '0'; "
            "try a whole number, 0 or more",
        ),
    ],
)
def test_tables_that_make_no_model_are_refused(specs, text) -> None:
    assert refused(lambda: build(specs)) == text


def test_the_error_keeps_its_facts_and_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(InvalidDelays("markov", "it is odd", "another")))
    assert (error.model, error.problem, error.advice) == (
        "markov",
        "it is odd",
        "another",
    )
    assert str(error) == "markov: it is odd; try another"
    assert isinstance(error, CodedgradError)
    assert isinstance(error, ValueError)
