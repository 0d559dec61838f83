"""SIGUSR1, a scheduler's warning to all processes of a job, ends no nursery."""

import os
import select
import signal

from codedgrad.engines.host.memory_layout import MemoryShape
from codedgrad.engines.host.nursery_client import Children
from codedgrad.engines.host.nursery_messages import Failed, Prepare, Setup
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.jobs import VectorLayout

HANG = 60.0  # seconds; only a hang takes so long


def test_a_nursery_that_is_still_importing_outlives_a_warning() -> None:
    shape = MemoryShape.of(VectorLayout(parameters=1, gradient=1), 1, open_segments=1)
    children = Children()
    try:
        os.kill(children.pid, signal.SIGUSR1)
        setup = Setup("a test", [], b"no job", [], [])
        memory = Shared(shape.size)
        children.prepare(Prepare(setup, shape, [0]), memory.fd)
        memory.close()
        assert select.select([children.channel.link], [], [], HANG)[0]
        [answer] = children.notices()  # nothing at all, had it ended
        assert isinstance(answer, Failed)
    finally:
        children.close()


def test_the_root_blocks_no_signal_for_longer_than_a_nursery_takes_to_start() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    Children().close()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
