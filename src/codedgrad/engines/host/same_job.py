"""Whether all workers have made the same job: the same data, model and libraries.

Each worker says what it has made when it joins (`Ready`). It is compared with what the
root has made and, where the root cannot say, with what the first worker has made. The
gradients of workers whose data differ are not parts of one sum, and nothing would show
it.
"""

from __future__ import annotations

import logging
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from codedgrad.errors import JobFailed
from codedgrad.jobs import Fingerprint, Fingerprinted

_log = logging.getLogger("codedgrad")


def fingerprint_of(job: object) -> Fingerprint:
    """Return the fingerprint of a job, if it has one, and versions that all need."""
    found = job.fingerprint() if isinstance(job, Fingerprinted) else Fingerprint()
    versions = {
        "version of Python": platform.python_version(),
        "version of numpy": np.__version__,
    }
    return replace(found, noted={**versions, **found.noted})


def host_name() -> str:
    """Return the name of this host."""
    return socket.gethostname()


@dataclass(slots=True)
class SameJob:
    """Compares what workers have made; the first to say something sets the standard."""

    _known: dict[str, tuple[str, str]] = field(default_factory=dict)  # value, whose
    _warned: set[tuple[str, str]] = field(default_factory=set)  # name, value

    def root(self, job: object) -> None:
        """Take what the root has made as the standard."""
        for name, value in _all(fingerprint_of(job)).items():
            self._known[name] = value, "the root's"

    def check(self, worker: int, host: str, given: Fingerprint) -> None:
        """Compare what a worker has made, whenever it joins.

        Args:
            worker: The worker.
            host: Where it runs.
            given: What it has made.

        Raises:
            JobFailed: If something differs that must not.
        """
        where = f"worker {worker}"
        if host not in ("", host_name()):
            where += f" on {host}"
        for name, value in _all(given).items():
            known, whose = self._known.setdefault(name, (value, f"worker {worker}'s"))
            if value == known:
                continue
            text = f"its {name} is {value}, {whose} is {known}"
            if name in given.required:
                advice = f"; {given.advice}" if given.advice else ""
                raise JobFailed(where, text + advice)
            if (name, value) not in self._warned:
                self._warned.add((name, value))
                _log.warning("%s: %s", where, text)


def _all(given: Fingerprint) -> Mapping[str, str]:
    return {**given.required, **given.noted}
