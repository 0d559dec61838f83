"""What can be the address of a Ray cluster, whether it is there, and lets us in."""

from __future__ import annotations

import os
import re
import socket

from codedgrad.engines.ask_process import Answer

JOIN = """
import os, sys
os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")  # not 20, a second each
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
"""
"""Joins a cluster; to be run by another process, which Ray ends if it cannot."""

_ADDRESS = re.compile(r"auto|local|(?P<host>[^\s:/]+|\[.+\]):(?P<port>\d{1,5})")
_REFUSAL = re.compile(
    "unauthenticated|authentication ?error|auth_?token", re.IGNORECASE
)
_TOKEN = (
    "RAY_AUTH_MODE=token, and the token of its head in ~/.ray/auth_token, "
    "or RAY_AUTH_TOKEN_PATH set to it"
)
_KNOCK = 5.0  # seconds until a host answers


def is_address(text: str) -> bool:
    """Whether a text can be the address of a Ray cluster, for a host that is in it.

    Example:
        >>> is_address("10.0.0.1:6379"), is_address("auto"), is_address("ray://head:1")
        (True, True, False)
    """
    return _ADDRESS.fullmatch(text) is not None


def knock(address: str) -> str:
    """Return why an address cannot be reached; empty: Ray may try it.

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
    """Whether a process that has run `JOIN` had no token, or not the cluster's."""
    return answer.code != 0 and _REFUSAL.search(answer.err) is not None


def to_try(advice: str, answer: Answer) -> str:
    """Return what to try where `JOIN` has failed: a token, if it is or may be that.

    Args:
        advice: What else there is to try.
        answer: Of the process that has run it.
    """
    if is_refused(answer):
        return _TOKEN
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return f"{advice}; if its token is another: {_TOKEN}"
    return advice
