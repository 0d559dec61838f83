"""Runs, traces and recordings to report on, made in virtual time."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import Scheme
from codedgrad.delays import Times
from codedgrad.sim import Machine, header_of, run_events
from codedgrad.trace import Manifest, Recorder, StepLine, StepLog, write_manifest

MakeTrace = Callable[..., Path]
MakeRun = Callable[..., Path]


@pytest.fixture
def make_trace(tmp_path: Path) -> MakeTrace:
    """Write the trace of steps in which the uncoded load takes these seconds."""

    def make(
        scheme: Scheme,
        seconds: Sequence[Sequence[float]],
        file: Path | str = "trace.jsonl",
        drain: bool = False,
        note: str = "",
    ) -> Path:
        unit = np.array(seconds, dtype=float)
        times, machine = Times(np.zeros_like(unit), unit), Machine(drain=drain)
        path = tmp_path / file
        header = header_of(scheme, times, machine, seed=3, note=note)
        with Recorder(path, header) as record:
            run_events(scheme, times, machine, watch=record)
        return path

    return make


@pytest.fixture
def make_run(tmp_path: Path, make_trace: MakeTrace) -> MakeRun:
    """Write the folder of a run: its loss halves, its accuracy grows."""

    def make(
        scheme: Scheme,
        seconds: Sequence[Sequence[float]],
        label: str = "coded",
        folder: str = "coded",
        logs: bool = True,
        engine: str = "local",
    ) -> Path:
        path = tmp_path / folder
        (path / "trace").mkdir(parents=True)
        make_trace(scheme, seconds, path / "trace" / "0001-00000000.jsonl")
        manifest = Manifest(
            scheme=scheme.name,
            workers=scheme.workers,
            parts=scheme.parts,
            engine=engine,
            seed=3,
            samples=100,
            batch_size=10,
            steps_per_epoch=10,
            label=label,
            note="a note",
            created="2026-11-16 04:36:36 UTC",
            versions={"numpy": "2"},
        )
        write_manifest(path, manifest)
        with StepLog(path) as log:
            for step in range(len(seconds) if logs else 0):
                line = StepLine(
                    step=step,
                    at=float(step + 1),
                    seconds=max(seconds[step]) + 0.25,
                    loss=2.0**-step,
                    metrics={"norm": 1.0 + step},
                    logged={"accuracy": step / 10} if step % 2 else {},
                )
                log(line)
        return path

    return make
