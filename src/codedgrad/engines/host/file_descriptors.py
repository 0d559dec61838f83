"""What to say when a process may not have as many files open as its workers need."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from codedgrad.errors import EngineFailed

_ROUND = 256  # the advice is a multiple of this
_SPARE = 32  # pipes, selectors and libraries besides the workers' sockets


@contextmanager
def enough_descriptors(workers: int) -> Iterator[None]:
    """Say in one sentence that there are too few file descriptors.

    Args:
        workers: How many this process is to have, a descriptor each.

    Raises:
        EngineFailed: Instead of the `OSError` of whichever call was refused.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENFILE:
            problem = "this machine has as many files open as its kernel allows"
            raise EngineFailed(problem, "a larger fs.file-max") from None
        if error.errno != errno.EMFILE:
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # all of them are in use, some of them for workers: so this is always enough
        enough = -(-(limit + workers + _SPARE) // _ROUND) * _ROUND
        problem = (
            f"this process may have {limit} files open, too few for {workers} workers"
        )
        raise EngineFailed(problem, f"`ulimit -n {enough}` before it starts") from None
