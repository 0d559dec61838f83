"""The bar on a real terminal: workers that are lost, and log lines beside it."""

import logging
import os
import pty
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest
import torch
from torch import nn

from codedgrad.engines import FaultPlan
from codedgrad.learning.waiting import WaitingForAll
from codedgrad.torch import Job, train
from codedgrad.torch.progress import Bar


class Terminal:
    """A terminal that is standard error for a while."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.stream: TextIO = os.fdopen(slave, "w", buffering=1)
        self._shown = ""

    def shown(self) -> str:
        """Return all that was written so far, without control sequences."""
        self.stream.write("\x05")  # how far to read
        self.stream.flush()
        while not self._shown.endswith("\x05"):
            self._shown += os.read(self._master, 65536).decode()
        self._shown = self._shown[:-1]
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._shown)

    @contextmanager
    def is_stderr(self) -> Iterator[None]:
        """Be standard error."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.setenv("COLUMNS", "200")
            patch.setattr(sys, "stderr", self.stream)
            yield

    @contextmanager
    def bar(self) -> Iterator[Bar]:
        """Show a bar of 20 steps here."""
        with self.is_stderr(), Bar(20, 0, None) as bar:
            yield bar

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def test_the_bar_says_that_a_worker_is_lost_until_it_is_back(
    terminal: Terminal,
) -> None:
    with terminal.bar() as bar:
        bar.show_worker(2, is_back=False)
        bar.show_worker(0, is_back=False)
        assert "lost: 0, 2" in terminal.shown()
        bar.show_worker(2, is_back=True)
        assert "lost: 0, back: 2" in terminal.shown()


def test_that_a_worker_is_back_is_said_for_five_steps(terminal: Terminal) -> None:
    with terminal.bar() as bar:
        bar.show_worker(2, is_back=True)
        for _ in range(4):
            bar.advance(None, WaitingForAll(1, 1.0))
        assert bar._workers == "back: 2"
        bar.advance(None, WaitingForAll(1, 1.0))
        assert bar._workers == ""


def test_log_lines_stand_above_the_bar_and_handlers_get_their_stream_back(
    terminal: Terminal,
) -> None:
    handler = logging.StreamHandler(terminal.stream)
    handler.setFormatter(logging.Formatter("mine: %(message)s"))
    log = logging.getLogger("codedgrad")
    log.addHandler(handler)
    try:
        with terminal.bar():
            assert handler.stream is not terminal.stream
            log.warning("worker 1 was lost")
        log.warning("after it")
    finally:
        log.removeHandler(handler)
    assert handler.stream is terminal.stream
    lines = re.split(r"[\r\n]+", terminal.shown())
    assert "mine: worker 1 was lost" in [line.rstrip() for line in lines]
    assert "mine: after it" in lines


def test_what_goes_to_no_terminal_goes_where_it_went(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = logging.StreamHandler(sys.stdout)
    log = logging.getLogger("codedgrad")
    log.addHandler(handler)
    try:
        with terminal.bar():
            log.warning("a line")
            print("printed")
    finally:
        log.removeHandler(handler)
    assert capsys.readouterr().out == "a line\nprinted\n"


def job() -> Job:
    x = torch.linspace(0, 1, 8).reshape(8, 1)
    return Job(nn.Linear(1, 1), nn.MSELoss(), (x, 2 * x), batch_size=4)


def test_the_bar_of_a_run_shows_a_worker_that_is_killed_and_comes_back(
    terminal: Terminal,
) -> None:
    faults = FaultPlan().kill(1, 2)
    with (
        terminal.is_stderr(),
        train(job, scheme="uncoded", workers=2, faults=faults) as coded,
    ):
        for _ in coded.steps(5):
            coded.backward()
    assert faults.all_fired
    shown = terminal.shown()
    assert shown.index("lost: 1") < shown.index("back: 1")


def test_a_bar_that_is_not_shown_changes_nothing() -> None:
    before = sys.stderr
    with Bar(20, 0, False) as bar:
        assert sys.stderr is before
        bar.show_worker(1, is_back=False)
