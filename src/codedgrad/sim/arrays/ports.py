"""What a network does to arrays of moments: ports on the way up, copies down.

The same as `network.Ports` and `network.Downlink` do to events, for many steps at once.
"""

from __future__ import annotations

import numpy as np

from codedgrad.codes.decoders import Bools, Floats
from codedgrad.codes.tree import Tree


def received(ready: Floats, port: float | Floats, latency: float = 0.0) -> Floats:
    r"""Return when messages have gone through a port, one after the other.

    They are taken in the order in which they are ready, and of those that are ready
    together the first before the others. For $y_1 \le y_2 \le \dots$ the $k$-th is
    there at $\max_{j \le k} (y_j + t_l + (k - j + 1) t_c)$.

    Args:
        ready: When they are ready, along the last axis; inf: never.
        port: Seconds for each, one number or one for each port.
        latency: Seconds before they reach the port.

    Example:
        >>> received(np.array([3.0, 0.0, 0.5]), port=1.0)
        array([4., 1., 2.])
    """
    each = np.asarray(port, dtype=np.float64)[..., None]
    if not each.any():
        return np.asarray(ready + latency)
    order = np.argsort(ready, axis=-1, kind="stable")
    turn = np.arange(ready.shape[-1])
    reach = np.take_along_axis(ready, order, -1) + latency
    begun = np.maximum.accumulate(reach - turn * each, axis=-1)
    arrivals = np.empty_like(begun)
    np.put_along_axis(arrivals, order, begun + (turn + 1) * each, -1)
    return arrivals


def received_in_chunks(ready: Floats, port: Floats, latency: float) -> Floats:
    """Return when the chunks of messages have gone through ports.

    A port that is free takes, of what has reached it, a chunk with the lowest number,
    and of these the one that came first, of the first child if they came together. If
    nothing has reached it, it takes what comes next.

    Args:
        ready: When chunks are ready, (steps, ports, messages, chunks), ascending along
            the last axis; inf: never.
        port: Seconds for each chunk, (ports,).
        latency: Seconds before they reach the port.
    """
    *_, messages, chunks = ready.shape
    reach = np.concatenate([ready + latency, np.full_like(ready[..., :1], np.inf)], -1)
    arrivals = np.full_like(ready, np.inf)
    number = np.zeros((*ready.shape[:-1], 1), dtype=np.intp)  # of the next chunk
    clock = np.full(ready.shape[:2], -np.inf)
    for _ in range(messages * chunks):
        waiting = np.take_along_axis(reach, number, -1)[..., 0]
        begun = np.maximum(clock, waiting.min(axis=-1))
        there = waiting <= begun[..., None]
        first = np.where(there, number[..., 0], chunks).min(axis=-1)
        of_these = there & (number[..., 0] == first[..., None])
        taken = np.where(of_these, waiting, np.inf).argmin(axis=-1)
        clock = begun + port
        which = (*np.indices(taken.shape), taken)
        chunk = number[which][..., 0]
        served = chunk < chunks  # not if nothing is left
        where = tuple(axis[served] for axis in (*which, chunk))
        arrivals[where] = clock[served]
        number[which] += served[..., None]
    return arrivals


def tied(ready: Floats) -> Bools:
    """Return in which steps two messages for one port are ready together, (steps,).

    Args:
        ready: When they are, (steps, ports, messages).
    """
    order = np.sort(ready, axis=-1)
    same = (order[..., 1:] == order[..., :-1]) & np.isfinite(order[..., 1:])
    return np.asarray(same.any(axis=(1, 2)))


def sent_down(
    tree: Tree, alive: Bools, copy: float | None, latency: float
) -> tuple[Bools, Floats]:
    """Return who is asked for anything, and when they have the parameters.

    Nobody below a dead worker is asked. The others get their copies in their order, one
    after the other from whom they are below.

    Args:
        tree: Who is below whom.
        alive: Who is there, (steps, workers).
        copy: Seconds for which a sender is busy with one; None: all have them at once.
        latency: Seconds that a copy takes besides.
    """
    steps, n = len(alive), tree.children
    asked, there = alive.copy(), np.zeros(alive.shape)
    for layer in range(1, tree.layers + 1):
        here = of_layer(tree, layer)
        if layer > 1:
            above = of_layer(tree, layer - 1)
            asked[:, here] &= np.repeat(asked[:, above], n, axis=1)
            there[:, here] = np.repeat(there[:, above], n, axis=1)
        if copy is not None:
            copies = asked[:, here].reshape(steps, -1, n).cumsum(axis=2)
            there[:, here] += copies.reshape(steps, -1) * copy + latency
    return asked, there


def of_layer(tree: Tree, layer: int) -> slice:
    """Return where the workers of a layer stand in arrays."""
    workers = tree.of_layer(layer)
    return slice(workers.start, workers.stop)
