"""Ctrl-C, SIGTERM and errors leave a whole step behind, and SIGUSR1 stops nothing.

In this process signals are sent where it is known what the root is doing. Some roots
are processes of their own: this file is their script.
"""

import errno
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import codedgrad as cg
from codedgrad.core import Command, Event, MessageArrived, Patience, StepStarted
from codedgrad.engines import FaultPlan, Here, Local
from codedgrad.errors import InvalidOptions, StepGivenUp
from codedgrad.schemes import uncoded
from codedgrad.torch import Checkpoints, Coded, Job
from codedgrad.torch import signals as stopping
from codedgrad.torch.checkpoint import files as checkpoint
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.state_tree import flatten
from codedgrad.torch.signals import Stopping
from codedgrad.trace import Lock, files, read_run, read_status, replay

TOTAL = 8
PATIENCE = 60.0  # seconds; only a hang takes so long


def job() -> Job:
    data = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float32)
    x = torch.from_numpy(data)
    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.3), nn.Linear(5, 3))
    return Job(model, F.cross_entropy, (x, x.argmax(dim=1)), batch_size=8)


def nobody(moment: str, step: int) -> None:
    """Look, and do nothing."""


def train(
    folder: Path,
    look: Callable[[str, int], None] = nobody,
    *,
    engine: Here | Local | str = "here",
    every: int = 3,
    leave: int = TOTAL,
    **options: Any,
) -> None:
    """Train, or go on; `leave` is the step after which the loop is left early."""
    with cg.torch.train(
        job,
        scheme="uncoded",
        workers=2,
        engine=engine,
        run_dir=folder,
        resume="auto",
        checkpoints=Checkpoints(seconds=None, steps=every),
        **options,
    ) as coded:
        optimizer = torch.optim.AdamW(coded.model.parameters(), lr=0.05)
        coded.track(optimizer=optimizer)
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(coded.step)
        for step in coded.steps(TOTAL):
            coded._folder._saver.finish()  # so that it is known what there is
            luck = torch.rand(()).item()
            look("begun", step)
            coded.backward()
            look("has its gradient", step)
            for group in optimizer.param_groups:
                group["lr"] = 0.05 * (1 + luck)
            optimizer.step()
            look("is done", step)
            if step == leave:
                break


def outcome(folder: Path) -> tuple[object, ...]:
    """Return all that a run has come to, to the last bit, but for its times."""
    newest = Shelf(folder / "checkpoints").newest()
    assert newest is not None
    told = ("seconds", "learnt", "manifest")  # of how it came about
    structure, tensors = flatten({k: v for k, v in newest[1].items() if k not in told})
    bits = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    return structure, bits, [(line.step, line.loss) for line in read_run(folder).steps]


def saved(folder: Path) -> list[int]:
    """Return the steps of all checkpoints; each can be read, and nothing is torn."""
    shelf = Shelf(folder / "checkpoints")
    assert len(os.listdir(shelf.folder)) == len(shelf.steps())
    for file in shelf.folder.iterdir():
        checkpoint.load(file)
    return shelf.steps()


class At:
    """Does something at one moment of one step, once."""

    def __init__(self, moment: str, step: int, act: Callable[[], None]) -> None:
        self.when = moment, step
        self.act = act

    def __call__(self, moment: str, step: int) -> None:
        if (moment, step) == self.when:
            self.act()


def send(*numbers: int) -> Callable[[], None]:
    """Send signals to oneself; a handler has run before the next statement does."""

    def act() -> None:
        for number in numbers:
            signal.raise_signal(number)

    return act


SIGNALS = [
    pytest.param(signal.SIGINT, KeyboardInterrupt, id="Ctrl-C"),
    pytest.param(signal.SIGTERM, SystemExit, id="SIGTERM"),
]


