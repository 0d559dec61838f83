r"""Closed forms to judge trees by: how long a step takes, and other ways of adding up.

Trees and stars are those of `tree_loads`; a ring is the all-reduce of that name. The
times are those of a model:

- `share` $A$, in seconds: one worker's part of the data, $1/N$ of it, without delay;
- `tail` $a \mu$: computing $k$ shares takes $k A (1 + X / (a \mu))$ with $X$
  exponential of mean 1, so that a large number is a short tail;
- `port` $t_c$, in seconds: how long a receiver is busy with one message, one at a time;
- `latency` $t_l$, in seconds: what a message takes besides, many at a time.

A parent takes messages in the order in which they are ready, and only as many as it
needs. All this is derived, not the paper's; latency is an addition to its model.
"""

from __future__ import annotations

import math

import numpy as np

from codedgrad.codes.arguments import whole
from codedgrad.codes.bounds.tree_loads import (
    chance_of_failure,
    tree_load,
    tree_numbers,
)
from codedgrad.codes.tree.shape import Tree
from codedgrad.errors import InvalidCode

_NEGLIGIBLE = 40.0  # exp(-40) is less than rounding


def tree_compute(
    children: int, layers: int, tolerance: int, tail: float = 1.0
) -> float:
    r"""Return the mean time of a tree whose messages take none, in units of $r N A$.

    After $1 + y / (a \mu)$ of those units a worker is late with probability $e^{-y}$,
    by itself, so the time is $1 + \frac{1}{a \mu} \int_0^\infty P(e^{-y}) \, dy$ with
    $P$ of `tree_failure`. The integral is accurate to $10^{-8}$.

    Example:
        >>> round(tree_compute(children=4, layers=3, tolerance=1), 3)
        2.925
    """
    from scipy.integrate import quad

    n, L, s = tree_numbers("tree_compute", children, layers, tolerance)
    rate = _number("tree_compute", "tail", tail, above=True)
    end = math.log(Tree(n, L).workers) + _NEGLIGIBLE
    late, _ = quad(
        lambda y: chance_of_failure(n, L, s, math.exp(-y)),
        0.0,
        end,
        epsabs=1e-9,
        limit=500,
    )
    return float(1.0 + late / rate)


def tree_receive(
    children: int,
    layers: int,
    tolerance: int,
    *,
    port: float,
    latency: float = 0.0,
    chunks: float = 1,
) -> float:
    r"""Return the seconds a tree takes to add up messages that are all ready.

    It is $(n-s)(1 + (L-1)/C) t_c + L t_l$ if every message is sent on in $C$ chunks,
    each as soon as it is added up; $C$ may be `math.inf`, for the limit.

    Example:
        >>> tree_receive(children=4, layers=3, tolerance=1, port=1.0)
        9.0
        >>> tree_receive(children=4, layers=3, tolerance=1, port=1.0, chunks=4)
        4.5
    """
    n, L, s = tree_numbers("tree_receive", children, layers, tolerance)
    t_c = _number("tree_receive", "port", port)
    t_l = _number("tree_receive", "latency", latency)
    return _vectors(n, L, s, _chunks("tree_receive", chunks)) * t_c + L * t_l


def tree_seconds(
    children: int,
    layers: int,
    tolerance: int,
    *,
    share: float,
    tail: float = 1.0,
    port: float,
    latency: float = 0.0,
) -> tuple[float, float]:
    r"""Bound the mean seconds of a step of a tree, from below and from above.

    With $x = r N A$, the `tree_compute` $C_0$ and the `tree_receive` $R$, of messages
    in one chunk, it is between $\max(x C_0 + t_c + t_l, \; x + R)$ and $x C_0 + R$.

    Example:
        >>> low, high = tree_seconds(4, 3, 1, share=0.1, port=1.0)
        >>> round(low, 2), round(high, 2)
        (9.6, 10.76)
    """
    n, L, s = tree_numbers("tree_seconds", children, layers, tolerance)
    A = _number("tree_seconds", "share", share)
    x = tree_load(n, L, s) * Tree(n, L).workers * A
    received = tree_receive(n, L, s, port=port, latency=latency)
    mean = x * tree_compute(n, L, s, tail)
    return max(mean + port + latency, x + received), mean + received


