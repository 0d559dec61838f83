"""PyTorch in, PyTorch out: the gradient of every step from whoever is fast enough.

A `Job` is what to train, `train` starts workers for it, and the loop stays the user's;
`load` reads a checkpoint without the run, `compare_with_plain` compares with a plain
loop. `record` measures the workers of a plain DDP
run; `two_track` is for Adam on approximate gradients.
"""

from codedgrad.engines import WorkerStatus, WorkerTable
from codedgrad.torch.checkpoint.load import Checkpoint, load
from codedgrad.torch.checkpoint.run_folder import Checkpoints
from codedgrad.torch.compare import PlainComparison, compare_with_plain
from codedgrad.torch.ddp.record import record
from codedgrad.torch.job import Job
from codedgrad.torch.losses import correct, mean_over_samples
from codedgrad.torch.report import Report
from codedgrad.torch.train import Coded, train
from codedgrad.torch.two_track import two_track

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "Coded",
    "Job",
    "PlainComparison",
    "Report",
    "WorkerStatus",
    "WorkerTable",
    "compare_with_plain",
    "correct",
    "load",
    "mean_over_samples",
    "record",
    "train",
    "two_track",
]
