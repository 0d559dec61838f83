"""Public conformance suites: check a code, a scheme or an engine as ours are checked.

`check_code`, `check_scheme` and `check_engine` raise `Violation`; `faults.attack` is
the seeded fault simulator, `Invariants` what it watches, `Everything` a scheme that
uses every command, `Comparing` any other with its messages compared, `Gathering` one
whose workers add up each other's messages, `EXAMPLES` a scheme of every kind.
"""

from codedgrad.testing.check_code import check_code
from codedgrad.testing.check_engine import check_engine
from codedgrad.testing.check_scheme import check_scheme
from codedgrad.testing.comparing import Comparing
from codedgrad.testing.everything import Everything
from codedgrad.testing.examples import EXAMPLES
from codedgrad.testing.faults import Failure, attack, draw, run, shrink
from codedgrad.testing.faulty_simulator import Schedule, SimulatedFault
from codedgrad.testing.gathering import Gathering
from codedgrad.testing.invariants import Invariants

__all__ = [
    "EXAMPLES",
    "Comparing",
    "Everything",
    "Failure",
    "Gathering",
    "Invariants",
    "Schedule",
    "SimulatedFault",
    "attack",
    "check_code",
    "check_engine",
    "check_scheme",
    "draw",
    "run",
    "shrink",
]
