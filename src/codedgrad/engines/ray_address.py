"""What can be the address of a Ray cluster, whether it is there, and lets us in."""

from __future__ import annotations

import re
import socket

from codedgrad.engines.asking import Answer

__all__ = ["JOIN", "is_address", "is_refused", "knock"]

JOIN = """
import os, sys
os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")  # not 20, a second each
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
"""
"""Joins a cluster; to be run by another process, which Ray ends if it cannot."""

_ADDRESS = re.compile(r"auto|local|(?P<host>[^\s:/]+|\[.+\]):(?P<port>\d{1,5})")
_KNOCK = 5.0  # seconds until a host answers


def is_address(text: str) -> bool:
    """Whether a text can be the address of a Ray cluster, for a host that is in it.

    Example:
        >>> is_address("10.0.0.1:6379"), is_address("auto"), is_address("ray://head:1")
        (True, True, False)
    """
    return _ADDRESS.fullmatch(text) is not None


def knock(address: str) -> str:
    """Return why nobody can be at an address; empty: somebody may be.

    Ray itself would wait for minutes.
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        return "an address is HOST:PORT, auto or local"
    if parts["host"] is None:
        return ""
    where = parts["host"].strip("[]"), int(parts["port"])
    try:
        socket.create_connection(where, _KNOCK).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def is_refused(answer: Answer) -> bool:
    """Whether a process that has run `JOIN` had another token than the cluster."""
    return answer.code != 0 and "InvalidAuthToken" in answer.err
