"""What it costs to go on with a run: seconds, memory and disk, by the steps it has had.

    python benchmarks/resume.py            # up to a million steps; two minutes
    python benchmarks/resume.py --quick    # up to ten thousand
    python benchmarks/resume.py --json     # the same figures, for a program

Eight local workers take 100 steps with `auto`. Then the run is made longer than anybody
would wait for: its folder gets the lines of as many steps in `steps.jsonl`, written by
the library's own `StepLog`, a trace of the last 20,000 of them at most, written by its
own `RunRecorder` (which keeps fewer), and the checkpoint's step is set to their number.
A process of its own then goes on from there and takes one step.

- Seconds from calling `train` to the first gradient, and the most memory of that
  process, beside those of a process that begins a new run. Each three times, the least.
- Aim: going on takes at most 2 s longer than beginning, and 50 MB more memory, at any
  number of steps.

Exit code 1 if an aim is missed.
"""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr
from pathlib import Path

import msgspec
import torch
from torch import nn

import codedgrad as cg
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.trace import Entry, RunRecorder, StepLine, StepLog, read_run

QUICK = "--quick" in sys.argv[1:]
AS_JSON = "--json" in sys.argv[1:]
COUNTS = [10_000] if QUICK else [10_000, 100_000, 1_000_000]
TRACED = 20_000  # steps, more than a run keeps of its trace
REAL = 100
ROUNDS = 1 if QUICK else 3
AIM_SECONDS, AIM_MB = 2.0, 50.0


def job() -> cg.torch.Job:
    x = torch.randn(1024, 32, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    return cg.torch.Job(model, nn.MSELoss(), (x, x[:, :1]), batch_size=256)


def train(folder: Path, more: int) -> dict[str, float]:
    """Take more steps; return what it took until the first gradient."""
    begun = time.perf_counter()
    found: dict[str, float] = {}
    with cg.torch.train(job, workers=8, run_dir=folder, resume="auto") as coded:
        optimizer = torch.optim.Adam(coded.model.parameters())
        coded.track(optimizer=optimizer)
        for step in coded.steps(coded.step + more):
            coded.backward()
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
            seconds = time.perf_counter() - begun
            found = found or {"seconds": seconds, "MB": most, "first": step}
            optimizer.step()
    return found


def later(entry: Entry, steps: int, seconds: float) -> Entry:
    """Return an entry of so many steps later."""

    def moved(each):
        changes = {"step": each.step + steps} if hasattr(each, "step") else {}
        changes |= {"at": each.at + seconds} if hasattr(each, "at") else {}
        return msgspec.structs.replace(each, **changes)

    return Entry(moved(entry.event), tuple(map(moved, entry.commands)))


def lengthen(folder: Path, steps: int) -> None:
    """Let a run of REAL steps be one of many more."""
    run = read_run(folder)
    entries, lines = run.trace.entries, run.steps
    span = entries[-1].event.at
    for file in (folder / "trace").iterdir():
        file.unlink()
    recorder = RunRecorder(folder / "trace", run.trace.header)
    for start in range(max(0, steps - TRACED), steps, REAL):
        for entry in entries:
            moved = later(entry, start, span * start / REAL)
            recorder(moved.event, moved.commands)
    recorder.close()
    with StepLog(folder) as log:
        for step in range(steps):
            line: StepLine = lines[step % REAL]
            log(msgspec.structs.replace(line, step=step, at=line.at + span * step))
    shelf = Shelf(folder / "checkpoints", keep=1)
    found = shelf.newest()
    assert found is not None
    state = found[1] | {"step": steps, "seconds": span * (1 + steps / REAL)}
    state["learnt"] = recorder.recent.packed()
    shelf.write(steps, state)


def measured(folder: Path) -> dict[str, float]:
    """Go on in a process of its own; return its seconds and its megabytes."""
    words = [sys.executable, __file__, "--life", str(folder)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(shown.stdout)
    return found


def size(path: Path) -> float:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def main() -> int:
    rows, missed = [], []
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        new = [measured(base / f"new{number}") for number in range(ROUNDS)]
        fresh = {key: min(each[key] for each in new) for key in new[0]}
        rows.append({"steps": 0, **fresh})
        for count in COUNTS:
            folder = base / str(count)
            with redirect_stderr(io.StringIO()):  # that it begins, which is no news
                train(folder, REAL)
            lengthen(folder, count)
            sizes = {
                "figures": size(folder / "steps.jsonl"),
                "trace": size(folder / "trace"),
                "checkpoint": size(Shelf(folder / "checkpoints").path(count)),
            }
            ways = [measured(folder) for _ in range(ROUNDS)]
            assert all(way["first"] >= count for way in ways)
            best = {key: min(way[key] for way in ways) for key in ways[0]}
            rows.append({"steps": count, **best, **sizes})
            if best["seconds"] > fresh["seconds"] + AIM_SECONDS:
                missed.append(f"seconds at {count}")
            if best["MB"] > fresh["MB"] + AIM_MB:
                missed.append(f"memory at {count}")
    if AS_JSON:
        print(json.dumps({"rows": rows, "missed": missed}))
        return bool(missed)
    print("    steps  to a gradient  more than  memory  on disk [MB]")
    print("                      [s]    new [s]    [MB]  figures  trace  checkpoint")
    for row in rows:
        more = row["seconds"] - rows[0]["seconds"]
        disk = ""
        if row["steps"]:
            disk = (
                f"{row['figures']:8.1f} {row['trace']:6.1f} {row['checkpoint']:11.2f}"
            )
        print(
            f"{row['steps']:9d} {row['seconds']:14.2f} {more:10.2f} {row['MB']:7.0f} "
            f"{disk}"
        )
    print("all met" if not missed else f"MISSED: {', '.join(missed)}")
    return bool(missed)


if __name__ == "__main__":
    if "--life" in sys.argv:
        print(json.dumps(train(Path(sys.argv[-1]), 1)))
        sys.exit()
    sys.exit(main())
