"""Telling oracles the truth, which only a simulation has."""

from __future__ import annotations

from codedgrad.core import Scheme
from codedgrad.delays import Times
from codedgrad.errors import InvalidScenario
from codedgrad.schemes import Dynamic

__all__ = ["told"]


def told(scheme: Scheme, times: Times) -> Scheme:
    """Return the scheme for a run with these times; an oracle then knows their truth.

    Raises:
        InvalidScenario: If it is an oracle, and nobody knows the truth: times that
            were recorded do not say which worker was in which state.
    """
    if not isinstance(scheme, Dynamic) or not scheme.is_oracle:
        return scheme
    if times.truth is None:
        problem = "asks for the state of every worker, which these delays do not know"
        raise InvalidScenario(scheme.name, problem, "state=hidden, or other delays")
    return scheme.told(times.truth.slow, times.truth.typical)
