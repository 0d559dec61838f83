"""What a run saved: the bar, the run, the page and the commands say the same."""

import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from codedgrad.cli import main
from codedgrad.delays import Times
from codedgrad.torch import Job, train

STEPS = 12
SHARE = 0.08  # seconds of an equal share, slept


def job() -> Job:
    x = torch.linspace(0, 1, 256).reshape(256, 1)
    return Job(nn.Linear(1, 1), nn.MSELoss(), (x, 2 * x), batch_size=64)


class Terminal(io.StringIO):
    """Standard error that is a terminal, as far as the bar can tell."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Train with worker 3 ten times slow; return the folder, the bar, the sentence."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    unit = np.full((1, 4), SHARE)
    unit[0, 3] = 10 * SHARE
    times = Times(fixed=np.zeros((1, 4)), unit=unit)
    terminal, before = Terminal(), sys.stderr
    sys.stderr = terminal
    try:
        with train(
            job, workers=4, run_dir=folder, delays=times, progress=True
        ) as coded:
            for _ in coded.steps(STEPS):
                coded.backward()
            sentence = str(coded.savings)
    finally:
        sys.stderr = before
    return folder, terminal.getvalue(), sentence


def plain(text: str) -> str:
    """Return a text without colours and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", text).split())


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["codedgrad", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return capsys.readouterr().out

    return run


def test_the_sentence_is_the_same_to_the_digit_everywhere(
    run: tuple[Path, str, str], command: Callable[..., str]
) -> None:
    folder, bar, sentence = run
    figures, saved, caveats = re.fullmatch(
        r"(a step took .*?): (saved [0-9.]+ s a step)(.*)", sentence
    ).groups()
    assert f"{figures}{caveats}" in plain(bar)
    assert f"done by others; {saved}" in plain(bar)
    is_shared = len(os.sched_getaffinity(0)) < 4
    assert ("4 workers share" in caveats) == is_shared
    assert sentence in plain(command("who", folder))
    assert sentence in plain(command("plan", folder))
    told = sentence[:1].upper() + sentence[1:]
    assert told in plain(command("report", folder))
    assert told in plain((folder / "report.html").read_text())


def test_the_numbers_behind_it_are_the_same_too(
    run: tuple[Path, str, str], command: Callable[..., str]
) -> None:
    folder, _, _ = run
    who = json.loads(command("who", folder, "--json"))["savings"]
    plan = json.loads(command("plan", folder, "--json"))
    page = json.loads(command("report", folder, "--json"))["runs"][0]
    assert who == plan["savings"]
    assert page["waiting_estimate"] == who["waiting"]["estimate"]
    assert page["waiting_low"] == who["waiting"]["low"]
    assert page["waiting_high"] == who["waiting"]["high"]
    [uncoded] = [row for row in plan["ranking"] if row["scheme"].startswith("uncoded")]
    assert uncoded["mean_seconds"] == pytest.approx(
        who["waiting"]["estimate"], rel=1e-6
    )


def test_it_is_what_waiting_for_all_would_take(run: tuple[Path, str, str]) -> None:
    """The slow worker sleeps ten shares, and takes a little longer."""
    _, bar, sentence = run
    found = re.search(r"would have taken (at least )?([0-9.]+) s", sentence)
    assert found is not None
    assert float(found[2]) >= 0.85 * 10 * SHARE
    assert re.search(r"worker 3 is [0-9.]+x slow; its parts were done by", plain(bar))
