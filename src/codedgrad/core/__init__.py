"""The decision core: no clock, no network, no gradient.

`Coordinator.handle(event)` returns commands. A `Session` is the worker's side. Schemes
answer with plans, plans with decisions; drivers carry out. See `coordinator` for the
rules of a step and `session` for the races.
"""

from codedgrad.core.code_plan import CodePlan
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
from codedgrad.core.cover import Cover, best_cover, decode_rows
from codedgrad.core.credits import Credits
from codedgrad.core.events import (
    Event,
    MessageArrived,
    MessageFailed,
    MessagesCompared,
    Progressed,
    StepCancelled,
    StepStarted,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from codedgrad.core.history import History, Observation, Record
from codedgrad.core.ledger import Ledger
from codedgrad.core.link import Link
from codedgrad.core.opinions import Opinions, is_question
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
    Wait,
)
from codedgrad.core.rules import Decodable, First, Rule, Tally, Threshold, Within
from codedgrad.core.session import Progress, Report, Send, Session, Task
from codedgrad.core.state import MessageState, SegmentState, State

__all__ = [
    "ROOT",
    "Ask",
    "Assign",
    "Capabilities",
    "CodePlan",
    "Combine",
    "Command",
    "Coordinator",
    "Cover",
    "Credits",
    "Cut",
    "Deadline",
    "Decision",
    "Decodable",
    "Drop",
    "Event",
    "Fail",
    "Finish",
    "First",
    "GiveUp",
    "History",
    "Ledger",
    "Link",
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
    "Rule",
    "Scheme",
    "Segment",
    "SegmentState",
    "Send",
    "Session",
    "State",
    "StepCancelled",
    "StepStarted",
    "Tally",
    "Task",
    "Threshold",
    "TimerFired",
    "Upload",
    "Wait",
    "WakeAt",
    "Within",
    "WorkerJoined",
    "WorkerLost",
    "best_cover",
    "decode_rows",
    "is_question",
]
