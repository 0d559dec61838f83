"""Ask another process, and wait for it no longer than said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

_GRACE = 5.0  # seconds to end by itself once asked to
_MOST = 20_000  # characters kept of what it says, the last ones
_ERROR = re.compile(r"[\w.]*(?:Error|Exception|Failed)\b: ")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a process said.

    Attributes:
        code: Its exit code; None if it took too long and was ended.
        out: What it printed.
        err: What it printed on standard error.
    """

    code: int | None
    out: str
    err: str

    @property
    def last(self) -> str:
        """Why it failed: the last error of a Python in it, or else its last line."""
        lines = (self.err if self.err.strip() else self.out).splitlines()
        said = [line.strip() for line in lines if re.search(r"\w", line)]
        errors = [line for line in said if _ERROR.match(line)]
        return (errors or said or [""])[-1]


def ask(
    command: Sequence[str],
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Answer:
    r"""Run a command to its end, or to the end of our patience.

    It hears no Ctrl-C and leaves nothing behind: what it has started is in its group,
    and is ended with it. Its output goes to files, so that a process of somebody else's
    which holds on to it keeps nobody waiting.

    Args:
        command: The program and its words.
        seconds: Until it is ended.
        environment: Variables to set besides.

    Raises:
        OSError: If there is no such program.

    Example:
        >>> import sys
        >>> ask([sys.executable, "-c", "print(1 + 1)"], seconds=60)
        Answer(code=0, out='2\n', err='')
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass  # said by a code of None
        finally:
            _end(child)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace")[-_MOST:])
    return Answer(code, *texts)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask it to end, which a launcher passes on; then end its whole group."""
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE)
    with suppress(ProcessLookupError, PermissionError):  # nobody is left in it
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
