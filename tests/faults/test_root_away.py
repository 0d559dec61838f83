"""A root that was away gives no step up whose answers are all there."""

import subprocess
import sys
from pathlib import Path

from codedgrad.core import Combine, StepStarted
from codedgrad.schemes import uncoded
from codedgrad.trace import read, replay

HANG = 60.0  # seconds; only a hang takes so long
PATIENCE, AWAY = 1.0, 1.2  # seconds

ROOT = """
import os, signal, subprocess, sys, threading, time
import numpy as np
from codedgrad.core import Patience, Progressed, StepStarted
from codedgrad.engines import train
from codedgrad.schemes import uncoded

patience, away, trace = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
left, timers = set(), []

def gradient(x, part, step):
    time.sleep(0.2)
    return 1.0, 1.0, x + part

def leave(step):
    if step not in left:
        left.add(step)
        pid = os.getpid()
        subprocess.Popen(["sh", "-c", f"sleep {away}; kill -CONT {pid}"])
        os.kill(pid, signal.SIGSTOP)

def watch(event, commands):
    match event:
        case Progressed(step=1):  # the root is stopped while it writes something down
            leave(1)
        case StepStarted(step=2):  # it is stopped while it waits for the workers
            timers.append(threading.Timer(0.05, leave, (2,)))
            timers[-1].start()

train(
    gradient, np.zeros(3), uncoded(2), steps=4, trace=trace, watch=watch,
    patience=Patience(least=patience, factor=1.0, first=20.0),
)
for timer in timers:
    timer.join()
print(sorted(left))
"""


def test_a_root_that_is_stopped_finds_the_answers_that_came_meanwhile(
    tmp_path: Path,
) -> None:
    path = tmp_path / "away.jsonl"
    given = [str(PATIENCE), str(AWAY), str(path)]
    command = [sys.executable, "-c", ROOT, *given]
    ran = subprocess.run(command, timeout=HANG, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "[1, 2]\n"), ran.stderr
    trace = read(path)
    assert replay(trace, uncoded(2)) is None
    started = [e.event.at for e in trace.entries if isinstance(e.event, StepStarted)]
    ended = [
        entry.event.at
        for entry in trace.entries
        if any(isinstance(command, Combine) for command in entry.commands)
    ]
    seconds = [end - start for start, end in zip(started, ended, strict=True)]
    assert max(seconds[1:]) < AWAY  # the absence is in none of them
