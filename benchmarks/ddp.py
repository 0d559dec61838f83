"""Whole training steps beside DistributedDataParallel on gloo, in one run.

    python benchmarks/ddp.py            # about three minutes, up to 4 GB of memory
    python benchmarks/ddp.py --quick    # four workers and small models, for a look
    python benchmarks/ddp.py --only calm --json

Same model, data, batches and number of worker processes, one thread each. Blocks of
steps of one and of the other take turns, so that both meet the same noise; ratios are
medians over pairs of blocks, with the lowest and the highest. A step is all of it:
samples picked, forward, backward, exchange, optimizer.

- calm: nobody is late; `uncoded` on the local engine. "compute" is forward and backward
  alone, in as many processes at once. All share the cores of this machine, and so do
  DDP's optimizers, one a process; codedgrad has one, at the root. "of CPU" is the ratio
  of what all processes compute, which others on the machine change less.
- slow: every part sleeps, and in every other block one worker's ten times as long. A
  coded worker has two parts a step.
- killed: one worker kills itself with SIGKILL in the middle of a step.

With --json what was found goes to standard output, the tables to standard error. Exit
code 1 if an aim is missed.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

# Read when numpy and torch are imported, here and in every process to come.
os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from codedgrad.delays import Times
from codedgrad.engines import Engine, FaultPlan, Here, Local
from codedgrad.torch import Job, train
from codedgrad.torch.data import Parts

SEED = 0
WARM = 3  # steps that are not timed: memory is touched for the first time
PART, SLOW = 0.02, 0.2  # seconds that a part sleeps
VICTIM = 2  # the worker that is slow, or killed
CASES = ("calm", "slow", "killed")
PLAYERS = ("compute", "ddp", "ours")
CODED = ("fractional(1)", "cyclic(1)")
SCHEMES = (*CODED, "uncoded")
OFF = {"uncoded": 0.0, "fractional(1)": 0.0, "cyclic(1)": 1e-4}  # parameters, at most

Vector: TypeAlias = NDArray[np.float32]
Row: TypeAlias = dict[str, Any]


# -- what is trained, by both ----------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A model, its data and its optimizer, and how to look at them.

    Attributes:
        name: Of the model.
        widths: Numbers, or channels, before and after every layer but the last.
        batch: Samples a step.
        optimizer: Of `torch.optim`.
        part: Seconds that every part sleeps.
        slow: Seconds that the victim's sleep in every other block.
        block: Steps of a block.
        rounds: Blocks of each.
    """

    name: str
    widths: tuple[int, ...]
    batch: int
    optimizer: str = "SGD"
    part: float = 0.0
    slow: float = 0.0
    block: int = 5
    rounds: int = 8

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample."""
        return (self.widths[0], 32, 32) if self.name == "conv" else self.widths[:1]

    def model(self) -> nn.Module:
        torch.manual_seed(SEED)
        layers: list[nn.Module] = []
        for a, b in pairwise(self.widths):
            if self.name == "conv":
                layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            else:
                layers += [nn.Linear(a, b), nn.ReLU()]
        body = nn.Sequential(*layers, nn.Flatten())
        outputs = body(torch.zeros(1, *self.shape)).size(1)
        return body.append(nn.Linear(outputs, 10))

    def data(self) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(SEED)
        inputs = torch.randn(8 * self.batch, *self.shape, generator=draw)
        return inputs, torch.randint(10, (len(inputs),), generator=draw)

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.optimizer == "AdamW":
            return torch.optim.AdamW(model.parameters(), lr=1e-4)
        return torch.optim.SGD(model.parameters(), lr=1e-2)

    def job(self) -> Job:
        return Job(self.model(), F.cross_entropy, self.data(), self.batch)

    def sleeps(self, workers: int) -> NDArray[np.float64]:
        """Return seconds a part, (steps, workers)."""
        seconds = np.full((WARM + 2 * self.block * self.rounds, workers), self.part)
        for first in range(WARM + self.block, len(seconds), 2 * self.block):
            if self.slow:
                seconds[first : first + self.block, VICTIM] = self.slow
        return seconds


CALM = (
    Setting("mlp", (256, 384, 384), 256, block=15),
    Setting("conv", (3, 32, 64, 128, 256), 128),
    Setting("mlp", (512, 1024, 1024, 768), 256),
    Setting("mlp", (512, 1024, 1024, 768), 256, "AdamW"),
    Setting("mlp", (1024, 2048, 2048, 2048), 256, block=3),
)
QUICK = (Setting("mlp", (256, 384, 384), 64, block=3, rounds=2),)
SMALL = Setting("mlp", (64, 64), 64, part=PART)


@dataclass(frozen=True)
class Block:
    """Some steps: seconds a step, by the clock and of all processors; their losses."""

    seconds: float
    cpu: float
    losses: list[float]


Run: TypeAlias = Callable[[int], Block]


class Turns:
    """Lets several take as many steps each, one after the other."""

    def __init__(self, **runs: Run) -> None:
        self._runs = runs
        self.losses: dict[str, list[float]] = {name: [] for name in runs}

    def take(self, steps: int) -> dict[str, Block]:
        blocks = {name: run(steps) for name, run in self._runs.items()}
        for name, block in blocks.items():
            self.losses[name] += block.losses
        return blocks


def processors(pids: Iterable[int]) -> float:
    """Return the seconds that processes have computed so far; Linux only."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(numbers[11]) + int(numbers[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# -- DDP -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failed:
    """What a rank says instead of an answer: why, in which step, and when."""

    why: str
    step: int
    at: float