@pytest.fixture(scope="module", autouse=True)
def luck() -> Iterator[None]:
    """Leave the generators of this process as they are."""
    states = checkpoint.generators()
    yield
    checkpoint.restore_generators(states)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """What comes of a run that nobody stops."""
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return outcome(folder)


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Let the signals have their usual effects, and see that they do afterwards."""
    effects = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGUSR1: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, how) for number, how in effects.items()}
    yield
    now = {number: signal.signal(number, how) for number, how in before.items()}
    assert now == effects


@pytest.fixture
def folder(tmp_path: Path, whole: tuple[object, ...]) -> Iterator[Path]:
    """A folder whose run, however it was stopped, comes out as if it was not."""
    yield tmp_path / "run"
    train(tmp_path / "run")
    assert outcome(tmp_path / "run") == whole
    run = read_run(tmp_path / "run")
    assert [line.step for line in run.steps] == [*range(TOTAL)]
    assert replay(run.trace, uncoded(2)) is None


# -- when ------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "error"), SIGNALS)
def test_a_step_that_has_its_gradient_is_finished_first(
    folder: Path, number: int, error: type[BaseException]
) -> None:
    done: list[int] = []

    def look(moment: str, step: int) -> None:
        At("has its gradient", 4, send(number))(moment, step)
        At(moment, step, lambda: done.append(step))("is done", step)

    with pytest.raises(error) as caught:
        train(folder, look)
    assert done == [0, 1, 2, 3, 4]
    assert saved(folder) == [3, 5]
    assert isinstance(caught.value, SystemExit)  # uncaught, it prints no traceback
    assert caught.value.code == 128 + number


@pytest.mark.parametrize(("number", "error"), SIGNALS)
@pytest.mark.parametrize("step", [0, 2, 3, TOTAL - 1])
def test_a_step_that_has_no_gradient_yet_is_not_begun(
    folder: Path, number: int, error: type[BaseException], step: int
) -> None:
    with pytest.raises(error):
        train(folder, At("begun", step, send(number)))
    if step:
        assert saved(folder)[-1] == step


@pytest.mark.parametrize(("number", "error"), SIGNALS)
@pytest.mark.parametrize("kind", [StepStarted, MessageArrived])
def test_nobody_waits_for_a_gradient_any_more(
    folder: Path, number: int, error: type[BaseException], kind: type
) -> None:
    def watch(event: Event, commands: list[Command]) -> None:
        if isinstance(event, kind) and event.step == 4:
            signal.raise_signal(number)

    with pytest.raises(error):
        train(folder, watch=watch)
    assert saved(folder) == [3, 4]


def test_the_last_step_is_finished_too(folder: Path) -> None:
    last = TOTAL - 1
    with pytest.raises(KeyboardInterrupt):
        train(folder, At("has its gradient", last, send(signal.SIGINT)))
    assert saved(folder)[-1] == TOTAL


def test_a_step_after_which_the_loop_is_left_is_finished_too(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(folder, At("has its gradient", 4, send(signal.SIGINT)), leave=4)
    assert saved(folder) == [3, 5]


def test_in_a_loop_of_ones_own_a_step_ends_where_the_next_gradient_is_asked_for(
    tmp_path: Path,
) -> None:
    def loop() -> None:
        with cg.torch.train(
            job, scheme="uncoded", workers=2, engine="here", run_dir=tmp_path
        ) as coded:
            while True:
                coded.backward()
                if coded.step == 4:
                    signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert saved(tmp_path) == [5]


@pytest.mark.parametrize(
    ("numbers", "error"),
    [
        ((signal.SIGTERM, signal.SIGTERM), SystemExit),
        ((signal.SIGTERM, signal.SIGTERM, signal.SIGTERM), SystemExit),
        ((signal.SIGINT, signal.SIGTERM), SystemExit),
    ],
)
def test_another_sigterm_does_not_cost_the_checkpoint(
    folder: Path,
    numbers: tuple[int, ...],
    error: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(error):
        train(folder, At("has its gradient", 4, send(*numbers)))
    assert saved(folder) == [3, 5]
    said = [record.getMessage() for record in caplog.records]
    assert said.count("stopping at the end of this step; Ctrl-C to stop at once") == 1


@pytest.mark.parametrize("line", range(6))
def test_a_second_sigterm_on_the_way_out_does_not_cost_the_checkpoint(
    folder: Path, line: int
) -> None:
    """It comes right before one of the first lines of `Coded.__exit__`."""
    leave = Coded.__exit__
    sent: list[int] = []
    left = line

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code is not leave.__code__:
            return None
        left -= 1
        if left < 0 and not sent:
            sent.append(frame.f_lineno)
            sys.settrace(None)
            signal.raise_signal(signal.SIGTERM)
        return trace

    def begin() -> None:
        sys.settrace(trace)
        signal.raise_signal(signal.SIGTERM)

    before = sys.gettrace()
    try:
        with pytest.raises(SystemExit):
            train(folder, At("begun", 4, begin))
    finally:
        sys.settrace(before)
    assert len(sent) == 1
    assert saved(folder) == [3, 4]
    assert json.loads((folder / "lock.json").read_bytes())["released"]


def test_sigterm_ends_a_process_that_caught_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_REPEATED", 0.0)
    with ExitStack() as stack:
        opened(tmp_path, stack)
        for _ in range(2):
            with pytest.raises(SystemExit):
                signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_interrupt_stops_it_at_once(
    folder: Path, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    numbers, error = (first, signal.SIGINT), KeyboardInterrupt
    done: list[int] = []

    def look(moment: str, step: int) -> None:
        At("has its gradient", 4, send(*numbers))(moment, step)
        done.append(step)

    with pytest.raises(error):
        train(folder, look)
    assert done.count(4) == 1  # only before
    assert saved(folder) == [3]  # not of half a step
    said = [record.getMessage() for record in caplog.records]
    assert said.count("stopping at the end of this step; Ctrl-C to stop at once") == 1


def interrupt_second_write(patch: pytest.MonkeyPatch) -> None:
    """Let a signal come in the middle of the second checkpoint."""
    fill, times = files.fill, count(1)

    def interrupted(path: Path, *given: Any) -> None:
        fill(path, *given)
        if "step-" in path.name and next(times) == 2:
            signal.raise_signal(signal.SIGINT)

    patch.setattr(files, "fill", interrupted)


# A signal that another thread raises interrupts the main thread anywhere, also between
# opening a file and what closes it; Python then closes the file by itself, and warns.
ANYWHERE = pytest.mark.filterwarnings(
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)


@ANYWHERE
def test_a_signal_while_a_checkpoint_is_written_leaves_it_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_second_write(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train(folder)
    monkeypatch.undo()
    assert saved(folder)[:2] == [3, 6]  # and of the step in which it was heard of


@ANYWHERE
def test_impatience_while_the_last_checkpoint_is_written_costs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_second_write(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train(folder, At("begun", 5, send(signal.SIGINT)))
    monkeypatch.undo()
    assert saved(folder) == [3]


# -- warnings --------------------------------------------------------------------------

warn = send(signal.SIGUSR1)


@pytest.mark.parametrize("moment", ["begun", "has its gradient", "is done"])
def test_a_warning_is_heeded_at_once_or_at_the_end_of_the_step_and_stops_nothing(
    folder: Path, whole: tuple[object, ...], moment: str
) -> None:
    seen: dict[str, list[int]] = {}

    def look(now: str, step: int) -> None:
        At(moment, 4, warn)(now, step)
        if step == 4:
            seen[now] = Shelf(folder / "checkpoints").steps()

    train(folder, look)
    is_at_once = moment == "begun"
    assert seen["is done"] == ([3, 4] if is_at_once else [3])
    assert saved(folder) == ([4, 7, 8] if is_at_once else [3, 5, 8])[-3:]
    assert outcome(folder) == whole


@pytest.mark.parametrize("kind", [StepStarted, MessageArrived])
def test_a_warning_while_a_step_waits_is_heeded_there(
    folder: Path, whole: tuple[object, ...], kind: type
) -> None:
    seen: list[list[int]] = []

    def watch(event: Event, commands: list[Command]) -> None:
        if isinstance(event, kind) and event.step == 4:
            signal.raise_signal(signal.SIGUSR1)
            seen.append(Shelf(folder / "checkpoints").steps())

    train(folder, watch=watch)
    assert seen[0] == [3, 4]
    assert outcome(folder) == whole


@pytest.mark.parametrize("leave", [4, 5])
def test_a_run_goes_on_from_what_a_warning_has_written(
    folder: Path, leave: int
) -> None:
    """Ended in the step of the warning, or the next; the fixture goes on with it."""

    def look(moment: str, step: int) -> None:
        At("has its gradient", 4, warn)(moment, step)
        At("has its gradient", leave, fail)(moment, step)

    with pytest.raises(Oops):
        train(folder, look)
    assert saved(folder) == ([3] if leave == 4 else [3, 5])


def test_a_warning_while_a_checkpoint_is_written_writes_no_second_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, written = files.fill, list[str]()

    def warned(path: Path, *given: Any) -> None:
        if not path.name.startswith(".step-"):
            return fill(path, *given)
        signal.raise_signal(signal.SIGUSR1)  # the main thread handles it meanwhile
        fill(path, *given)
        signal.raise_signal(signal.SIGUSR1)
        return written.append(path.name[1:26])

    monkeypatch.setattr(files, "fill", warned)
    train(folder)
    # A warning that comes when a write is done asks for one more, of a later step.
    steps = [int(name[5:13]) for name in written]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (3, 8)


def test_a_warning_to_a_run_without_a_folder_is_answered_and_ends_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with cg.torch.train(job, scheme="uncoded", workers=2, engine="here") as coded:
        for step in coded.steps(3):
            coded.backward()
            At("", 1, warn)("", step)
    assert coded.step == 3
    said = [record.getMessage() for record in caplog.records]
    assert said == ["checkpoint requested, but the run has no run_dir"]


def test_sigterm_after_a_warning_stops_as_ever(folder: Path) -> None:
    numbers = send(signal.SIGUSR1, signal.SIGTERM)
    with pytest.raises(SystemExit):
        train(folder, At("has its gradient", 4, numbers))
    assert saved(folder) == [3, 5]


def test_a_warning_reaches_all_roots_of_the_main_thread(tmp_path: Path) -> None:
    """Each writes where it may: the first has its gradient, the second has not."""
    seen: list[list[list[int]]] = []

    def look(moment: str, step: int) -> None:
        At("first has its gradient", 4, warn)(moment, step)
        if (moment, step) in (("is done", 4), ("begun", 5)):
            shelves = [Shelf(tmp_path / n / "checkpoints") for n in ("first", "second")]
            seen.append([shelf.steps() for shelf in shelves])

    take_turns(tmp_path, look)
    assert seen == [[[], [4]], [[5], [4]]]


@pytest.mark.quick("waits")
@pytest.mark.parametrize("moment", ["waits", "works"])
def test_a_root_of_another_thread_heeds_a_warning_in_its_own(
    tmp_path: Path, moment: str
) -> None:
    """While it waits for a worker that sleeps until the checkpoint is there, too."""
    ready, warned = threading.Event(), threading.Event()
    engine, faults = Local(), FaultPlan()
    if moment == "waits":
        faults.stop(0, 2, PATIENCE)
    shelf = Shelf(tmp_path / "thread" / "checkpoints")

    def watch(event: Event, commands: list[Command]) -> None:
        if isinstance(event, MessageArrived) and (event.step, event.worker) == (2, 1):
            ready.set()

    def look(now: str, step: int) -> None:
        if moment == "works" and (now, step) == ("has its gradient", 2):
            assert warned.wait(PATIENCE)

    def in_a_thread() -> None:
        train(
            tmp_path / "thread", look, engine=engine, faults=faults, watch=watch,
            every=100,
        )  # fmt: skip

    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        opened(tmp_path / "main", stack)
        trained = pool.submit(in_a_thread)
        assert ready.wait(PATIENCE)
        signal.raise_signal(signal.SIGUSR1)
        warned.set()
        wait_for(shelf.steps)
        if moment == "waits":
            assert shelf.steps() == [2]
            os.kill(engine.pids[0], signal.SIGCONT)
        trained.result(PATIENCE)
    assert shelf.steps()[0] == (2 if moment == "waits" else 3)


def wait_for(what: Callable[[], object]) -> None:
    """Look until it is so, or until a hang is called one."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- whose signals ---------------------------------------------------------------------


