"""A process that takes folders when told to, for tests that stop and kill it.

It reads a line a command from standard input, as JSON, and answers with a line each.
"""

import errno
import fcntl
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from codedgrad.errors import CodedgradError
from codedgrad.trace import Lock

lock: Any = None


def take(folder: str, go: str = "", **options: Any) -> object:
    global lock
    while go and not Path(go).exists():
        pass
    lock = Lock(Path(folder), **options)
    return lock.life


def check() -> object:
    return lock.check()


def update(**figures: Any) -> object:
    return lock.update(**figures)


def close(state: str = "ended") -> object:
    return lock.close(state)


def have_no_flock() -> object:
    def flock(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = flock
    return None


def fill_the_disk() -> object:
    """Let every write to a file fail from now on, as on a full disk."""
    return resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def be_in_another_century() -> object:
    time.time = lambda: 4e9
    time.time_ns = lambda: 4 * 10**18
    return None


def leave_descriptor_to_a_child() -> object:
    child = subprocess.Popen(
        ["sleep", "1000"], pass_fds=[lock._flocked], stdout=subprocess.DEVNULL
    )
    return child.pid


def fork() -> object:
    """Return the threads of a forked child, and what `check` says there."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            lock.check()
            said = "holds it"
        except CodedgradError as error:
            said = str(error)
        lock.close()
        threads = len(os.listdir("/proc/self/task"))
        os.write(writer, json.dumps([threads, said]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        answer = json.load(file)
    os.waitpid(child, 0)
    return answer


if __name__ == "__main__":
    for line in sys.stdin:
        name, options = json.loads(line)
        try:
            answer = {"answer": globals()[name](**options)}
        except CodedgradError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(answer), flush=True)
