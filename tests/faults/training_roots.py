"""A process that forks roots which train, for tests that stop and kill them.

It reads a line a command from standard input, as JSON, and answers with a line each.
Roots are forked, because importing torch takes longer than all that they train. The
test ends them.
"""

import json
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from codedgrad.torch import Checkpoints, Job, train
from codedgrad.trace import Lock
from codedgrad.trace.segments import RunRecorder


def job() -> Job:
    x = torch.randn(48, 6)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    return Job(model, nn.CrossEntropyLoss(), (x, x.argmax(dim=1) % 3), batch_size=16)


class Ballast:
    """What makes a checkpoint large; says of which step it is."""

    def __init__(self, size: int) -> None:
        self.weights = torch.zeros(size)

    def state_dict(self) -> dict[str, Tensor]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.weights = state["weights"]


def run(
    folder: str,
    total: int,
    *,
    pace: float = 0.0,
    engine: str = "here",
    every: int = 4,
    keep: int = 2,
    ballast: int = 0,
    fill_at: int | None = None,
    free_at: int | None = None,
    **options: Any,
) -> None:
    """Train as a user does.

    Args:
        folder: Of the run.
        total: How many steps.
        pace: Seconds that a step takes at least.
        engine: What the workers are.
        every: Steps from a checkpoint to the next.
        keep: How many checkpoints stay.
        ballast: Numbers in a checkpoint beside the model.
        fill_at: The step at which another file takes all the space of the disk.
        free_at: The step at which that file is removed.
        options: Of `train`.
    """
    with train(
        job, scheme="uncoded", workers=2, engine=engine, run_dir=folder, seed=3,
        checkpoints=Checkpoints(seconds=None, steps=every, keep=keep), **options,
    ) as coded:  # fmt: skip
        optimizer = torch.optim.AdamW(coded.model.parameters(), lr=0.05)
        weight = Ballast(ballast)
        coded.track(optimizer=optimizer, ballast=weight)
        torch.manual_seed(7)
        for step in coded.steps(total):
            if step == fill_at:
                coded._folder._saver.finish()  # the checkpoint of before still fits
                fill(Path(folder).with_name("filler"))
            if step == free_at:
                Path(folder).with_name("filler").unlink()
            coded.backward()
            for parameter in coded.model.parameters():
                parameter.grad *= 1.0 + 0.1 * torch.rand(())  # luck, of the root's own
            optimizer.step()
            weight.weights.fill_(step + 1)
            time.sleep(pace)


def fill(path: Path | str, room: int = 0) -> None:
    """Write a file until the disk is full, but for some bytes."""
    with Path(path).open("ab", buffering=0) as file:
        for size in (1 << 16, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
        file.truncate(max(0, file.tell() - room))


def stop_before(call: str, name: str, nth: int) -> None:
    """Stop this process right before the n-th such call on a file of such a name.

    Of `fstat` only calls of the main thread count: others read the lock more often.
    """
    real: Callable[..., Any] = getattr(os, call)
    left = nth

    def stopping(*given: Any, **named: Any) -> Any:
        nonlocal left
        path = given[-1] if call == "replace" else given[0]
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        is_main = threading.current_thread() is threading.main_thread()
        if re.search(name, str(path)) and (is_main or call != "fstat"):
            left -= 1
            if left == 0:
                # By `os.kill` another thread may get it, and this one go on a little.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return real(*given, **named)

    setattr(os, call, stopping)


def start(
    says: str,
    *,
    stale: float = 60.0,
    beat: float = 0.02,
    segment: int = 16 << 20,
    stop: tuple[str, str, int] | None = None,
    **options: Any,
) -> int:
    """Fork a root; return its process id.

    Args:
        says: A file for all it says.
        stale: Seconds; see `Lock`.
        beat: Seconds between two heartbeats.
        segment: Bytes of a file of the trace.
        stop: What it stops itself before; see `stop_before`.
        options: See `run`.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        null, said = os.open(os.devnull, os.O_RDONLY), os.open(says, 0o1101, 0o644)
        for source, target in ((null, 0), (said, 1), (said, 2)):
            os.dup2(source, target)
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
        Lock.__init__.__kwdefaults__ |= {"stale": stale, "every": beat}
        head, (size, *rest) = RunRecorder.__init__.__defaults__[:2], (segment, 8, ())
        RunRecorder.__init__.__defaults__ = (*head, size, *rest)
        if stop is not None:
            stop_before(*stop)
        run(**options)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int) -> int:
    """Wait until a root ends or is stopped; return its status.

    That is its exit code; less than 0: the signal that ended it; 1000: it is stopped.
    """
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return 1000
    return os.waitstatus_to_exitcode(status)


def warm_up() -> None:
    """Import what torch does not before it is needed: a second for every root else."""
    weight = nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)
    torch.optim.AdamW([weight]).step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up()
    for line in sys.stdin:
        name, options = json.loads(line)
        print(json.dumps(globals()[name](**options)), flush=True)