def handlers() -> tuple[Any, ...]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    return tuple(signal.getsignal(number) for number in numbers)


def test_signals_are_taken_for_the_time_of_a_run_and_given_back(folder: Path) -> None:
    before, seen = handlers(), list[tuple[Any, ...]]()
    train(folder, lambda moment, step: seen.append(handlers()))
    assert handlers() == before
    assert len({*seen}) == 1
    assert not {*before} & {*seen[0]}


@pytest.mark.parametrize("how", [signal.SIG_IGN, lambda *_: None, signal.SIG_DFL])
def test_a_signal_that_has_another_effect_is_left_alone(folder: Path, how: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        if how is signal.SIG_DFL and number != signal.SIGINT:
            continue  # its usual one
        with_own = signal.signal(number, how)
        seen: list[Any] = []
        train(folder, lambda *_, n=number, s=seen: s.append(signal.getsignal(n)))
        assert {*seen} <= {how}
        assert signal.getsignal(number) is how
        signal.signal(number, with_own)


def test_the_users_own_handler_is_called(folder: Path) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    train(folder, At("has its gradient", 2, send(signal.SIGTERM)))
    assert heard == [signal.SIGTERM]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_handler_that_the_user_sets_in_the_loop_stays(folder: Path) -> None:
    def own(*_: object) -> None:
        """Do nothing."""

    train(folder, At("begun", 2, lambda: signal.signal(signal.SIGINT, own) and None))
    assert signal.getsignal(signal.SIGINT) is own
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_in_a_thread_no_signal_is_taken(folder: Path) -> None:
    before, seen = handlers(), list[tuple[Any, ...]]()
    with ThreadPoolExecutor(1) as pool:
        look = lambda moment, step: seen.append(handlers())  # noqa: E731
        pool.submit(train, folder, look).result()
    assert {*seen} == {before}


def test_no_signal_is_kept_by_a_run_that_cannot_start(tmp_path: Path) -> None:
    before = handlers()
    with pytest.raises(InvalidOptions):
        train(tmp_path, faults=FaultPlan().kill(0, 1))
    assert handlers() == before


# -- several roots ---------------------------------------------------------------------


def opened(folder: Path, stack: ExitStack) -> tuple[cg.torch.Coded, Any]:
    """Return a root, to be closed by the stack, and its optimizer."""
    coded = cg.torch.train(
        job,
        scheme="uncoded",
        workers=2,
        engine="here",
        run_dir=folder,
        resume="auto",
        checkpoints=Checkpoints(seconds=None),
    )
    stack.enter_context(coded)
    optimizer = torch.optim.AdamW(coded.model.parameters(), lr=0.05)
    coded.track(optimizer=optimizer)
    return coded, optimizer


def take_turns(folder: Path, look: Callable[[str, int], None] = nobody) -> None:
    """Train two models in one loop, as with a generator and its discriminator."""
    with ExitStack() as stack:
        first, first_optimizer = opened(folder / "first", stack)
        second, second_optimizer = opened(folder / "second", stack)
        for step, other in zip(first.steps(TOTAL), second.steps(TOTAL), strict=True):
            assert step == other
            look("begun", step)
            first.backward()
            look("first has its gradient", step)
            second.backward()
            look("both have their gradients", step)
            first_optimizer.step()
            second_optimizer.step()
            look("is done", step)


@pytest.mark.parametrize(("number", "error"), SIGNALS)
@pytest.mark.parametrize(
    ("moment", "left"),
    [
        ("begun", 4),
        ("first has its gradient", 5),
        ("both have their gradients", 5),
        ("is done", 5),
    ],
)
def test_two_roots_in_one_loop_both_stop_at_the_end_of_the_step(
    tmp_path: Path, number: int, error: type[BaseException], moment: str, left: int
) -> None:
    kill = lambda: os.kill(os.getpid(), number)  # noqa: E731
    with pytest.raises(error):
        take_turns(tmp_path / "stopped", At(moment, 4, kill))
    for name in ("first", "second"):
        assert saved(tmp_path / "stopped" / name) == [left]
    take_turns(tmp_path / "stopped")
    take_turns(tmp_path / "whole")
    for name in ("first", "second"):
        assert outcome(tmp_path / "stopped" / name) == outcome(
            tmp_path / "whole" / name
        )


def test_two_roots_in_a_loop_of_ones_own_both_stop(tmp_path: Path) -> None:
    """At the end of a step of either the other one is in the middle of its own."""

    def loop() -> None:
        with ExitStack() as stack:
            first, _ = opened(tmp_path / "first", stack)
            second, _ = opened(tmp_path / "second", stack)
            while first.step < TOTAL:
                first.backward()
                if first.step == 4:
                    signal.raise_signal(signal.SIGTERM)
                second.backward()

    with pytest.raises(SystemExit):
        loop()
    assert saved(tmp_path / "first") == [5]  # the step in which the signal came
    assert saved(tmp_path / "second") == [4]  # it was at the end of one before that


def test_the_root_whose_loop_is_around_anothers_is_finished_too(tmp_path: Path) -> None:
    taken: list[int] = []

    def loop() -> None:
        with ExitStack() as stack:
            outer, optimizer = opened(tmp_path / "outer", stack)
            inner, _ = opened(tmp_path / "inner", stack)
            for step in outer.steps(3):
                outer.backward()
                for each in inner.steps(2 * (step + 1)):
                    inner.backward()
                    if each == 2:
                        signal.raise_signal(signal.SIGINT)
                    taken.append(each)
                optimizer.step()

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert taken == [0, 1, 2, 3]
    assert saved(tmp_path / "outer")[-1] == 2
    assert saved(tmp_path / "inner")[-1] == 4


def test_two_interrupts_stop_two_roots_at_once(tmp_path: Path) -> None:
    twice = send(signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        take_turns(tmp_path, At("both have their gradients", 4, twice))
    for name in ("first", "second"):
        assert Shelf(tmp_path / name / "checkpoints").steps() == []


@pytest.mark.parametrize("closed", [0, 1])
def test_signals_are_taken_until_the_last_root_is_closed(
    tmp_path: Path, closed: int
) -> None:
    before = handlers()
    with ExitStack() as stack:
        roots = [opened(tmp_path / str(i), stack)[0] for i in range(2)]
        taken = handlers()
        assert taken != before
        roots[closed].close()
        assert handlers() == taken
        left = roots[1 - closed]
        left.backward()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit):
            left.backward()
    assert handlers() == before
    assert saved(tmp_path / str(1 - closed)) == [1]


def unready() -> Stopping:
    """Return what a root has that is in the middle of a step for ever."""
    made = Stopping()
    made.may_stop, made.save = lambda: False, fail
    return made


def test_a_root_that_was_dropped_holds_nobody_up(tmp_path: Path) -> None:
    with ExitStack() as stack:
        opened(tmp_path, stack)
        dropped: list[Stopping] = [unready()]
        dropped[0].install()
        del dropped[:]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    unready().install()
    with pytest.raises(KeyboardInterrupt):  # as ever, where all are gone
        signal.raise_signal(signal.SIGINT)


def test_a_root_of_another_thread_stops_at_the_end_of_its_step(tmp_path: Path) -> None:
    ready, sent = threading.Event(), threading.Event()

    def in_a_thread() -> None:
        with ExitStack() as stack:
            coded, _ = opened(tmp_path / "thread", stack)
            for step in coded.steps(TOTAL):
                coded.backward()
                if step == 2:
                    ready.set()
                    assert sent.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        opened(tmp_path / "main", stack)
        trained = pool.submit(in_a_thread)
        assert ready.wait(PATIENCE)
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        sent.set()
        assert isinstance(trained.exception(PATIENCE), SystemExit)
    assert saved(tmp_path / "thread") == [3]


# -- errors ----------------------------------------------------------------------------


class Oops(Exception):
    pass


def fail() -> None:
    raise Oops


def test_an_error_in_the_middle_of_a_step_leaves_no_checkpoint_of_it(
    folder: Path,
) -> None:
    with pytest.raises(Oops):
        train(folder, At("has its gradient", 4, fail))
    assert saved(folder) == [3]


def test_an_error_after_the_optimizer_leaves_no_checkpoint_of_its_step(
    folder: Path,
) -> None:
    """More may have been to come, such as a schedule."""
    with pytest.raises(Oops):
        train(folder, At("is done", 4, fail))
    assert saved(folder) == [3]


def test_an_error_before_the_gradient_leaves_a_checkpoint_of_the_step_before(
    folder: Path,
) -> None:
    with pytest.raises(Oops):
        train(folder, At("begun", 4, fail))
    assert saved(folder) == [3, 4]


@pytest.mark.long
def test_a_step_that_is_given_up_leaves_a_checkpoint_and_says_which(
    tmp_path: Path, whole: tuple[object, ...]
) -> None:
    faults = FaultPlan().leave(0, 4).leave(1, 4)
    patience = Patience(least=3.0, first=60.0)
    with pytest.raises(StepGivenUp, match=r"step 4 was given up: .*lost.*\[0, 1\]"):
        train(tmp_path, engine=Local(), faults=faults, patience=patience)
    assert faults.all_fired
    assert saved(tmp_path) == [3, 4]
    train(tmp_path, engine=Local(), patience=patience)
    assert outcome(tmp_path) == whole


# -- processes -------------------------------------------------------------------------


def be_root(folder: Path, moment: str) -> None:
    """Train with a worker that is fast asleep; tell when the time has come.

    Args:
        folder: Of the run.
        moment: "waiting": worker 0 sleeps in step 4; "working": a signal comes after
            the gradient of step 4; "stopped": worker 0 is stopped in step 4.
    """
    engine, faults = Local(), FaultPlan()
    look = nobody
    if moment == "waiting":
        faults.slow(0, 4, 1000.0)
    elif moment == "stopped":
        faults.stop(0, 4, 1000.0)
    else:
        look = At("has its gradient", 4, lambda: os.kill(os.getpid(), signal.SIGTERM))

    def watch(event: Event, commands: list[Command]) -> None:
        if isinstance(event, MessageArrived) and (event.step, event.worker) == (4, 1):
            print(engine.nursery, flush=True)

    train(folder, look, engine=engine, faults=faults, watch=watch)
    print(*engine.lives, flush=True)


@pytest.mark.long
def test_a_warning_to_all_processes_of_a_job_ends_none_of_them(
    tmp_path: Path, whole: tuple[object, ...]
) -> None:
    """As Slurm's does without `B:`; the step waits for a worker that is stopped."""
    shelf = Shelf(tmp_path / "checkpoints")
    process = subprocess.Popen(
        [sys.executable, __file__, str(tmp_path), "stopped"],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    with process:
        try:
            assert process.stdout is not None
            nursery = int(process.stdout.readline())
            workers = members(nursery)
            assert len(workers) == 1 + 2  # with two workers
            os.killpg(process.pid, signal.SIGUSR1)
            for pid in workers:
                os.kill(pid, signal.SIGUSR1)
            wait_for(lambda: 4 in shelf.steps())
            os.killpg(nursery, signal.SIGCONT)
            assert process.wait(PATIENCE) == 0
            lives = process.stdout.read().split()
        finally:
            process.kill()
    assert lives == ["1", "1"]
    assert outcome(tmp_path) == whole


DOCUMENT = Path(__file__).parents[2] / "docs" / "preemption.md"


def test_the_watcher_in_the_documents_warns_the_root(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    [watcher] = [block for block in blocks if "def warn" in block]
    names: dict[str, Any] = {}
    exec(watcher, names)
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    for host in (socket.gethostname(), "another"):
        status = {"pid": os.getpid(), "host": host}
        (tmp_path / "status.json").write_text(json.dumps(status))
        names["warn"](tmp_path)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert heard == [signal.SIGUSR1]


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(0, 0), (1, 143)], ids=["exec", "trap"])
def test_the_batch_scripts_in_the_documents_pass_the_warning_on(
    tmp_path: Path, number: int, code: int
) -> None:
    """By `exec`, which ends when it is done; or to stop, and to be queued again."""
    scripts = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    text = scripts[number].replace("source .venv/bin/activate\n", "")
    text = text.replace("python train.py", f"{sys.executable} {__file__} run stopped")
    (tmp_path / "job.sh").write_text(text)
    queue = tmp_path / "scontrol"
    queue.write_text('#!/bin/sh\necho "$@" > queued\n')
    queue.chmod(0o755)
    process = subprocess.Popen(
        ["bash", "job.sh"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}",
             "SLURM_JOB_ID": "7"},
        preexec_fn=lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL),
    )  # fmt: skip
    shelf = Shelf(tmp_path / "run" / "checkpoints")
    with process:
        try:
            assert process.stdout is not None
            nursery = int(process.stdout.readline())
            process.send_signal(signal.SIGUSR1)
            wait_for(lambda: 4 in shelf.steps())
            if code == 0:
                os.killpg(nursery, signal.SIGCONT)
            assert process.wait(PATIENCE) == code
        finally:
            process.kill()
    assert (tmp_path / "queued").exists() == (code != 0)
    assert shelf.steps()[-1] == (4 if code else TOTAL)


