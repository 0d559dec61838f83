"""Telling oracles the truth, which only a simulation has."""

from __future__ import annotations

from codedgrad.core import Scheme
from codedgrad.delays import Times
from codedgrad.errors import InvalidScenario


def told(scheme: Scheme, times: Times) -> Scheme:
    """Return the scheme for a run with these times; an oracle then knows their truth.

    Raises:
        InvalidScenario: If it is an oracle, and nobody knows the truth: times that
            were recorded do not say which worker was in which state.
    """
    tell = scheme.traits.tell
    if tell is None:
        return scheme
    if times.truth is None:
        problem = "asks for the state of every worker, which these delays do not know"
        raise InvalidScenario(scheme.name, problem, "state=hidden, or other delays")
    return tell(times.truth.slow, times.truth.typical)
