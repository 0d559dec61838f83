"""A process that is to end with its parent does so, even if it is stopped."""

import os
import select
import signal
import subprocess
import sys

import pytest

HANG = 60.0  # seconds

CHILD = """
import os, signal
{first}
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""

PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
os.waitpid(child.pid, os.WUNTRACED)
print("stopped", flush=True)
time.sleep(1000)
"""

DIES = "from codedgrad.engines.host.parent_death import die_with_parent as d; d()"


@pytest.mark.parametrize(("first", "ends"), [(DIES, True), ("", False)])
def test_a_stopped_process_ends_with_its_parent_if_it_is_to(
    first: str, ends: bool
) -> None:
    child = CHILD.format(first=first)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, child], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == "stopped\n"
    parent.kill()
    parent.wait(HANG)
    # The child holds the other end of this pipe: it is readable once the child is gone.
    # One that stays is looked for no longer than it takes to see that it is stopped.
    readable, _, _ = select.select([parent.stdout], [], [], HANG if ends else 0.0)
    try:
        assert bool(readable) == ends
    finally:
        if not readable:
            os.kill(pid, signal.SIGKILL)
        parent.stdout.close()
