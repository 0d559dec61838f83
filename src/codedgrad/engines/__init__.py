"""Driver 2: the same coordinator on real processes and a real clock.

`train` is gradient descent on workers, `Driver` one step at a time; `Local` is the
engine of this machine, `Ray`, `Mpi` and `Torchrun` are those of several machines,
`Here` one without processes, `Replayed` a recorded run once more, `Engine` what another
one must do, `FaultPlan` trouble on purpose. `Granting` lets the workers of any of them
send in an order that is fair.

All is imported when it is asked for: a worker needs little of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codedgrad.engines.driver import Driver, Sum
    from codedgrad.engines.engine import Engine
    from codedgrad.engines.fair_link import Granting, granted
    from codedgrad.engines.faults import Fault, FaultPlan
    from codedgrad.engines.here import Here
    from codedgrad.engines.local import Local
    from codedgrad.engines.mpi.engine import Mpi
    from codedgrad.engines.ray.engine import Ray
    from codedgrad.engines.registry import engine_named
    from codedgrad.engines.replayed import Replayed
    from codedgrad.engines.torchrun.engine import Torchrun
    from codedgrad.engines.train import train
    from codedgrad.engines.worker_status import WorkerStatus, WorkerTable

__all__ = [
    "Driver",
    "Engine",
    "Fault",
    "FaultPlan",
    "Granting",
    "Here",
    "Local",
    "Mpi",
    "Ray",
    "Replayed",
    "Sum",
    "Torchrun",
    "WorkerStatus",
    "WorkerTable",
    "engine_named",
    "granted",
    "train",
]

_WHERE = {
    "Driver": "driver",
    "Engine": "engine",
    "Fault": "faults",
    "FaultPlan": "faults",
    "Granting": "fair_link",
    "Here": "here",
    "Local": "local",
    "Mpi": "mpi.engine",
    "Ray": "ray.engine",
    "Replayed": "replayed",
    "Sum": "driver",
    "Torchrun": "torchrun.engine",
    "WorkerStatus": "worker_status",
    "WorkerTable": "worker_status",
    "engine_named": "registry",
    "granted": "fair_link",
    "train": "train",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name not in _WHERE:
        raise AttributeError(f"module 'codedgrad.engines' has no attribute {name!r}")
    found = getattr(import_module(f"codedgrad.engines.{_WHERE[name]}"), name)
    globals()[name] = found
    return found
