"""What a probe measures, where time is virtual or does not matter."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from codedgrad.advise import Probe, probe, read_probe, write_probe
from codedgrad.advise.probe.probe import Work, nothing, steps_of, taken
from codedgrad.advise.probe.scheme import Measuring
from codedgrad.core import (
    Capabilities,
    Combine,
    Coordinator,
    Event,
    MessageArrived,
    Progressed,
    StepStarted,
    TimerFired,
    Upload,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.engines import Driver, Here
from codedgrad.errors import InvalidOptions, InvalidTrace, StepGivenUp
from codedgrad.jobs import NumpyJob
from codedgrad.sim import Simulator

FIXED = np.array([0.25, 0.5, 0.0])
UNIT = np.array([1.0, 2.0, 4.0])
LATENCY = 0.0625


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    return float(part), 1.0, x + part


def cut(parts: int) -> Work:
    job = NumpyJob(gradient, 5)
    return Work(lambda: job, job.layout, np.arange(5.0))


def measured(
    scheme: Measuring, steps: int, capabilities: Capabilities | None = None
) -> list[tuple[list[float], list[float]]]:
    """Run the scheme in virtual time, on workers that take known times."""
    simulator = Simulator(scheme, latency=LATENCY, capabilities=capabilities)
    times = Times(np.tile(FIXED, (steps, 1)), np.tile(UNIT, (steps, 1)))
    return [
        taken(simulator.coordinator.history.records[-1].state)
        for step in simulator.run(times)
        if step.combined and step.residual == 0
    ]


@pytest.mark.parametrize("progress", [True, False])
@pytest.mark.parametrize("pieces", [1, 4])
def test_times_at_both_loads_and_the_way_of_a_message_come_out_exactly(
    pieces: int, progress: bool
) -> None:
    scheme = Measuring(3, pieces, loads=(1, 2))
    found = measured(scheme, 4, Capabilities(progress=progress))
    assert len(found) == 4
    for step, (seconds, uploads) in enumerate(found):
        load = 1 + step % 2
        np.testing.assert_allclose(seconds, FIXED + load * UNIT + 2 * LATENCY)
        np.testing.assert_allclose(uploads, 2 * LATENCY)


def test_two_loads_tell_what_grows_with_the_load() -> None:
    found = [seconds for seconds, _ in measured(Measuring(3, loads=(1, 2)), 4)]
    got = a_probe(workers=3, seconds=found[0::2], doubled=found[1::2])
    np.testing.assert_allclose(got.shares, UNIT / (UNIT + FIXED + 2 * LATENCY))
    assert got.share == pytest.approx(float(np.median(got.shares)))


def test_a_worker_that_is_lost_leaves_nothing_to_measure() -> None:
    times = Times(np.zeros((1, 3)), np.array([[1.0, np.inf, 1.0]]))
    (step,) = Simulator(Measuring(3)).run(times)
    assert not step.combined
    assert "lost workers [1]" in step.reason


def test_messages_are_asked_for_one_after_the_other_whatever_else_happens() -> None:
    coordinator = Coordinator(Measuring(2))
    coordinator.handle(StepStarted(0, at=0.0))
    coordinator.handle(Progressed(0, 1, 1, 1, True, at=1.0))
    (order, *_) = coordinator.handle(Progressed(0, 0, 0, 1, True, at=2.0))
    assert order == Upload(0, 0, 2, (0,))
    early = coordinator.handle(TimerFired(at=2.5))
    assert not any(isinstance(command, Upload | Combine) for command in early)
    (order, *_) = coordinator.handle(MessageArrived(0, 0, 2, ((0, 1),), at=3.0))
    assert order == Upload(0, 1, 3, (1,))
    (end,) = coordinator.handle(MessageArrived(0, 1, 3, ((1, 1),), at=3.5))
    assert end == Combine(0, ((2, 1.0), (3, 1.0)), 0.0)


def test_the_sums_of_a_probe_are_those_of_all_parts() -> None:
    scheme, work, engine = Measuring(3, 2, loads=(1, 2)), cut(6), Here()
    driver = Driver(engine, scheme, work.layout)
    engine.start(work.make, work.layout, 3, parts=6)
    for _ in range(3):
        total = driver.step(work.parameters).vector
        np.testing.assert_allclose(total[:5], 6 * np.arange(5.0) + 15)
        np.testing.assert_allclose(total[5:], [15, 6])
    engine.close()


def test_a_probe_runs_on_an_engine_and_closes_every_one() -> None:
    made: list[Here] = []
    closed: list[Here] = []

    class Counted(Here):
        def close(self) -> None:
            closed.append(self)
            super().close()

    def engine() -> Here:
        made.append(Counted())
        return made[-1]

    told: list[None] = []
    found = probe(cut, engine, 2, steps=3, pieces=4, job="own",
                  advanced=lambda: told.append(None))  # fmt: skip
    assert len(made) == 3
    assert set(closed) == set(made)
    assert len(told) == steps_of(3, 4)
    assert (found.engine, found.job, found.pieces) == ("here", "own", 4)
    for rows in (found.seconds, found.doubled, found.cut, found.round_trips):
        assert np.shape(rows) == (3, 2)
    assert found.message == 7 * 8
    assert 0 <= found.share <= 1
    assert found.latency >= 0


def test_an_engine_is_closed_when_the_job_fails() -> None:
    closed: list[bool] = []

    class Counted(Here):
        def close(self) -> None:
            closed.append(True)
            super().close()

    def fails(parts: int) -> Work:
        def broken(x: np.ndarray, part: int, step: int) -> tuple[float, float, object]:
            raise ZeroDivisionError

        job = NumpyJob(broken, 5)  # type: ignore[arg-type]
        return Work(lambda: job, job.layout, np.zeros(5))

    with pytest.raises(ZeroDivisionError):
        probe(fails, Counted, 2, steps=1)
    assert closed == [True, True]


def test_one_part_each_does_not_tell_what_parts_cost() -> None:
    found = probe(cut, Here, 2, steps=2, pieces=1)
    assert found.overhead is None
    assert found.cut == found.seconds


def test_a_job_of_nothing_sends_one_number() -> None:
    assert nothing().layout.gradient == 1


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"pieces": 0}, {"workers": 1}])
def test_impossible_numbers_are_refused(wrong: dict[str, int]) -> None:
    asked = {"workers": 2, "steps": 1, "pieces": 1} | wrong
    workers = asked.pop("workers")
    with pytest.raises(InvalidOptions):
        probe(cut, Here, workers, **asked)


# -- files ---------------------------------------------------------------------------


def a_probe(**changed: object) -> Probe:
    rows = [[1.0, 2.0], [1.0, 2.0]]
    plain: dict[str, object] = {
        "engine": "local",
        "job": "digits",
        "workers": 2,
        "seconds": rows,
        "doubled": [[1.5, 4.0], [1.5, 4.0]],
        "pieces": 5,
        "cut": [[1.4, 2.4], [1.4, 2.4]],
        "round_trips": [[0.25, 0.25]],
        "uploads": [[0.75, 0.75]],
        "message": 1000,
    }
    return Probe(**(plain | changed))  # type: ignore[arg-type]


def test_figures_follow_from_what_was_measured() -> None:
    found = a_probe()
    assert found.shares == [0.5, 1.0]
    assert found.share == 0.75
    assert found.overhead == pytest.approx(0.1)
    assert found.latency == 0.125
    assert found.bandwidth == 2000
    assert found.typical == 1.5
    assert a_probe(uploads=[[0.25, 0.25]]).bandwidth is None
    assert a_probe(cut=[[0.9, 1.9]]).overhead == 0.0
    assert a_probe(doubled=[[0.9, 9.0]]).shares == [0.0, 1.0]


def test_steps_that_differ_at_one_load_are_said_to_be_no_ground_to_stand_on() -> None:
    assert a_probe().spread == 1.0
    assert a_probe().remarks == ()
    rows = [[1.0, 2.0], [4.0, 8.0]] * 5
    for name in ("seconds", "cut"):
        unsteady = a_probe(**{name: rows})
        assert unsteady.spread == pytest.approx(4.0)
        (said,) = unsteady.remarks
        assert "differ by a factor of 4" in said
    calm = [[1.0, 2.0], [1.2, 2.4]] * 5
    assert a_probe(seconds=calm, cut=calm).remarks == ()


def test_a_probe_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_probe(tmp_path / "probe.json", a_probe())
    assert read_probe(tmp_path / "probe.json") == a_probe()
    assert [file.name for file in tmp_path.iterdir()] == ["probe.json"]
    assert str(tmp_path) not in (tmp_path / "probe.json").read_text()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"kind": "codedgrad run"}, "says it is a 'codedgrad run'"),
        ({"version": 2}, "newer"),
        ({"workers": 3}, "a row of 2, not 3 workers"),
        ({"workers": 0}, "workers is 0"),
        ({"pieces": 0}, "pieces is 0"),
        ({"message": -1}, "message is -1"),
        ({"seconds": []}, "seconds has 0 steps"),
        ({"cut": [[0.0, 1.0]]}, "cut holds what is no duration"),
        ({"doubled": [[1e300, 1.0]]}, "doubled holds what is no duration"),
        ({"uploads": [[-1.0, 1.0]]}, "uploads holds what is no duration"),
        ({"job": "a\x1b[2Jb"}, "a name that cannot be shown"),
        ({"job": "x" * 300}, "a name that cannot be shown"),
    ],
)
def test_what_is_no_probe_is_refused_with_its_reason(
    changed: dict[str, object], why: str, tmp_path: Path
) -> None:
    file = tmp_path / "probe.json"
    file.write_bytes(msgspec.json.encode(a_probe(**changed)))
    with pytest.raises(InvalidTrace, match="is not a probe") as refused:
        read_probe(file)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", "nan", '{"kind": "codedgrad probe", "more": 1}', "{" * 9999],
)
def test_any_other_text_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "probe.json"
    file.write_text(text)
    with pytest.raises(InvalidTrace, match="is not a probe"):
        read_probe(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="cannot be read"):
        read_probe(tmp_path / "none.json")


def test_a_step_that_is_given_up_says_so() -> None:
    class Loses(Here):
        def next_event(self, timeout: float) -> Event | None:
            event = super().next_event(timeout)
            if not isinstance(event, Progressed):
                return event
            return WorkersLost((0,), event.at)

    with pytest.raises(StepGivenUp, match="lost workers"):
        probe(cut, Loses, 2, steps=1)