@dataclass(frozen=True)
class Ended:
    """A root that was stopped.

    Attributes:
        folder: Of its run.
        code: With which it ended.
        errors: What it has printed.
        orphans: Processes that it has left behind.
    """

    folder: Path
    code: int
    errors: str
    orphans: list[int]


def stop_root(folder: Path, moment: str, number: int) -> Ended:
    errors = folder.with_suffix(".txt")
    with errors.open("w") as file:  # which orphans may keep open
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder), moment],
            stdout=subprocess.PIPE,
            stderr=file,
            # a job in the background may have been started with Ctrl-C ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    with process:
        try:
            assert process.stdout is not None
            nursery = int(process.stdout.readline())
            if moment == "waiting":  # else it is about to do it itself
                assert len(members(nursery)) == 1 + 2  # with two workers
                process.send_signal(number)
            process.wait(PATIENCE)
        finally:
            process.kill()
    deadline = time.monotonic() + PATIENCE
    while members(nursery) and time.monotonic() < deadline:
        time.sleep(0.01)
    return Ended(folder, process.returncode, errors.read_text(), members(nursery))


def members(session: int) -> list[int]:
    """Return the processes of a session that have not ended: those of a nursery."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


@pytest.fixture(scope="module")
def ended(
    together: Callable, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Ended]:
    base = tmp_path_factory.mktemp("ended")
    wanted = {
        "Ctrl-C": ("waiting", signal.SIGINT),
        "SIGTERM": ("working", signal.SIGTERM),
    }
    found = together(
        [
            lambda name=name, given=given: stop_root(base / name, *given)
            for name, given in wanted.items()
        ]
    )
    return dict(zip(wanted, found, strict=True))


def test_ctrl_c_ends_a_script_with_code_130_and_one_line_that_names_the_checkpoint(
    ended: dict[str, Ended],
) -> None:
    root = ended["Ctrl-C"]
    assert root.code == 128 + signal.SIGINT, root.errors
    file = root.folder / "checkpoints" / "step-00000004.safetensors"
    begun, _, ended_by = root.errors.partition("\n")
    assert begun == (
        f"codedgrad: nothing to resume in {root.folder}: beginning at step 0"
    )
    assert ended_by == (
        f"codedgrad: stopped by Ctrl-C after 4 steps; checkpoint {file}; "
        'go on with resume="auto"\n'
    )


def test_a_root_that_is_told_to_end_says_so_by_its_code(
    ended: dict[str, Ended],
) -> None:
    root = ended["SIGTERM"]
    assert root.code == 128 + signal.SIGTERM, root.errors
    assert "Traceback" not in root.errors


def test_a_root_that_waits_has_saved_the_step_before_and_one_that_works_its_own(
    ended: dict[str, Ended],
) -> None:
    steps = {name: saved(root.folder) for name, root in ended.items()}
    assert steps == {"Ctrl-C": [3, 4], "SIGTERM": [3, 5]}


def test_no_process_is_left_of_a_root_that_was_stopped(ended: dict[str, Ended]) -> None:
    assert [root.orphans for root in ended.values()] == [[], []]


def test_a_root_that_was_stopped_goes_on(
    ended: dict[str, Ended], whole: tuple[object, ...]
) -> None:
    folder = ended["Ctrl-C"].folder
    train(folder, engine=Local())
    assert outcome(folder) == whole
    assert replay(read_run(folder).trace, uncoded(2)) is None


# -- signals at bad moments ------------------------------------------------------------


@pytest.mark.parametrize("first", [None, signal.SIGTERM, signal.SIGINT])
def test_a_sigterm_while_the_last_checkpoint_is_written_waits_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, first: int | None
) -> None:
    """Schedulers send it twice; without a first one, the loop has just been left."""
    fill = files.fill

    def interrupted(path: Path, *given: Any) -> None:
        fill(path, *given)
        if path.name.startswith(".step-00000002"):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(files, "fill", interrupted)
    stop = nobody if first is None else At("begun", 2, send(first))
    with pytest.raises(SystemExit) as stopped:
        train(folder, stop, leave=1 if first is None else TOTAL)
    assert stopped.value.code == 128 + signal.SIGTERM
    monkeypatch.undo()
    assert saved(folder) == [2]


@pytest.mark.parametrize("when", ["starting", "closing"])
@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGUSR1, None), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_while_a_run_starts_or_closes_ends_it_in_order(
    tmp_path: Path, when: str, number: int, error: type[BaseException] | None
) -> None:
    class Slow(Here):
        def start(self, *given: Any, **options: Any) -> None:
            if when == "starting":
                signal.raise_signal(number)
            super().start(*given, **options)

        def close(self) -> None:
            if when == "closing":
                signal.raise_signal(number)
            super().close()

    with pytest.raises(error) if error else nullcontext():
        train(tmp_path, engine=Slow())
    status = read_status(tmp_path)
    assert status is not None
    is_stopped = when == "starting" and error is not None
    assert status.state == ("stopped" if is_stopped else "ended")
    assert Shelf(tmp_path / "checkpoints").steps()[-1:] == [8] * (not is_stopped)
    with Lock(tmp_path):  # it was released
        pass


@pytest.mark.parametrize("left", ["a full disk", "a folder that is another's"])
def test_an_error_of_the_user_is_not_hidden_by_what_follows_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    left: str,
) -> None:
    def look(moment: str, step: int) -> None:
        if (moment, step) == ("begun", 5):
            if left == "a full disk":
                monkeypatch.setattr(files, "fill", full)
            else:
                (tmp_path / "lock.json").unlink()
            raise Oops

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Oops):
        train(tmp_path, look)
    said = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    wanted = "No space left" if left == "a full disk" else "lock.json was removed"
    assert any(wanted in line for line in said)


def test_a_step_that_the_loop_was_left_in_before_its_gradient_is_not_taken(
    folder: Path,
) -> None:
    with cg.torch.train(
        job, scheme="uncoded", workers=2, engine="here", run_dir=folder
    ) as coded:
        for step in coded.steps(8):
            if step == 0:
                break
            coded.backward()
    assert coded.step == 0
    assert Shelf(folder / "checkpoints").steps() == []


if __name__ == "__main__":
    be_root(Path(sys.argv[1]), sys.argv[2])
