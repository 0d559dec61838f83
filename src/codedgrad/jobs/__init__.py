"""What is computed and what is done with the sum, whoever drives the steps.

A `WorkerJob` lives in the workers and makes the gradient of a part; `NumpyJob` makes
one of a function. A `Descent` lives at the root and turns sums into parameters.
Simulation and real processes share both; `single_process` is training without either.
"""

from codedgrad.jobs.arrays import Floats, Gradient, NumpyJob
from codedgrad.jobs.descent import Descent, Training, Update, single_process
from codedgrad.jobs.job import (
    DescribesParts,
    Fingerprint,
    Fingerprinted,
    VectorLayout,
    WorkerJob,
)

__all__ = [
    "Descent",
    "DescribesParts",
    "Fingerprint",
    "Fingerprinted",
    "Floats",
    "Gradient",
    "NumpyJob",
    "Training",
    "Update",
    "VectorLayout",
    "WorkerJob",
    "single_process",
]
