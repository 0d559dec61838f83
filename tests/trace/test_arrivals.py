"""The arrival matrix, in files and as a delay model."""

import csv
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import Scheme
from codedgrad.delays import (
    Chain,
    Dead,
    Pauses,
    Replay,
    ShiftedExponential,
    read_matrix,
    write_matrix,
)
from codedgrad.errors import InvalidTrace
from codedgrad.schemes import cyclic, erasurehead, fractional, uncoded
from codedgrad.sim import Machine, Outcome, outcome, run_events
from codedgrad.testing import Everything
from codedgrad.trace import Arrival, Entry, Header, Trace, arrivals, export, matrix

LAW = ShiftedExponential(floor=0.1, mean=1.0)
PAUSES = Chain(LAW, Pauses(probability=0.3, low=0.5, high=2.0))


def simulated(
    scheme: Scheme,
    law: object = LAW,
    steps: int = 8,
    machine: Machine | None = None,
) -> tuple[Trace, np.ndarray, Outcome]:
    """Return a trace, the times drawn at the uncoded load, and how the steps went."""
    machine = machine or Machine()
    times = law.sample(np.random.default_rng(1), steps, scheme.workers)
    entries: list[Entry] = []
    result = run_events(
        scheme,
        times,
        machine,
        watch=lambda event, commands: entries.append(Entry(event, tuple(commands))),
    )
    header = Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        capabilities=machine.capabilities,
    )
    return Trace(header, tuple(entries)), times.fixed + times.unit, result


# -- rows ------------------------------------------------------------------------------


def test_every_worker_asked_has_a_row_in_every_step() -> None:
    trace, seconds, _ = simulated(uncoded(3))
    rows = list(arrivals(trace))
    assert [(row.step, row.worker) for row in rows] == [
        (step, worker) for step in range(8) for worker in range(3)
    ]
    for row in rows:
        assert row == Arrival(
            step=row.step,
            worker=row.worker,
            load=1,
            done=1,
            asked=0.0,
            seconds=pytest.approx(seconds[row.step, row.worker], abs=1e-12),
            elapsed=row.seconds,
            ended="answered",
            heard=True,
        )


def test_what_was_cut_off_says_so_and_when() -> None:
    machine = Machine(drain=False)
    trace, seconds, result = simulated(fractional(4, 1, pieces=2), machine=machine)
    rows = list(arrivals(trace))
    censored = [row for row in rows if row.ended != "answered"]
    assert censored
    for row in rows:
        part = seconds[row.step, row.worker] / 2
        assert row.load == 4
        assert row.asked == 0.0
        assert row.seconds == pytest.approx(row.done * part, abs=1e-6)
        if row.ended == "answered":
            assert row.done == 4
        else:
            assert row.ended == "dropped"
            assert row.elapsed == pytest.approx(result.seconds[row.step])
            assert row.done * part <= row.elapsed < (row.done + 1) * part + 1e-6
            assert not row.heard


def test_a_dead_worker_has_no_row_and_one_that_was_asked_later_says_when() -> None:
    law = Chain(LAW, Dead(worker=2, step=3))
    rows = list(arrivals(simulated(fractional(4, 1), law)[0]))
    assert [row.step for row in rows if row.worker == 2] == [0, 1, 2]
    busy = list(arrivals(simulated(Everything(4), PAUSES)[0]))
    assert {row.ended for row in busy} >= {"answered"}
    assert all(row.asked >= 0 and row.elapsed >= row.seconds for row in busy)


# -- files -----------------------------------------------------------------------------

NAMES = [field.name for field in fields(Arrival)]


def typed(row: dict[str, str]) -> Arrival:
    """Read a row of text back."""
    counts = {name: int(row[name]) for name in ("step", "worker", "load", "done")}
    times = {name: float(row[name]) for name in ("asked", "seconds", "elapsed")}
    return Arrival(**counts, **times, ended=row["ended"], heard=row["heard"] == "True")


@pytest.mark.parametrize(
    "scheme", [uncoded(3), cyclic(4, 1), Everything(4)], ids=lambda s: s.name
)
def test_a_csv_file_gives_the_rows_back_exactly(scheme: Scheme, tmp_path: Path) -> None:
    trace, _, _ = simulated(scheme, PAUSES)
    path = tmp_path / "arrivals.csv"
    export(trace, path)
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows = [typed(row) for row in reader]
    assert reader.fieldnames == NAMES
    assert rows == list(arrivals(trace))
    assert b"\r" not in path.read_bytes()


