"""Driver 2: the same coordinator on real processes and a real clock.

`train` is gradient descent on workers, `Driver` one step at a time; `Local` is the
engine of this machine, `Here` one without processes, `Replayed` a recorded run once
more, `Engine` what another one must do, `FaultPlan` trouble on purpose. `Granting` lets
the workers of any of them send in an order that is fair.
"""

from codedgrad.engines.drive import Driver, Sum
from codedgrad.engines.faults import Fault, FaultPlan
from codedgrad.engines.granting import Granting, granted
from codedgrad.engines.here import Here
from codedgrad.engines.local import Local
from codedgrad.engines.protocol import Engine
from codedgrad.engines.replayed import Replayed
from codedgrad.engines.train import train

__all__ = [
    "Driver",
    "Engine",
    "Fault",
    "FaultPlan",
    "Granting",
    "Here",
    "Local",
    "Replayed",
    "Sum",
    "granted",
    "train",
]
