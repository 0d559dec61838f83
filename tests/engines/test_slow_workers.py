"""A change of delays alone slows real workers down, whatever they compute."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from codedgrad.delays import Dead, Slow, Times
from codedgrad.engines import Engine, Here, Local, train
from codedgrad.errors import InvalidDelays
from codedgrad.jobs import single_process
from codedgrad.schemes import auto, fractional, uncoded

_spec = importlib.util.spec_from_file_location(
    "loopback", Path(__file__).with_name("loopback.py")
)
assert _spec is not None
loopback = importlib.util.module_from_spec(_spec)
assert _spec.loader is not None
_spec.loader.exec_module(loopback)

PROCESSES = pytest.mark.parametrize(
    "engine", [Local, loopback.Looped], ids=["local", "remote"]
)
FOREVER = 1e6  # times the microseconds that a part takes


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    return float((x[0] - part) ** 2 / 2), 1.0, x - part


@PROCESSES
def test_a_worker_that_is_made_slow_is_late_and_no_other_need_be(
    engine: Callable[[], Engine],
) -> None:
    delays = Slow(worker=2, factor=FOREVER)
    scheme = fractional(4, tolerance=1)
    run = train(gradient, np.zeros(1), scheme, steps=5, delays=delays, engine=engine())
    assert all(2 in step.late for step in run.steps)
    alone = single_process(gradient, np.zeros(1), scheme.parts, steps=5)
    assert np.array_equal(run.parameters, alone.parameters)


def test_auto_goes_on_without_a_worker_that_is_made_slow() -> None:
    delays = [Slow(worker=1, factor=FOREVER), Dead(worker=0, step=2)]
    scheme = auto(3)
    run = train(gradient, np.zeros(1), scheme, steps=4, delays=delays)
    alone = single_process(gradient, np.zeros(1), scheme.parts, steps=4)
    np.testing.assert_allclose(run.parameters, alone.parameters, rtol=1e-10)


def test_without_processes_a_part_takes_longer_too() -> None:
    def seconds(stretch: float) -> float:
        factors = np.full((1, 2), stretch)
        times = Times(np.zeros((1, 2)), np.zeros((1, 2)), stretch=factors)
        run = train(
            gradient, np.zeros(1), uncoded(2), steps=1, delays=times, engine=Here()
        )
        return float(run.seconds[0])

    # 2 parts of some microseconds each, 10,000 times as long: more than the noise
    assert seconds(1e4) > seconds(1.0)


def test_an_odd_delay_is_refused_before_a_process_is_started() -> None:
    engine = Local()
    with pytest.raises(InvalidDelays, match="no worker 3 among 3"):
        train(
            gradient,
            np.zeros(1),
            uncoded(3),
            steps=1,
            delays=Slow(worker=3),
            engine=engine,
        )
    assert not hasattr(engine, "_children")