@pytest.mark.parametrize(
    "scheme", [uncoded(3), cyclic(4, 1), Everything(4)], ids=lambda s: s.name
)
def test_a_parquet_file_gives_the_rows_back_exactly(
    scheme: Scheme, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    trace, _, _ = simulated(scheme, PAUSES)
    path = tmp_path / "arrivals.parquet"
    export(trace, str(path))
    with path.open("rb") as file:
        table = parquet.ParquetFile(file).read()
    assert table.column_names == NAMES
    assert [Arrival(**row) for row in table.to_pylist()] == list(arrivals(trace))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_trace_without_steps_gives_columns_without_rows(
    ending: str, tmp_path: Path
) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    empty = Trace(Header(scheme="uncoded", workers=2, parts=2), ())
    path = tmp_path / f"arrivals.{ending}"
    export(empty, path)
    if ending == "csv":
        assert path.read_text() == ",".join(NAMES) + "\n"


def test_an_export_is_whole_or_not_there(tmp_path: Path) -> None:
    trace, _, _ = simulated(uncoded(2), steps=1)
    for name in ("arrivals.txt", "arrivals", "arrivals.json"):
        with pytest.raises(InvalidTrace, match=r"must end in \.csv or \.parquet"):
            export(trace, tmp_path / name)
    with pytest.raises(InvalidTrace, match="cannot be written"):
        export(trace, tmp_path / "nowhere" / "arrivals.csv")
    (tmp_path / "taken.csv").mkdir()
    with pytest.raises(InvalidTrace, match="cannot be written"):
        export(trace, tmp_path / "taken.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["taken.csv"]


def test_an_export_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.csv"
    for steps in (5, 2):
        trace, _, _ = simulated(uncoded(2), steps=steps)
        export(trace, path)
        assert len(path.read_text().splitlines()) == 1 + 2 * steps


# -- a delay model of it ---------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "npy", "parquet"])
@pytest.mark.parametrize("pieces", [1, 4])
def test_an_uncoded_run_is_a_recording_that_replays_to_the_same_times(
    pieces: int, ending: str, tmp_path: Path
) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    scheme = uncoded(4, pieces=pieces)
    trace, seconds, result = simulated(scheme, PAUSES)
    recorded = matrix(trace)
    np.testing.assert_allclose(recorded.seconds, seconds, rtol=0, atol=1e-8)
    assert recorded.steps.tolist() == list(range(8))
    assert recorded.workers == ("worker0", "worker1", "worker2", "worker3")
    path = tmp_path / f"run.{ending}"
    write_matrix(path, recorded.steps, recorded.seconds, recorded.workers)
    np.testing.assert_array_equal(read_matrix(path).seconds, recorded.seconds)
    times = Replay.read(path).sample(np.random.default_rng(0), 8, 4)
    again = outcome(uncoded(4), times)
    np.testing.assert_allclose(again.seconds, result.seconds, rtol=0, atol=1e-8)


def test_latency_is_part_of_what_a_root_sees() -> None:
    trace, seconds, _ = simulated(uncoded(3), machine=Machine(latency=0.25))
    np.testing.assert_allclose(matrix(trace).seconds, seconds + 0.5)


def test_a_run_with_late_workers_is_refused_as_a_recording() -> None:
    trace, _, _ = simulated(fractional(4, 1))
    with pytest.raises(InvalidTrace, match="export the arrivals"):
        matrix(trace)


def test_a_run_at_another_load_is_refused_as_a_recording() -> None:
    # Everybody is waited for, but with twice the work of waiting for all.
    trace, _, _ = simulated(erasurehead(4, 2, count=4))
    assert all(row.ended == "answered" for row in arrivals(trace))
    with pytest.raises(InvalidTrace, match="at the uncoded load in step 0"):
        matrix(trace)


def test_a_run_without_steps_or_without_a_worker_is_refused_as_a_recording() -> None:
    empty = Trace(Header(scheme="uncoded", workers=2, parts=2), ())
    with pytest.raises(InvalidTrace, match="has no step"):
        matrix(empty)
    trace, _, _ = simulated(uncoded(3), Chain(LAW, Dead(worker=1, step=6)))
    with pytest.raises(InvalidTrace, match="not every worker was asked"):
        matrix(trace)
