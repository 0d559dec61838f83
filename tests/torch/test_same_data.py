"""Workers whose data, model or libraries are not those of the root."""

import dataclasses
import logging
import os
import random
import signal
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from codedgrad.errors import JobFailed
from codedgrad.torch import Job, train
from codedgrad.torch.model.workload import Workload, workload
from codedgrad.torch.sample_digest import digest
from codedgrad.torch.train import Coded

ROOT = os.getpid()
ADVICE = "see the same files in the same order (sort directory listings)"


class Listed(Dataset[tuple[Tensor, Tensor]]):
    """Samples in the order of a listing."""

    def __init__(self, listing: list[int]) -> None:
        self._listing = listing

    def __len__(self) -> int:
        return len(self._listing)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = torch.rand(1) + np.random.rand() + random.random()  # noqa: NPY002
        return torch.full((1,), float(self._listing[index])) + noise, torch.zeros(1)


def made(listing: list[int], **options: Any) -> Job:
    return Job(nn.Linear(1, 1), nn.MSELoss(), Listed(listing), **options)


def start(make: Any) -> None:
    with train(make, scheme="uncoded", workers=2) as coded:
        coded.backward()


def test_a_listing_in_another_order_ends_the_run_before_its_first_step() -> None:
    root = ROOT
    listing = list(range(50))

    def job() -> Job:
        return made(listing if os.getpid() == root else listing[::-1])

    with pytest.raises(JobFailed) as caught:
        start(job)
    said = str(caught.value)
    assert caught.value.where in ("worker 0", "worker 1")
    assert ": its sample " in said
    assert said.count(" (digest)") == 2
    assert ", the root's is " in said
    assert ADVICE in said
    assert "verify_data=False" in said
    assert "\n" not in said


def test_samples_that_are_meant_to_differ_are_not_compared_but_lengths_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = ROOT
    listing = list(range(50))

    def differ() -> Job:
        other = listing if os.getpid() == root else listing[::-1]
        return made(other, verify_data=False)

    def shorter() -> Job:
        other = listing if os.getpid() == root else listing[:-1]
        return made(other, verify_data=False)

    start(differ)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    with pytest.raises(JobFailed) as caught:
        start(shorter)
    assert "its number of samples is 49, the root's is 50; let every" in str(
        caught.value
    )


def test_a_worker_that_sees_other_data_when_it_comes_back_ends_the_run(
    tmp_path: Path,
) -> None:
    changed = tmp_path / "changed"
    listing = list(range(50))

    def job() -> Job:
        return made([*listing, 50] if changed.exists() else listing)

    with train(job, scheme="uncoded", workers=2) as coded:
        coded.backward()
        changed.touch()
        engine: Any = coded._driver._engine
        os.kill(engine.pids[1], signal.SIGKILL)
        with pytest.raises(JobFailed, match="samples is 51, the root's is 50; let"):
            many_steps(coded)


def many_steps(coded: Coded) -> None:
    for _ in range(1000):
        coded.backward()


def test_other_versions_and_initial_parameters_are_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = ROOT

    def job() -> Job:
        job = made(list(range(9)))
        if os.getpid() != root:
            torch.__version__ = "0.0.1"
            nn.init.zeros_(job.model.weight)  # type: ignore[arg-type]
        return job

    start(job)
    warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warned) == 2
    assert (
        "its digest of the initial parameters, of which the root's are used"
        in (warned[0])
    )
    assert warned[1].endswith(
        f": its version of torch is 0.0.1, the root's is {torch.__version__}"
    )


def test_a_root_that_cannot_read_compares_workers_with_each_other() -> None:
    class Far(Listed):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            raise FileNotFoundError("the files are on the workers")

    work = Workload(Job(nn.Linear(1, 1), nn.MSELoss(), Far([1, 2])), 1, seed=0)
    assert list(work.fingerprint().required) == ["number of samples", "model"]


def test_fingerprints_of_equal_jobs_are_equal_whatever_was_drawn_before() -> None:
    def job() -> Job:
        return made(list(range(1000)))

    one = workload(job, 2, seed=3).fingerprint()
    torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002
    before = torch.get_rng_state()
    other = workload(job, 2, seed=3).fingerprint()
    assert one == other
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(name.startswith("sample ") for name in one.required) == 8


def test_models_of_equal_size_and_other_shapes_differ() -> None:
    jobs = [
        Job(nn.Linear(*shape, bias=False), nn.MSELoss(), torch.ones(1, 1))
        for shape in ((2, 3), (3, 2))
    ]
    one, other = (Workload(job, 1, seed=0).fingerprint().required for job in jobs)
    assert one["model"].startswith("1 tensors of 6 numbers (digest ")
    assert one["model"] != other["model"]


@dataclasses.dataclass
class Sample:
    picture: Any
    label: int


Pair = namedtuple("Pair", "one other")

DIFFERENT = [
    None,
    0,
    1,
    True,
    1.0,
    1j,
    "1",
    b"1",
    [1],
    (1,),
    [[1]],
    {"a": 1},
    {"a": 2},
    {"b": 1},
    {1, 2},
    {1, 3},
    range(3),
    torch.ones(2),
    torch.ones(2, dtype=torch.bfloat16),
    torch.ones(2, dtype=torch.bool),
    torch.ones(2, 1),
    torch.zeros(2),
    torch.tensor(1.0),
    torch.ones(0),
    np.ones(2),
    np.ones(2, dtype="float32"),
    np.float64(1.0),
    np.array(["a", None], dtype=object),
    np.array(["a", 1], dtype=object),
    Sample(torch.ones(2), 3),
    Sample(torch.ones(2), 4),
    Sample(torch.zeros(2), 3),
    Pair(1, 2),
    Pair(2, 1),
    Pair(1, [2, torch.ones(1)]),
]


def test_different_samples_have_different_digests() -> None:
    assert len({digest(value) for value in DIFFERENT}) == len(DIFFERENT)


def test_equal_samples_have_equal_digests_however_they_are_stored() -> None:
    wide = torch.arange(12.0).reshape(3, 4)
    assert digest(wide.T) == digest(wide.T.contiguous())
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest(np.arange(6)[::2]) == digest(np.array([0, 2, 4]))


def test_of_what_cannot_be_digested_only_its_type_counts() -> None:
    assert digest([object(), 1]) == digest([object(), 1])
    assert digest([object(), 1]) != digest([object(), 2])
    endless: list[Any] = []
    endless.append(endless)
    assert digest(endless) == digest(endless)


def test_pictures_differ_by_their_pixels() -> None:
    pictures = pytest.importorskip("PIL.Image")
    black, white = (
        pictures.new("RGB", (4, 4), colour) for colour in ("black", "white")
    )
    assert digest(black) == digest(pictures.new("RGB", (4, 4), "black"))
    assert digest(black) != digest(white)
