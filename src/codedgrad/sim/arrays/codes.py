"""The fast path: static codes in arrays, without events.

For a scheme that follows a code, with workers that start each step afresh, a step is
a function of the arrival times alone. These functions give what the event-driven
simulator gives, sample by sample, for whole arrays of steps at once: times are on a
grid on which sums are exact, so it does not matter in which order they are added.

There is one exception: messages that arrive at the same time are put in the order of
their events, but where parts take exactly 0 seconds that order may be another. A step
that ends at such a time may then have heard others of those that tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes import Code
from codedgrad.codes.decoders import Bools, Floats, Prescribed, residuals
from codedgrad.core import Scheme
from codedgrad.core.plan import Rule
from codedgrad.delays import Times
from codedgrad.schemes import CodedScheme
from codedgrad.schemes.stop_rules import (
    Decodable,
    First,
    Threshold,
    Within,
    blocks,
    needed,
)
from codedgrad.sim.oracle import told

Ints: TypeAlias = NDArray[np.intp]

_TABLE = 14  # messages of a block up to which all patterns are tabulated
_NETWORK = 12  # values up to which columns are compared rather than rows sorted
_COMPARISONS = 36  # of columns, up to which that is faster


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


def has_fast_path(scheme: Scheme) -> bool:
    """Whether a scheme can be evaluated without events."""
    steps = scheme.traits.steps
    if steps is None or steps.tree is not None:
        return False
    return ends.dispatch(type(steps.rule)) is not ends.dispatch(object)


def as_code(scheme: Scheme, times: Times) -> tuple[CodedScheme, Times]:
    """Return the code a scheme follows, and the times of those who play its workers."""
    steps = told(scheme, times).traits.steps
    assert steps is not None  # or the scheme has no fast path
    if steps.seats is not None:
        times = times.seated(steps.seats(np.isfinite(times.fixed + times.unit)))
    return CodedScheme(scheme.name, steps.code, steps.rule), times


def step_seconds(scheme: CodedScheme, times: Times) -> Floats:
    """Return how long every step takes, (steps,)."""
    arrivals = _arrivals(scheme.code, times.fixed, times.part(scheme.parts))
    return _seconds(scheme, arrivals)


def _seconds(scheme: CodedScheme, arrivals: Floats) -> Floats:
    seconds = ends(scheme.rule, scheme.code, arrivals)
    sizes = np.diff(scheme.code.B.indptr)
    if not sizes.all():  # nothing has arrived at 0, and a step ends by an event
        first = arrivals[:, sizes > 0].min(axis=1, initial=np.inf)
        seconds = np.maximum(seconds, np.minimum(first, scheme.rule.budget))
    return np.asarray(seconds)


def outcome(scheme: CodedScheme, times: Times) -> Outcome:
    """Return how every step goes.

    Args:
        scheme: One that follows a code.
        times: One row a step, as many columns as workers.
    """
    code, part = scheme.code, times.part(scheme.parts)
    sizes = np.diff(code.B.indptr)
    arrivals = _arrivals(code, times.fixed, part)
    seconds = _seconds(scheme, arrivals)
    done = np.isfinite(seconds)
    heard = arrivals <= seconds[:, None]
    heard[~done] &= np.isfinite(arrivals[~done])
    at_the_end = np.count_nonzero(arrivals == seconds[:, None], axis=1)
    tied = np.flatnonzero(done & (at_the_end > 1))
    if tied.size:
        order = _order(code, times.fixed[tied], part[tied], arrivals[tied])
        heard[tied] = _heard_in_order(scheme, order, heard[tied])
    residual = np.full(len(seconds), float(code.parts))
    residual[done] = _residuals(code, heard[done], scheme.tolerance is not None)
    load = np.bincount(code.owner, weights=sizes, minlength=code.workers)
    there = np.isfinite(times.fixed + part) & (load > 0)
    with np.errstate(invalid="ignore", divide="ignore"):  # those who are not there
        left = seconds[:, None] - times.fixed
        finished = np.where(part > 0.0, np.floor(left / part), np.inf)
        last = times.fixed + load * part
    work = np.where(there & (left >= 0.0), np.minimum(finished, load), 0.0).sum(axis=1)
    busy = np.minimum(np.where(there, last, 0.0), seconds[:, None]).sum(axis=1)
    messages = np.count_nonzero(heard & (sizes > 0), axis=1)
    return Outcome(seconds, residual, messages, work, busy)


def _arrivals(code: Code, fixed: Floats, part: Floats) -> Floats:
    """Return when every message arrives, (steps, messages)."""
    position, owner = _position(code), np.array(code.owner)
    with np.errstate(invalid="ignore"):  # the dead, with nothing to do
        if np.array_equal(owner, np.arange(code.messages)):
            arrivals = position * part
            arrivals += fixed
        else:
            arrivals = fixed[:, owner] + position * part[:, owner]
    arrivals[:, np.diff(code.B.indptr) == 0] = 0.0  # it takes no time to send nothing
    return np.asarray(arrivals)


def _position(code: Code) -> Floats:
    """Return how many parts its worker computes up to the end of each message."""
    position = np.empty(code.messages)
    done = np.zeros(code.workers)
    sizes = np.diff(code.B.indptr)
    for message, (worker, size) in enumerate(zip(code.owner, sizes, strict=True)):
        done[worker] += size
        position[message] = done[worker]
    return position


def _order(code: Code, fixed: Floats, part: Floats, arrivals: Floats) -> Ints:
    """Return the messages in the order of their events, (steps, messages).

    Of parts that end together the one begun first comes first; that failing, the one
    of the worker with fewer parts, whose first was begun first; then as assigned.
    """
    owner = np.array(code.owner)
    begun = np.where(_position(code) > 1, arrivals - part[:, owner], 0.0)
    nonempty = np.diff(code.B.indptr) > 0
    seats = {w: m for m, w in reversed(list(enumerate(code.owner))) if nonempty[m]}
    seat = np.broadcast_to([seats.get(w, 0) for w in code.owner], arrivals.shape)
    return np.lexsort((seat, -fixed[:, owner], begun, arrivals), axis=1)


def _heard_in_order(scheme: CodedScheme, order: Ints, heard: Bools) -> Bools:
    """Leave out what comes after the message that was enough, though not later."""
    sizes, known = np.diff(scheme.code.B.indptr), dict[bytes, int]()
    for pattern, sequence in zip(heard, order, strict=True):
        in_time = sequence[: np.count_nonzero(pattern)]
        key = in_time.tobytes()
        if key not in known:
            tally = scheme.rule.start(scheme.code)
            enough = (tally.hear(m) and sizes[m] > 0 for m in in_time.tolist())
            places = (place for place, is_enough in enumerate(enough) if is_enough)
            known[key] = next(places, len(in_time) - 1) + 1
        pattern[in_time[known[key] :]] = False
    return heard


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
    if isinstance(inner.decoder, Prescribed):
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
    if code.tolerance is not None and code.messages == code.workers:
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
    keep, give = (np.minimum, np.maximum) if 2 * k <= size else (np.maximum, np.minimum)
    passes = k if 2 * k <= size else size - k + 1
    if size > _NETWORK or passes * size > _COMPARISONS:
        if passes == 1:
            return np.asarray(values.min(axis=-1) if k == 1 else values.max(axis=-1))
        return np.asarray(np.partition(values, k - 1, axis=-1)[..., k - 1])
    if passes == 1:
        return np.asarray(reduce(keep, (values[..., i] for i in range(size))))
    columns = [np.array(values[..., i]) for i in range(size)]  # to be written to
    spare = np.empty_like(columns[0])
    for place in range(passes):  # the extreme one of the rest goes to `place`
        last = place == passes - 1
        for other in range(size - 1, place, -1):
            near, far = columns[other - 1], columns[other]
            keep(near, far, out=spare)
            if not last:
                give(near, far, out=far)
            columns[other - 1], spare = spare, near
    return columns[passes - 1]
