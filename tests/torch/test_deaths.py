"""A sample that ends the process that reads it."""

import os
import signal

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from codedgrad.errors import JobFailed
from codedgrad.torch import Job, train


class Deadly(Dataset[tuple[Tensor, Tensor]]):
    """Reading one of its samples is the end of a worker, but not of the root."""

    def __init__(self, sample: int) -> None:
        self._sample = sample
        self._root = os.getpid()

    def __len__(self) -> int:
        return 1200

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == self._sample and os.getpid() != self._root:
            os.kill(os.getpid(), signal.SIGSEGV)
        return torch.ones(1), torch.zeros(1)


def test_the_samples_of_a_part_that_ends_its_workers_are_named() -> None:
    data = Deadly(sample=10)

    def job() -> Job:
        return Job(nn.Linear(1, 1), nn.MSELoss(), data, batch_size=6, shuffle=False)

    with train(job, scheme="uncoded", workers=3) as coded:
        coded.backward()
        with pytest.raises(JobFailed) as caught:
            coded.backward()
    assert caught.value.where == "worker 1, step 1, part 1 (samples 7, 10)"
    assert "worker 1 by SIGSEGV, worker 1 by SIGSEGV" in str(caught.value)
