"""What a loop can show a watcher."""

import torch
from torch import nn

from codedgrad.advise import Watcher
from codedgrad.torch import Job, train


def job() -> Job:
    x = torch.arange(12.0).reshape(12, 1)
    return Job(nn.Linear(1, 1), nn.MSELoss(), (x, 2 * x), batch_size=4)


def test_a_loop_shows_a_watcher_the_record_of_every_step() -> None:
    watcher = Watcher(workers=2)
    with train(job, scheme="uncoded", workers=2, engine="here") as coded:
        assert coded.record is None
        for step in coded.steps(3):
            coded.backward()
            assert coded.record is not None
            assert coded.record.step == step
            assert watcher.update(coded.record) == []  # too few steps to tell