def ring_seconds(
    workers: int,
    *,
    share: float,
    tail: float = 1.0,
    port: float,
    latency: float = 0.0,
) -> float:
    r"""Return the mean seconds of a step of a ring of uncoded workers, exactly.

    It is $A (1 + H_N / (a \mu)) + 2 (N-1) (t_l + t_c / N)$: each of the $2 (N - 1)$
    turns waits for a neighbour, so that nobody is done before the slowest has begun.

    Example:
        >>> round(ring_seconds(84, share=0.0, port=1.0, latency=0.5), 3)
        84.976
    """
    N = whole("ring_seconds", "workers", workers, least=1)
    A = _number("ring_seconds", "share", share)
    t_c = _number("ring_seconds", "port", port)
    t_l = _number("ring_seconds", "latency", latency)
    rate = _number("ring_seconds", "tail", tail, above=True)
    slowest = 1.0 + math.fsum(1.0 / k for k in range(1, N + 1)) / rate
    return A * slowest + 2 * (N - 1) * (t_l + t_c / N)


def latency_to_beat_ring(
    children: int,
    layers: int,
    tolerance: int,
    *,
    chunks: float = 1,
    times: float = 1.0,
) -> float:
    r"""Return the $t_l / t_c$ above which a tree beats a ring, if nobody computes.

    With $V = (n-s)(1 + (L-1)/C)$ it is $(V - 2(N-1)/N) / (2(N-1) - L)$, or 0 if the
    tree always does. With `times` $k$ the ring must take $k$ times as long; then $k V$
    and $k L$ are in the places of $V$ and $L$, and the answer is infinite if $k$ is
    $2(N-1)/L$ or more.

    Example:
        >>> round(latency_to_beat_ring(children=4, layers=3, tolerance=1), 3)
        0.043
        >>> round(latency_to_beat_ring(children=4, layers=3, tolerance=1, times=7.0), 2)
        0.42
    """
    n, L, s = tree_numbers("latency_to_beat_ring", children, layers, tolerance)
    k = _number("latency_to_beat_ring", "times", times, above=True)
    N = Tree(n, L).workers
    V = _vectors(n, L, s, _chunks("latency_to_beat_ring", chunks))
    fewer = 2 * (N - 1) - k * L
    return max(0.0, (k * V - 2 * (N - 1) / N) / fewer) if fewer > 0 else math.inf


def message_to_beat_ring(
    children: int,
    layers: int,
    tolerance: int,
    *,
    latency: float,
    bandwidth: float,
    chunks: float = 1,
) -> float:
    r"""Return the size of messages below which a tree beats a ring, in bytes.

    Nobody computes, and a message of $b$ bytes takes $t_c = b / \beta$ at a `bandwidth`
    of $\beta$ bytes per second; the size is $\beta t_l$ over `latency_to_beat_ring`.

    Example:
        >>> round(message_to_beat_ring(4, 3, 1, latency=1e-4, bandwidth=125e6) / 1e3)
        290
    """
    t_l = _number("message_to_beat_ring", "latency", latency, above=True)
    beta = _number("message_to_beat_ring", "bandwidth", bandwidth, above=True)
    ratio = latency_to_beat_ring(children, layers, tolerance, chunks=chunks)
    return beta * t_l / ratio if ratio else math.inf


def _vectors(n: int, L: int, s: int, chunks: float) -> float:
    """Return how many messages after one another the tree's ports take."""
    return (n - s) * (1.0 + (L - 1) / chunks)


def _chunks(bound: str, value: object) -> float:
    return math.inf if value == math.inf else whole(bound, "chunks", value, least=1)


def _number(bound: str, name: str, value: object, *, above: bool = False) -> float:
    """Return a finite number, 0 or more, or above 0."""
    real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    number = float(value) if real else math.nan  # type: ignore[arg-type]  # if real
    if not math.isfinite(number) or number < 0 or (above and number == 0):
        advice = "a number above 0" if above else "a number, 0 or more"
        raise InvalidCode(bound, f"{name} = {value!r}", advice)
    return number
