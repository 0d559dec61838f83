"""What a path holds, for every command alike."""

from pathlib import Path

import numpy as np
import pytest

from codedgrad.advise import Evidence, Probe, open_evidence, write_probe
from codedgrad.delays import Times, write_matrix
from codedgrad.errors import InvalidFolder, InvalidOptions
from codedgrad.schemes import build
from codedgrad.sim import Machine, header_of, run_events
from codedgrad.trace import Manifest, Recorder, write_manifest


def write_trace(file: Path, first: int = 0, steps: int = 3) -> None:
    unit = np.ones((first + steps, 2))
    scheme, times = build("uncoded", 2), Times(np.zeros_like(unit), unit)
    with Recorder(file, header_of(scheme, times, Machine(), 0, "")) as record:
        run_events(scheme, times, Machine(), watch=record)


def held(evidence: Evidence) -> tuple[str, bool, bool, bool, bool]:
    parts = (evidence.run, evidence.trace, evidence.matrix, evidence.probe)
    run, trace, matrix, probe = (part is not None for part in parts)
    return evidence.kind, run, trace, matrix, probe


def test_a_run_has_a_trace_and_so_has_the_folder_of_its_segments(
    tmp_path: Path,
) -> None:
    (tmp_path / "trace").mkdir()
    write_trace(tmp_path / "trace" / "0001-00000000.jsonl")
    manifest = Manifest(
        scheme="uncoded", workers=2, parts=2, engine="local", seed=0, samples=100,
        batch_size=10, steps_per_epoch=10,
    )  # fmt: skip
    write_manifest(tmp_path, manifest)
    run, segments = open_evidence(tmp_path), open_evidence(tmp_path / "trace")
    assert held(run) == ("run", True, True, False, False)
    assert held(segments) == ("trace", False, True, False, False)
    assert run.trace == segments.trace
    one = open_evidence(tmp_path / "trace" / "0001-00000000.jsonl")
    assert one.trace == segments.trace


def test_a_recording_may_have_its_ending_in_capitals(tmp_path: Path) -> None:
    write_matrix(tmp_path / "DDP.CSV", [0], [[1.0, 2.0]], ["a", "b"])
    evidence = open_evidence(str(tmp_path / "DDP.CSV"))
    assert held(evidence) == ("recording", False, False, True, False)
    assert evidence.name == "DDP.CSV"


@pytest.mark.parametrize(
    ("trip", "left"),
    [(0.25, 0.75), (0.4, 0.6), (3.0, 0.5)],  # of a second, half is left at least
)
def test_the_seconds_of_a_probe_are_without_its_messages(
    tmp_path: Path, trip: float, left: float
) -> None:
    rows = [[1.0, 1.0]]
    probe = Probe(
        engine="local", job="", workers=2, seconds=rows, doubled=rows, pieces=1,
        cut=rows, round_trips=[[trip] * 2], uploads=[[trip] * 2], message=8,
    )  # fmt: skip
    write_probe(tmp_path / "probe.json", probe)
    evidence = open_evidence(tmp_path / "probe.json")
    assert held(evidence) == ("probe", False, False, True, True)
    assert evidence.matrix is not None
    np.testing.assert_allclose(evidence.matrix.seconds, left)


@pytest.mark.parametrize("path", ["", "none", "x" * 5000, "null\0.csv", "none.json"])
def test_what_is_not_there_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        (InvalidOptions, InvalidFolder), match="try the folder of a run"
    ):
        open_evidence(path)


def test_a_folder_of_traces_names_them(tmp_path: Path) -> None:
    for name in "abcd":
        write_trace(tmp_path / f"{name}.jsonl", steps=1)
    with pytest.raises(
        InvalidFolder, match=r"holds a\.jsonl, b\.jsonl, c\.jsonl and 1 more; try .*a\."
    ):
        open_evidence(tmp_path)
