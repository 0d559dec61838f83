"""The record every driver writes: events and commands, one line each.

`Recorder` writes it, `read` reads it back, `replay` decides it again, `reports` says
what happened in every step (a `Reporter` while it runs), and `export` makes the arrival
matrix of it. A `Run` is a folder with a trace and the figures of its steps; a `Lock`
keeps a second root out of it.
"""

from codedgrad.trace.arrivals import Arrival, arrivals, export, matrix
from codedgrad.trace.format import Entry, Header
from codedgrad.trace.lock import Lock
from codedgrad.trace.metrics import (
    Reporter,
    StepReport,
    StepReports,
    ended_steps,
    reports,
    settled_steps,
    waiting_of,
)
from codedgrad.trace.read import Trace, read
from codedgrad.trace.recent import relearn
from codedgrad.trace.replay import Difference, replay
from codedgrad.trace.runs import (
    Manifest,
    Run,
    StepLine,
    StepLog,
    read_run,
    write_manifest,
)
from codedgrad.trace.segments import RunRecorder
from codedgrad.trace.status import Status, read_status
from codedgrad.trace.write import Recorder

__all__ = [
    "Arrival",
    "Difference",
    "Entry",
    "Header",
    "Lock",
    "Manifest",
    "Recorder",
    "Reporter",
    "Run",
    "RunRecorder",
    "Status",
    "StepLine",
    "StepLog",
    "StepReport",
    "StepReports",
    "Trace",
    "arrivals",
    "ended_steps",
    "export",
    "matrix",
    "read",
    "read_run",
    "read_status",
    "relearn",
    "replay",
    "reports",
    "settled_steps",
    "waiting_of",
    "write_manifest",
]
