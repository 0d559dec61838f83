"""The record every driver writes: events and commands, one line each.

`Recorder` writes it, `read` reads it back, `replay` decides it again, `reports` says
what happened in every step (a `Reporter` while it runs), and `export` makes the arrival
matrix of it.
"""

from codedgrad.trace.arrivals import Arrival, arrivals, export, matrix
from codedgrad.trace.format import Entry, Header
from codedgrad.trace.metrics import (
    Reporter,
    StepReport,
    Waiting,
    ended_steps,
    reports,
)
from codedgrad.trace.read import Trace, read
from codedgrad.trace.replay import Difference, replay
from codedgrad.trace.write import Recorder

__all__ = [
    "Arrival",
    "Difference",
    "Entry",
    "Header",
    "Recorder",
    "Reporter",
    "StepReport",
    "Trace",
    "Waiting",
    "arrivals",
    "ended_steps",
    "export",
    "matrix",
    "read",
    "replay",
    "reports",
]
