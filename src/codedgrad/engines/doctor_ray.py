"""Does Ray work here: installed, a cluster that answers, a step on it."""

from __future__ import annotations

import json
import os
import re
import socket
import sys

from codedgrad.engines.asking import Answer
from codedgrad.engines.examining import Finding, Looking, ask_python, step
from codedgrad.engines.extras import EXTRAS

__all__ = ["is_address", "knock", "ray"]

_ADDRESS = re.compile(r"auto|local|(?P<host>[^\s:/]+|\[.+\]):(?P<port>\d+)")
_KNOCK = 5.0  # seconds until a host answers
_CLUSTER = """
import json, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
hosts = sum(node["Alive"] for node in ray.nodes())
print(json.dumps([hosts, ray.cluster_resources().get("CPU", 0)]))
"""


def ray(looking: Looking) -> Finding:
    """Look at Ray; a cluster is started only with `looking.tries`."""
    python = EXTRAS["ray"]
    if python.version is None:
        return Finding("ray", "missing", "not installed", python.install)
    address = looking.address or os.environ.get("RAY_ADDRESS") or "local"
    found = Finding("ray", "ok", f"Ray {python.version}")
    if address != "local":
        found = _cluster(found, address, looking)
    elif not looking.tries:
        reason = f"{found.reason} is installed; no cluster was looked for"
        return Finding("ray", "ok", reason, "codedgrad doctor --try")
    if not looking.tries or found.state != "ok":
        return found
    trial = [sys.executable, "-P", "-m", "codedgrad.engines.trial", "ray", address]
    return step(found, trial, looking.limit)


def _cluster(found: Finding, address: str, looking: Looking) -> Finding:
    advice = "ray start --head" if address == "auto" else f"ray status -a {address}"
    problem = knock(address)
    answer = Answer(1, "", problem)
    if not problem:
        answer = ask_python(_CLUSTER, looking.limit, address)
    if answer.code == 0:
        hosts, cores = json.loads(answer.out.splitlines()[-1])
        reason = f"{found.reason}; {address}: hosts {hosts}, CPUs {cores:g}"
        return Finding("ray", "ok", reason)
    why = answer.last if answer.code else f"no answer within {looking.limit:g} s"
    reason = f"{found.reason}; no cluster at {address}: {why}"
    return Finding("ray", "broken", reason, advice, detail=answer.out + answer.err)


def knock(address: str) -> str:
    """Return why nobody can be at an address; empty: somebody may be.

    Ray itself would wait for minutes.
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        return "an address is HOST:PORT or auto"
    if parts["host"] is None:
        return ""
    host = parts["host"].strip("[]")
    try:
        socket.create_connection((host, int(parts["port"])), _KNOCK).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def is_address(text: str) -> bool:
    """Whether a text can be the address of a Ray cluster, for a host that is in it.

    Example:
        >>> is_address("10.0.0.1:6379"), is_address("auto"), is_address("ray://head:1")
        (True, True, False)
    """
    return _ADDRESS.fullmatch(text) is not None
