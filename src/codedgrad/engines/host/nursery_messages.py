"""What the root and the nursery say to each other, as msgpack."""

from __future__ import annotations

from msgspec import Struct

from codedgrad.engines.faults import Fault
from codedgrad.engines.host.memory_layout import MemoryShape


class Setup(Struct, frozen=True, tag=True):
    """What all hosts of a run are told, whichever workers they have.

    Attributes:
        script: The program that the root runs, for the titles of processes.
        preload: Modules to import before anything is forked.
        job: A pickled function without arguments that makes the job.
        fixed: Seconds to sleep before the first part of a step, a list per worker.
        part: Seconds to sleep for every part, a list per worker.
        interrupts: Whether that sleep ends when its part is abandoned.
        stretch: How many times as long every part is to take, a list per worker; empty:
            as long as it takes.
        argv: The script's `sys.argv`, which the job may parse, as bytes of the system:
            an argument need not be text.
    """

    script: str
    preload: list[str]
    job: bytes
    fixed: list[list[float]]
    part: list[list[float]]
    interrupts: bool = False
    stretch: list[list[float]] = []
    argv: list[bytes] = []


class Prepare(Struct, frozen=True, tag=True):
    """Get ready: what to import, what to compute, and the shared memory (a descriptor).

    Attributes:
        setup: What all hosts are told.
        shape: Of the shared memory.
        workers: The numbers of the host's workers; their rows are in this order.
        threads: That each worker may compute with.
        divides_devices: Whether each worker is to see only its share of the GPUs.
    """

    setup: Setup
    shape: MemoryShape
    workers: list[int]
    threads: int = 1
    divides_devices: bool = False


class Spawn(Struct, frozen=True, tag=True):
    """Fork a worker; its end of a socket comes along."""

    worker: int
    life: int
    faults: list[Fault]


class Signal(Struct, frozen=True, tag=True):
    """Send a signal to a worker, if that life of it has not ended.

    Attributes:
        worker: The worker.
        life: Which life of it.
        number: Of the signal.
        pid: Its process id, where it has said so; 0: only the nursery knows it.
    """

    worker: int
    life: int
    number: int
    pid: int = 0


class Born(Struct, frozen=True, tag=True):
    """The nursery is ready, with so many threads; there should be one."""

    threads: int


class Failed(Struct, frozen=True, tag=True):
    """The nursery cannot unpack the job."""

    traceback: str


class Died(Struct, frozen=True, tag=True):
    """A worker has ended: its exit code, or minus the signal that killed it."""

    worker: int
    life: int
    code: int
