"""PyTorch in, PyTorch out: the gradient of every step from whoever is fast enough.

A `Job` is what to train, `train` starts workers for it, and the loop stays the user's.
`record` measures the workers of a plain DDP run; `two_track` is for Adam on approximate
gradients.
"""

from codedgrad.torch.folder import Checkpoints
from codedgrad.torch.job import Job
from codedgrad.torch.losses import correct, mean_over_samples
from codedgrad.torch.record import record
from codedgrad.torch.report import Report
from codedgrad.torch.train import Coded, train
from codedgrad.torch.two_track import two_track

__all__ = [
    "Checkpoints",
    "Coded",
    "Job",
    "Report",
    "correct",
    "mean_over_samples",
    "record",
    "train",
    "two_track",
]
