"""The fast path: static codes in arrays, without events.

For a scheme that follows a code, with workers that start each step afresh, a step is
a function of the arrival times alone. These functions give what the event-driven
simulator gives, sample by sample, for whole arrays of steps at once: times are on a
grid on which sums are exact, so it does not matter in which order they are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes import Code
from codedgrad.codes.decoders import Bools, Fixed, Floats, OneStep, residuals
from codedgrad.core.rules import (
    Decodable,
    First,
    Rule,
    Threshold,
    Within,
    blocks,
    needed,
)
from codedgrad.delays import Times
from codedgrad.schemes import Coded

__all__ = ["Outcome", "ends", "has_fast_path", "outcome"]

Ints: TypeAlias = NDArray[np.intp]

_TABLE = 14  # messages of a block up to which all patterns are tabulated
_NETWORK = 12  # values up to which columns are compared rather than rows sorted


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """How many steps went; arrays of shape (steps,).

    Attributes:
        seconds: From start to end; inf where the step cannot end.
        residual: Of the sum; the number of parts where there is none.
        messages: Messages heard.
        work: Parts computed to their end within the step.
        busy: Seconds workers spent on parts, together.
    """

    seconds: Floats
    residual: Floats
    messages: Ints
    work: Floats
    busy: Floats


def has_fast_path(scheme: object) -> bool:
    """Whether a scheme can be evaluated without events."""
    if not isinstance(scheme, Coded):
        return False
    return ends.dispatch(type(scheme.rule)) is not ends.dispatch(object)


def outcome(scheme: Coded, times: Times) -> Outcome:
    """Return how every step goes.

    Args:
        scheme: One that follows a code.
        times: One row a step, as many columns as workers.
    """
    code, part = scheme.code, times.part(scheme.parts)
    arrivals = _arrivals(code, times.fixed, part)
    seconds = ends(scheme.rule, code, arrivals)
    heard = arrivals <= seconds[:, None]
    done = np.isfinite(seconds)
    residual = np.full(len(seconds), float(code.parts))
    residual[done] = _residuals(code, heard[done], scheme.tolerance is not None)
    nonempty = np.diff(code.B.indptr) > 0
    load = np.array([len(parts) for parts in code.placement], dtype=np.float64)
    left = np.clip(seconds[:, None] - times.fixed, 0.0, None)
    with np.errstate(invalid="ignore", divide="ignore"):
        finished = np.floor(left / part)  # inf / inf: dead, in a step without end
    work = np.fmin(np.nan_to_num(finished, nan=0.0, posinf=np.inf), load).sum(axis=1)
    last = np.where(np.isfinite(part), times.fixed + load * part, 0.0)
    busy = np.minimum(last, seconds[:, None]).sum(axis=1)
    messages = np.count_nonzero(heard & nonempty, axis=1)
    return Outcome(seconds, residual, messages, work, busy)


def _arrivals(code: Code, fixed: Floats, part: Floats) -> Floats:
    """Return when every message arrives, (steps, messages); rows in order."""
    sizes = np.diff(code.B.indptr)
    owner = np.array(code.owner)
    position = np.empty(code.messages)
    done = np.zeros(code.workers)
    for message, (worker, size) in enumerate(zip(owner, sizes, strict=True)):
        done[worker] += size
        position[message] = done[worker]
    if np.array_equal(owner, np.arange(code.messages)):
        arrivals = position * part
        arrivals += fixed
    else:
        arrivals = fixed[:, owner] + position * part[:, owner]
    arrivals[:, sizes == 0] = 0.0  # it takes no time to send nothing
    return np.asarray(arrivals)


def _residuals(code: Code, heard: Bools, is_exact: bool) -> Floats:
    if is_exact:
        return np.zeros(len(heard))
    patterns, which = np.unique(heard, axis=0, return_inverse=True)
    each = residuals(code.B, code.decoder.weights(patterns))
    return np.asarray(each[which.ravel()])


@singledispatch
def ends(rule: Rule, code: Code, arrivals: Floats) -> Floats:
    """Return when each step ends, (steps,), from arrival times, (steps, messages).

    One function for every rule that has a fast path.
    """
    raise NotImplementedError(f"{rule} has no fast path")


@ends.register
def _threshold(rule: Threshold, code: Code, arrivals: Floats) -> Floats:
    inner, count = blocks(code)
    apart = arrivals.reshape(len(arrivals), count, inner.messages)
    return np.asarray(_kth(apart, needed(inner)).max(axis=1))


@ends.register
def _first(rule: First, code: Code, arrivals: Floats) -> Floats:
    return _kth(arrivals, rule.count)


@ends.register
def _within(rule: Within, code: Code, arrivals: Floats) -> Floats:
    before = ends(rule.rule, code, arrivals)
    all_in = arrivals.max(axis=1)
    return np.asarray(np.minimum(np.minimum(before, all_in), rule.seconds))


@ends.register
def _decodable(rule: Decodable, code: Code, arrivals: Floats) -> Floats:
    inner, count = blocks(code)
    by_count = inner.tolerance is not None and inner.messages == inner.workers
    if by_count and inner.fewest == needed(inner):
        return _threshold(Threshold(), code, arrivals)
    apart = arrivals.reshape(len(arrivals) * count, inner.messages)
    order = np.argsort(apart, axis=1, kind="stable")
    if isinstance(inner.decoder, Fixed | OneStep):
        last = _scan(inner, order)
    elif inner.messages <= _TABLE:
        last = _look_up(inner, order)
    else:
        last = _bisect(inner, order)
    never = last >= inner.messages
    where = np.take_along_axis(order, np.minimum(last, inner.messages - 1)[:, None], 1)
    each = np.take_along_axis(apart, where, 1)[:, 0]
    each[never] = np.inf
    return np.asarray(each.reshape(len(arrivals), count).max(axis=1))


def _look_up(code: Code, order: Ints) -> Ints:
    """Return the place in `order` at which a block becomes decodable, by a table."""
    size = code.messages
    numbers = np.arange(2**size)
    patterns = (numbers[:, None] >> np.arange(size)) & 1 == 1
    table = np.zeros(2**size, dtype=np.bool_)
    some = np.count_nonzero(patterns, axis=1) >= code.fewest
    table[some] = code.decoder.decodable(patterns[some])
    heard = np.cumsum(1 << order, axis=1)  # different bits: or is plus
    enough = table[heard]
    return np.where(enough.any(axis=1), np.argmax(enough, axis=1), size)


def _bisect(code: Code, order: Ints) -> Ints:
    """The same for large blocks: more messages never decode less."""
    size = code.messages
    rank = np.argsort(order, axis=1)
    low = np.full(len(order), code.fewest - 2, dtype=np.intp)  # known not to decode
    high = np.full(len(order), size, dtype=np.intp)
    if code.tolerance is not None:
        high[:] = needed(code) - 1
    while True:
        open_ = np.flatnonzero(high - low > 1)
        if open_.size == 0:
            return high
        middle = (low[open_] + high[open_]) // 2
        enough = code.decoder.decodable(rank[open_] <= middle[:, None])
        high[open_[enough]] = middle[enough]
        low[open_[~enough]] = middle[~enough]


def _scan(code: Code, order: Ints) -> Ints:
    """The same for weights by rule, which may be exact now and not later."""
    size = code.messages
    rank = np.argsort(order, axis=1)
    last = np.full(len(order), size, dtype=np.intp)
    for place in range(size - 1, -1, -1):
        enough = code.decoder.decodable(rank <= place)
        last[enough] = place
    return last


def _kth(values: Floats, k: int) -> Floats:
    """Return the k-th smallest, k from 1, along the last axis."""
    size = values.shape[-1]
    if k == 1:
        return np.asarray(values.min(axis=-1))
    if k == size:
        return np.asarray(values.max(axis=-1))
    if size > _NETWORK:
        return np.asarray(np.partition(values, k - 1, axis=-1)[..., k - 1])
    columns = [np.ascontiguousarray(values[..., i]) for i in range(size)]
    keep, give = (np.minimum, np.maximum) if 2 * k <= size else (np.maximum, np.minimum)
    passes = k if 2 * k <= size else size - k + 1
    for place in range(passes):  # the extreme one of the rest goes to `place`
        last = place == passes - 1
        for other in range(size - 1, place, -1):
            a, b = columns[other - 1], columns[other]
            columns[other - 1] = keep(a, b)
            if not last:
                columns[other] = give(a, b)
    return columns[passes - 1]
