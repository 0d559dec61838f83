"""What scripts share that tests run under mpirun or torchrun."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from codedgrad.jobs import single_process

RATE = 0.1


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    """Return a gradient with other data in every part and step."""
    gap = x - np.sin(np.arange(len(x)) * (part + 1) + step)
    return float(gap @ gap) / 2, 1.0, gap


def alone(size: int, parts: int, steps: int) -> np.ndarray:
    """Return what a single process comes to."""
    start = np.zeros(size)
    return single_process(gradient, start, parts, steps=steps, rate=RATE).parameters


def is_close(found: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.allclose(found, wanted, rtol=1e-10, atol=1e-11))


def tell(name: str, facts: Any = None) -> None:
    """Let the test know something."""
    with open(os.environ["CODEDGRAD_ANSWERS"], "a") as file:
        file.write(json.dumps([name, facts]) + "\n")


def state(pid: int) -> list[str]:
    """Return what the system says of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def nurseries(engine: Any) -> list[int]:
    """Return the processes that the workers were forked from, by worker."""
    return [int(state(pid)[1]) for pid in engine.pids]


def agents(engine: Any) -> list[int]:
    """Return the agents of the workers' hosts, by worker: their nurseries' parents."""
    return [int(state(pid)[1]) for pid in nurseries(engine)]


def far_host(engine: Any, worker: int) -> Any:
    """Return the host of a worker that is not on the root's own."""
    [host] = [host for host in engine._far.values() if worker in host.workers]
    return host


def stop(pid: int) -> None:
    """Stop a process, and see that it stands."""
    os.kill(pid, signal.SIGSTOP)
    while state(pid)[0] != "T":
        time.sleep(0.001)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, though its parent may not have noticed."""
    try:
        return state(pid)[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def go_on(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def seconds_used(pid: int) -> float:
    """Return the CPU time that a process has used."""
    user, system = state(pid)[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
