"""The decision core: no clock, no network, no gradient.

`Coordinator.handle(event)` returns commands. A `Session` is the worker's side. Schemes
answer with plans, plans with decisions; drivers carry out. See `coordinator` for the
rules of a step and `session` for the races.
"""

from codedgrad.core.commands import (
    ROOT,
    Assign,
    Combine,
    Command,
    Cut,
    Drop,
    GiveUp,
    Order,
    Segment,
    Upload,
    WakeAt,
)
from codedgrad.core.coordinator import Coordinator
from codedgrad.core.events import (
    Event,
    MessageArrived,
    MessageFailed,
    MessagesCompared,
    Progressed,
    StepCancelled,
    StepStarted,
    TimerFired,
    WorkerFreed,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.history import History, Observation, Record
from codedgrad.core.ledger import Ledger
from codedgrad.core.orders import Orders
from codedgrad.core.patience import Deadline, Patience
from codedgrad.core.plan import (
    Ask,
    Capabilities,
    Decision,
    Fail,
    Finish,
    Plan,
    Scheme,
    Traits,
    Wait,
)
from codedgrad.core.second_opinion import Opinions, is_question
from codedgrad.core.session import Progress, Report, Send, Session, Task
from codedgrad.core.state import MessageState, SegmentState, State

__all__ = [
    "ROOT",
    "Ask",
    "Assign",
    "Capabilities",
    "Combine",
    "Command",
    "Coordinator",
    "Cut",
    "Deadline",
    "Decision",
    "Drop",
    "Event",
    "Fail",
    "Finish",
    "GiveUp",
    "History",
    "Ledger",
    "MessageArrived",
    "MessageFailed",
    "MessageState",
    "MessagesCompared",
    "Observation",
    "Opinions",
    "Order",
    "Orders",
    "Patience",
    "Plan",
    "Progress",
    "Progressed",
    "Record",
    "Report",
    "Scheme",
    "Segment",
    "SegmentState",
    "Send",
    "Session",
    "State",
    "StepCancelled",
    "StepStarted",
    "Task",
    "TimerFired",
    "Traits",
    "Upload",
    "Wait",
    "WakeAt",
    "WorkerFreed",
    "WorkersJoined",
    "WorkersLost",
    "is_question",
]