SILENT = Failed("it says nothing", -1, math.inf)


class Rank:
    """One process of DDP. What it can be asked for are its methods."""

    def __init__(self, link: Connection, number: int, ranks: int, folder: str) -> None:
        self._link, self._number, self._ranks = link, number, ranks
        self.step = 0
        store = f"file://{Path(folder, 'store')}"
        dist.init_process_group("gloo", store, rank=number, world_size=ranks)

    def set_up(self, setting: Setting, dies: int) -> int:
        """Begin anew; `dies` is the step in which the victim kills itself."""
        self._plain, model = setting.model(), setting.model()
        self._model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self._optimizer = setting.optimizer_of(model)
        self._data = setting.data()
        samples = len(self._data[0])
        self._parts = Parts(samples, self._ranks, setting.batch, SEED)
        self._sleeps = setting.sleeps(self._ranks)[:, self._number]
        self._dies = dies if self._number == VICTIM else -1
        self.step = 0
        return os.getpid()

    def run(self, steps: int) -> tuple[float, float, list[float]]:
        """Take steps; return when they began and ended, and their losses."""
        dist.barrier()
        begun = time.monotonic()
        losses = [self._train() for _ in range(steps)]
        return begun, time.monotonic(), [float(loss) for loss in losses]

    def compute(self, steps: int) -> tuple[float, float, list[float]]:
        """Compute gradients, and do nothing with them."""
        dist.barrier()
        begun = time.monotonic()
        for step in range(steps):
            self._plain.zero_grad()
            self._loss(self._plain, step).backward()
        return begun, time.monotonic(), []

    def gradient(self) -> Vector:
        """Return that of the last step."""
        return flat(p.grad for p in self._model.parameters())

    def _train(self) -> Tensor:
        step, self.step = self.step, self.step + 1
        self._optimizer.zero_grad()
        if seconds := self._sleeps[step % len(self._sleeps)]:
            time.sleep(seconds)
        loss = self._loss(self._model, step)
        if step == self._dies:
            self._link.send(Failed("killed", step, time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def _loss(self, model: nn.Module, step: int) -> Tensor:
        rows = torch.from_numpy(self._parts.indices(self._number, step))
        inputs, target = (column.index_select(0, rows) for column in self._data)
        return F.cross_entropy(model(inputs), target)


def be_rank(link: Connection, number: int, ranks: int, folder: str) -> None:
    log = os.open(Path(folder, f"{number}.txt"), os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)  # gloo talks
    os.dup2(log, 2)
    rank = Rank(link, number, ranks, folder)
    while True:
        what, arguments = link.recv()
        try:
            link.send(getattr(rank, what)(*arguments))
        except Exception as error:  # it ends with it, as a script would
            link.send(Failed(str(error), rank.step, time.monotonic()))
            raise


def fork_ranks(folder: str, ends: list[int]) -> None:
    """Fork the ranks from a process that has imported everything, as the engine does.

    They end with it, and it when the other end of its standard input does.
    """
    import torch._dynamo  # noqa: F401  # DDP would, in every rank

    for number, end in enumerate(ends):
        if os.fork() == 0:
            try:
                for other in ends:
                    if other != end:
                        os.close(other)
                be_rank(Connection(end), number, len(ends), folder)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)
    for end in ends:
        os.close(end)
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


class Ddp:
    """All ranks, in a session of their own, as our workers are."""

    def __init__(self, ranks: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ddp-")
        pairs = [Pipe() for _ in range(ranks)]
        ends = [theirs.fileno() for _, theirs in pairs]
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--ranks", self._folder.name, *map(str, ends)],
            stdin=subprocess.PIPE,
            pass_fds=ends,
            start_new_session=True,
        )
        for _, theirs in pairs:
            theirs.close()
        self._links = [ours for ours, _ in pairs]

    def set_up(self, setting: Setting, dies: int = -1) -> None:
        self._pids = self._ask("set_up", setting, dies)

    def run(self, steps: int, what: str = "run") -> Block:
        before = processors(self._pids)
        begun, ended, losses = zip(*self._ask(what, steps), strict=True)
        cpu = processors(self._pids) - before
        mean = np.mean(losses, axis=0).tolist()
        return Block((max(ended) - min(begun)) / steps, cpu / steps, mean)

    def gradient(self) -> Vector:
        found: Vector = self._ask("gradient")[0]
        return found

    def _ask(self, what: str, *arguments: object) -> list[Any]:
        answers = self.try_to(what, *arguments, limit=300.0)
        for number, answer in enumerate(answers):
            if isinstance(answer, Failed):
                log = Path(self._folder.name, f"{number}.txt").read_text()[-2000:]
                raise RuntimeError(f"rank {number} of DDP: {answer}\n{log}")
        return answers

    def try_to(self, what: str, *arguments: object, limit: float) -> list[Any]:
        """Return what the ranks answer in so many seconds; `Failed` if they do not."""
        until = time.monotonic() + limit
        for link in self._links:
            link.send((what, arguments))
        answers: list[Any] = []
        for link in self._links:
            answers.append(SILENT)
            with suppress(EOFError, ConnectionResetError):  # it is dead
                if link.poll(max(0.0, until - time.monotonic())):
                    answers[-1] = link.recv()
        return answers

    def close(self) -> None:
        self._process.communicate()
        for link in self._links:
            link.close()
        self._folder.cleanup()


# -- codedgrad -------------------------------------------------------------------------


class Ours:
    """A scheme on an engine."""

    def __init__(
        self,
        setting: Setting,
        workers: int,
        scheme: str = "uncoded",
        engine: Engine | None = None,
        faults: FaultPlan | None = None,
    ) -> None:
        sleeps = setting.sleeps(workers)
        self._engine = Local() if engine is None else engine
        self._coded = train(
            setting.job,
            scheme=scheme,
            workers=workers,
            engine=self._engine,
            seed=SEED,
            delays=Times(fixed=np.zeros_like(sleeps), unit=sleeps),
            faults=faults,
            progress=False,
        )
        self._optimizer = setting.optimizer_of(self._coded.model)
        self._loop = self._coded.steps(sys.maxsize)

    def run(self, steps: int) -> Block:
        pids = [os.getpid(), *getattr(self._engine, "pids", ())]
        losses, before, begun = [], processors(pids), time.monotonic()
        for _ in islice(self._loop, steps):
            losses.append(self._coded.backward().loss)
            self._optimizer.step()
        seconds = time.monotonic() - begun
        return Block(seconds / steps, (processors(pids) - before) / steps, losses)

    def gradient(self) -> Vector:
        return flat(p.grad for p in self._coded.model.parameters())

    def parameters(self) -> Vector:
        return flat(self._coded.model.parameters())

    def close(self) -> None:
        self._coded.close()


def flat(tensors: Iterable[Tensor | None]) -> Vector:
    """Return tensors as one vector, a copy."""
    pieces = [tensor.detach().flatten() for tensor in tensors if tensor is not None]
    vector: Vector = torch.cat(pieces).numpy()
    return vector


def apart(ours: Vector | list[float], theirs: Vector | list[float]) -> float:
    """Return the distance of two vectors, relative to the second."""
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


# -- the cases -------------------------------------------------------------------------


class Bench:
    """Runs cases, notes what was found and which aims were missed."""

    def __init__(self, workers: int, quick: bool, say: Callable[[str], None]) -> None:
        self.workers, self.quick, self.say = workers, quick, say
        self.found: dict[str, list[Row]] = {case: [] for case in CASES}
        self.missed: list[str] = []

    def run(self, cases: Sequence[str]) -> None:
        """Run some; the last of all is the end of DDP."""
        with closing(Ddp(self.workers)) as self.ddp:
            for case in cases:
                getattr(self, case)()

    def want(self, name: str, value: float, aim: float, least: bool = False) -> None:
        if not (value >= aim if least else value <= aim):
            word = "least" if least else "most"
            self.missed.append(f"{name}: {value:.3g}, not at {word} {aim:g}")

    def calm(self) -> None:
        self.say(f"\ncalm, {self.workers} workers; times of a step [ms]")
        self.say(
            f"{'model':<5} {'[MB]':>5} {'optimizer':<9} {'compute':>8} {'DDP':>8} "
            f"{'ours':>8} {'ours / DDP':>18} {'of CPU':>7}"
        )
        for setting in QUICK if self.quick else CALM:
            row = self._calm(setting)
            self.found["calm"].append(row)
            compute, ddp, ours = (median(row[name]) for name in PLAYERS)
            ratios = divided(row["ours"], row["ddp"])
            cpu = divided(row["ours_cpu"], row["ddp_cpu"])
            self.say(
                f"{setting.name:<5} {row['megabytes']:>5.1f} {setting.optimizer:<9} "
                f"{ms(compute):>8} {ms(ddp):>8} {ms(ours):>8} {spread(ratios):>18} "
                f"{median(cpu):>7.2f}"
            )
            self.say(
                f"      compute: {compute / ddp:.0%} of DDP's, {compute / ours:.0%} of "
                f"ours; gradients {row['gradients']:.0e} apart, losses "
                f"{row['losses']:.0e}"
            )
            model = f"{setting.name} {row['megabytes']:.1f} MB {setting.optimizer}"
            self.want(f"calm, {model}, ours / DDP", median(ratios), 1.0)
            self.want(f"calm, {model}, first gradients apart", row["gradients"], 1e-5)
            self.want(f"calm, {model}, losses apart", row["losses"], 1e-4)

    def _calm(self, setting: Setting) -> Row:
        ddp = self.ddp
        with closing(Ours(setting, self.workers)) as ours:
            ddp.set_up(setting)
            turns = Turns(
                compute=partial(ddp.run, what="compute"), ddp=ddp.run, ours=ours.run
            )
            turns.take(1)
            gradients = apart(ours.gradient(), ddp.gradient())
            turns.take(WARM - 1)
            rounds = [turns.take(setting.block) for _ in range(setting.rounds)]
            return {
                "model": setting.name,
                "optimizer": setting.optimizer,
                "megabytes": ours.parameters().nbytes / 1e6,
                "batch": setting.batch,
                **{name: [each[name].seconds for each in rounds] for name in PLAYERS},
                "ddp_cpu": [each["ddp"].cpu for each in rounds],
                "ours_cpu": [each["ours"].cpu for each in rounds],
                "gradients": gradients,
                "losses": apart(turns.losses["ours"], turns.losses["ddp"]),
            }

    def slow(self) -> None:
        self.say(
            f"\none of {self.workers} workers 10 times as slow; parts sleep "
            f"{ms(PART)} ms; times of a step [ms]"
        )
        block, rounds = (3, 2) if self.quick else (5, 6)
        setting = replace(SMALL, slow=SLOW, block=block, rounds=rounds)
        with ExitStack() as stack:
            runs: dict[str, Run] = {}
            for name in SCHEMES[:1] if self.quick else SCHEMES:
                ours = Ours(setting, self.workers, name)
                runs[name] = stack.enter_context(closing(ours)).run
            self.ddp.set_up(setting)
            # DDP is the last: when its slow block is over the slow worker of a coded
            # run, which nobody waited for, has woken up.
            turns = Turns(**runs, DDP=self.ddp.run)
            turns.take(WARM)
            halves = [(turns.take(block), turns.take(block)) for _ in range(rounds)]
        self.say(f"{'':<14} {'calm':>8} {'one slow':>9} {'DDP / ours, slow':>20}")
        for name, losses in turns.losses.items():
            calm = [half[name].seconds for half, _ in halves]
            slow = [half[name].seconds for _, half in halves]
            ratios = divided([half["DDP"].seconds for _, half in halves], slow)
            off = apart(losses, turns.losses["DDP"])
            row: Row = {"scheme": name, "calm": calm, "slow": slow, "losses": off}
            self.found["slow"].append(row)
            self.say(
                f"{name:<14} {ms(median(calm)):>8} {ms(median(slow)):>9} "
                f"{spread(ratios):>20}"
            )
            self.want(f"slow, {name}, losses apart", off, 1e-4)
            if name in CODED:
                self.want(f"slow, DDP / {name}", median(ratios), 3.0, least=True)

    def killed(self) -> None:
        steps, dies = (12, 5) if self.quick else (60, 20)
        self.say(
            f"\none of {self.workers} workers kills itself in step {dies} of {steps}; "
            f"parts sleep {ms(PART)} ms"
        )
        for scheme in SCHEMES[:1] if self.quick else SCHEMES:
            self._killed(scheme, steps, dies)
        self._end_of_ddp(steps, dies)

    def _killed(self, scheme: str, steps: int, dies: int) -> None:
        faults = FaultPlan().kill(VICTIM, step=dies, after=1)
        with closing(Ours(SMALL, self.workers, scheme, faults=faults)) as ours:
            times = [ours.run(1).seconds for _ in range(steps)]
            end = ours.parameters()
        awake = replace(SMALL, part=0.0)
        with closing(Ours(awake, self.workers, scheme, Here())) as alone:
            alone.run(steps)
            off = float(np.abs(end - alone.parameters()).max())
        row: Row = {"scheme": scheme, "steps": len(times), "fired": len(faults.fired)}
        self.found["killed"].append({**row, "seconds": times, "off": off})
        before, after = median(times[1:dies]), median(times[dies + 1 :])
        around = " ".join(ms(seconds) for seconds in times[dies - 1 : dies + 4])
        self.say(f"{scheme:<14} {len(times)} of {steps} steps done; parameters at most")
        self.say(f"{'':<14} {off:.2g} off those of one undisturbed process")
        self.say(f"{'':<14} {ms(before)} ms a step before, {ms(after)} ms after;")
        self.say(f"{'':<14} steps {dies - 1} to {dies + 3}: {around} ms")
        self.want(f"killed, {scheme}, kills", row["fired"], 1, least=True)
        self.want(f"killed, {scheme}, parameters off", off, OFF[scheme])

    def _end_of_ddp(self, steps: int, dies: int) -> None:
        limit = 10.0 if self.quick else 60.0
        self.ddp.set_up(SMALL, dies)
        answers = self.ddp.try_to("run", steps, limit=limit)
        killed = answers.pop(VICTIM)
        raised = [answer for answer in answers if answer.at < math.inf]
        done = min([answer.step - 1 for answer in raised], default=dies)
        row: Row = {
            "scheme": "DDP",
            "steps": done,
            "raised": [answer.at - killed.at for answer in raised],
            "silent": len(answers) - len(raised),
            "errors": sorted({answer.why for answer in raised}),
        }
        self.found["killed"].append(row)
        self.say(
            f"{'DDP':<14} {done} of {steps} steps done; of the {len(answers)} others "
            f"{len(raised)} raise, {row['silent']} hang for {limit:.0f} s"
        )
        if raised:
            first, last = min(row["raised"]), max(row["raised"])
            why = row["errors"][0].split("] ")[-1].split(". ")[0]
            self.say(f"{'':<14} {first:.3f} to {last:.3f} s after the kill:")
            self.say(f"{'':<14} {why[:64]}")


def divided(above: list[float], below: list[float]) -> list[float]:
    return [a / b if b else math.nan for a, b in zip(above, below, strict=True)]


def spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--workers", type=int, help="an even number, 4 or more")
    parser.add_argument("--only", choices=CASES, help="one case")
    given = parser.parse_args()
    workers = given.workers or (4 if given.quick else 8)
    if workers < 4 or workers % 2:
        parser.error(f"{workers} workers; it must be an even number, 4 or more")
    logging.getLogger("codedgrad").setLevel(logging.ERROR)  # late is as planned
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # if it hangs
    signal.alarm(90 if given.quick else 1800)

    def say(text: str) -> None:
        print(text, file=sys.stderr if given.json else sys.stdout, flush=True)

    bench = Bench(workers, given.quick, say)
    bench.run([given.only] if given.only else CASES)
    if given.json:
        found = {"workers": workers, **bench.found, "missed": bench.missed}
        print(json.dumps(found, indent=1))
    say("\naims: calm, a step takes at most as long as DDP's; with a slow worker DDP's")
    say("takes at least 3 times as long as a coded one; the same gradients, the same")
    say("losses, and whoever is killed the same parameters:")
    say("\n".join(f"MISSED {line}" for line in bench.missed) or "all met")
    return bool(bench.missed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ranks"]:
        fork_ranks(sys.argv[2], [int(end) for end in sys.argv[3:]])
    else:
        sys.exit(main())
