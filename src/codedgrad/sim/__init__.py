"""Simulation: the real coordinator in virtual time, and a fast path in arrays.

`compare` runs several schemes on the same delays; `train` carries real gradients in
virtual time; `Simulator` is the driver itself; `bounds_of` says how fast any scheme
could have been.
"""

from codedgrad.jobs import Gradient, Training, Update
from codedgrad.network import Network
from codedgrad.sim.arrays.codes import Outcome, has_fast_path, outcome
from codedgrad.sim.arrays.trees import (
    counted_seconds,
    has_tree_path,
    ring_seconds,
    tree_outcome,
    tree_seconds,
)
from codedgrad.sim.bounds import Bounds, bounds_of, clairvoyant_of
from codedgrad.sim.comparison import Result, compare, end_times, run_fast
from codedgrad.sim.driver import Payload, Simulator, Step, Watch
from codedgrad.sim.events import run_events
from codedgrad.sim.machine import Machine
from codedgrad.sim.ratios import Ratio, mean_error, ratio
from codedgrad.sim.recording import header_of, record
from codedgrad.sim.train import train

__all__ = [
    "Bounds",
    "Gradient",
    "Machine",
    "Network",
    "Outcome",
    "Payload",
    "Ratio",
    "Result",
    "Simulator",
    "Step",
    "Training",
    "Update",
    "Watch",
    "bounds_of",
    "clairvoyant_of",
    "compare",
    "counted_seconds",
    "end_times",
    "has_fast_path",
    "has_tree_path",
    "header_of",
    "mean_error",
    "outcome",
    "ratio",
    "record",
    "ring_seconds",
    "run_events",
    "run_fast",
    "train",
    "tree_outcome",
    "tree_seconds",
]
