r"""Trees, stars and rings in arrays: how long their steps take, without events.

A step of a tree is worked out layer by layer from the bottom, for all steps at once. A
worker's own sum is done after its fixed seconds and its parts. The messages of its
children go through its port one at a time, in the order in which they are ready: for
$y_1 \le y_2 \le \dots$ they are received at $z_j = \max(z_{j-1}, y_j + t_l) + t_c$. Its
message is ready when the stop rule has enough of them and its own sum is done. A star
is a tree of one layer.

Times are on a grid on which sums are exact, so this is what the event-driven simulator
gives, sample by sample, where late workers stop at once and orders take no time. Steps
in which messages are ready together, and their order decides, are run by events.

**In chunks.** If a network cuts messages into $C$ chunks, each keeps a port busy for
$t_c / C$, and is sent on as soon as it has come from enough children and the worker's
own sum is done. A port that is free takes, of what has reached it, a chunk of the
lowest number, and of these the first that came. The children whose first chunks are
the first to be enough, as whole messages would be, are chosen: all their chunks are
waited for, and nothing more is taken of the others. With $C = 1$ this is the model
above. Chunks that come together are taken in the order of the children. This is ours,
not the paper's; without computing it gives the $(n-s)(1 + (L-1)/C) t_c$ of a pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from codedgrad.codes import Code
from codedgrad.codes.arguments import whole
from codedgrad.codes.decoders import Bools, Floats
from codedgrad.codes.tree import Tree
from codedgrad.core import ROOT, Scheme
from codedgrad.core.plan import Rule
from codedgrad.delays import Times
from codedgrad.errors import InvalidScenario, InvalidScheme
from codedgrad.network import Network
from codedgrad.schemes.stop_rules import Decodable, Threshold, blocks, needed
from codedgrad.sim.arrays.codes import Ints, Outcome, ends
from codedgrad.sim.arrays.ports import (
    of_layer,
    received,
    received_in_chunks,
    sent_down,
    tied,
)
from codedgrad.sim.events import run_events
from codedgrad.sim.machine import Machine


def has_tree_path(scheme: Scheme, machine: Machine) -> bool:
    """Whether `tree_outcome` says of a scheme on a machine what its events say.

    That is so of trees whose seats are given, and of stars where each worker sends one
    message and the sum is exact, if nothing drains, orders take no time, and messages
    go through ports in one piece.
    """
    network = machine.network or Network()
    return (
        not machine.drain
        and machine.latency == 0.0
        and network.chunks == 1
        and network.link is None
        and _tree_of(scheme) is not None
    )


def tree_seconds(
    scheme: Scheme, times: Times, network: Network | None = None
) -> Floats:
    """Return how long every step of a tree takes, (steps,); inf where it cannot end.

    Args:
        scheme: A tree with seats that are given; or one that follows an exact code
            with a message for each worker, a star.
        times: One row a step, as many columns as workers.
        network: What messages go through; None: they are there at once.

    Example:
        >>> from codedgrad.schemes import coded_reduce
        >>> at_once = Times(np.zeros((1, 84)), np.zeros((1, 84)))
        >>> tree = coded_reduce(84, 4, 1, inner="cyclic", rule="threshold")
        >>> tree_seconds(tree, at_once, Network(port=1.0, latency=0.5))  # 3 x (3 + 0.5)
        array([10.5])
        >>> tree_seconds(tree, at_once, Network(port=1.0, chunks=4))
        array([4.5])
    """
    return _seconds(scheme, times, network)


def counted_seconds(
    tolerance: int, times: Times, network: Network | None = None
) -> Floats:
    r"""Return how long a star takes that only counts to $N - S$, (steps,).

    It is what plain gradient coding takes, $S + 1$ shares for each worker, also for
    tolerances for which there is no code that keeps its digits. 0 is the uncoded star.

    Args:
        tolerance: $S$.
        times: One row a step, as many columns as workers.
        network: What messages go through, in one piece; None: they are there at once.

    Example:
        >>> at_once = Times(np.zeros((1, 84)), np.zeros((1, 84)))
        >>> counted_seconds(21, at_once, Network(port=1.0))
        array([63.])
    """
    N = times.workers
    S = whole("counted_seconds", "tolerance", tolerance, least=0, most=N - 1)
    lines = _in_one_piece(_checked(network, N))
    asked, there = sent_down(Tree(N, 1), _alive(times), lines.down, lines.latency)
    ready = np.where(asked, there + times.fixed + (S + 1) * times.unit, np.inf)
    arrivals = received(ready, lines.seconds(ROOT), lines.latency)
    return np.asarray(np.partition(arrivals, N - S - 1, axis=1)[:, N - S - 1])


def ring_seconds(times: Times, network: Network | None = None) -> Floats:
    r"""Return how long a ring all-reduce of uncoded workers takes, (steps,).

    In each of $2 (N - 1)$ turns everybody sends $1/N$ of a message to the next and
    waits for that of the one before. So nobody ends before the slowest has begun: it
    takes $2 (N - 1)(t_l + t_c / N)$ after the last is ready, and for ever if one is
    dead. All have the sum then, so nothing goes down; chunks do not matter.

    Args:
        times: One row a step, as many columns as workers.
        network: With the same port for all; None: messages take no time.

    Example:
        >>> at_once = Times(np.zeros((1, 84)), np.zeros((1, 84)))
        >>> ring_seconds(at_once, Network(port=1.0, latency=0.5)).round(3)
        array([84.976])
    """
    N = times.workers
    lines = _checked(network, N)
    if isinstance(lines.port, tuple):
        problem = "has a port for each worker, and a ring is only known for equal ones"
        raise InvalidScenario("network", problem, "one port for all")
    turn = lines.latency + lines.port / N
    return np.asarray((times.fixed + times.unit).max(axis=1) + 2 * (N - 1) * turn)


def tree_outcome(
    scheme: Scheme, times: Times, network: Network | None = None
) -> Outcome:
    """Return how every step of a tree, or of a star, goes.

    Args:
        scheme: As in `has_tree_path`.
        times: One row a step, as many columns as workers.
        network: What messages go through, in one piece; None: they are there at once.
    """
    shape = _Shape.of(scheme)
    flow = _climb(shape, times, _in_one_piece(_checked(network, shape.tree.workers)))
    end, arrivals = flow.seconds[:, None], flow.arrivals
    done = np.isfinite(flow.seconds)
    at_the_end = np.count_nonzero(arrivals == end, axis=1)
    found = Outcome(
        seconds=flow.seconds,
        residual=np.where(done, 0.0, float(shape.parts)),
        messages=np.count_nonzero(np.isfinite(arrivals) & (arrivals <= end), axis=1),
        work=_work(shape, flow, times.part(shape.parts)),
        busy=np.minimum(np.where(flow.asked, flow.own, 0.0), end).sum(axis=1),
    )
    rows = np.flatnonzero(flow.unsure | (done & (at_the_end > 1)))
    if rows.size:
        events = _by_events(scheme, times, rows, network)
        for each in fields(Outcome):
            getattr(found, each.name)[rows] = getattr(events, each.name)
    return found


# -- how it is done --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """What is the same in every step; load is the parts of every worker."""

    tree: Tree
    code: Code
    rule: Rule
    parts: int
    load: Floats

    @classmethod
    def of(cls, scheme: Scheme) -> _Shape:
        """Return that of a tree or a star, or say why there is none."""
        steps, tree = scheme.traits.steps, _tree_of(scheme)
        if steps is None or tree is None:
            advice = "a tree with seats=given, or an exact code with a message each"
            raise InvalidScheme(f"{scheme} is known by its events only", advice)
        load = np.array([float(len(parts)) for parts in scheme.placement])
        return cls(tree, steps.code, steps.rule, scheme.parts, load)

    @property
    def only_counts(self) -> bool:
        """Whether any messages do, if they are enough."""
        inner, count = blocks(self.code)
        if count > 1 and inner.messages > 1:
            return False
        return isinstance(self.rule, Threshold) or inner.fewest == needed(inner)


@dataclass(frozen=True, slots=True, eq=False)
class _Flow:
    """When things happen; arrays of shape (steps, workers) but for the two of (steps,).

    Attributes:
        seconds: When the root has enough, (steps,).
        asked: Who is asked for anything.
        begun: When the first part is begun.
        own: When the last part is done; inf for those who are not asked.
        arrivals: When the message is received, or its first chunk.
        unsure: Where the order of messages that are ready together decides, (steps,).
    """

    seconds: Floats
    asked: Bools
    begun: Floats
    own: Floats
    arrivals: Floats
    unsure: Bools


def _seconds(scheme: Scheme, times: Times, network: Network | None) -> Floats:
    shape = _Shape.of(scheme)
    lines = _checked(network, shape.tree.workers)
    flow = _climb(shape, times, lines)
    rows = np.flatnonzero(flow.unsure)
    if rows.size and lines.chunks == 1:
        flow.seconds[rows] = _by_events(scheme, times, rows, network).seconds
    return flow.seconds


def _climb(shape: _Shape, times: Times, network: Network) -> _Flow:
    """Go through a tree from its leaves to its root."""
    tree, n, steps = shape.tree, shape.tree.children, times.steps
    if times.workers != tree.workers:
        problem = f"are those of {times.workers} workers"
        raise InvalidScenario("times", problem, f"those of {tree.workers}")
    asked, there = sent_down(tree, _alive(times), network.down, network.latency)
    begun = there + times.fixed
    own = np.where(asked, begun + shape.load * times.part(shape.parts), np.inf)
    arrivals, unsure = np.empty_like(own), np.zeros(steps, dtype=np.bool_)
    ready = np.repeat(own[:, of_layer(tree, tree.layers), None], network.chunks, -1)
    for layer in range(tree.layers, 0, -1):
        below = ready.reshape(steps, -1, n, network.chunks)
        above = [ROOT] if layer == 1 else tree.of_layer(layer - 1)
        port = np.array([network.seconds(node) for node in above]) / network.chunks
        if port.any() and not shape.only_counts:
            unsure |= tied(below[..., 0])
        first, gathered = _gather(shape, below, port, network.latency)
        arrivals[:, of_layer(tree, layer)] = first.reshape(steps, -1)
        if layer > 1:
            ready = np.maximum(own[:, of_layer(tree, layer - 1), None], gathered)
    return _Flow(gathered[:, 0, -1], asked, begun, own, arrivals, unsure)


def _gather(
    shape: _Shape, ready: Floats, port: Floats, latency: float
) -> tuple[Floats, Floats]:
    """Return when first chunks are received, and when there are enough of each chunk.

    Args:
        shape: Of the tree.
        ready: When chunks are ready, (steps, parents, children, chunks).
        port: Seconds for each at every parent.
        latency: Seconds before they reach it.
    """
    steps, parents, n, chunks = ready.shape
    if chunks == 1:
        first = received(ready[..., 0], port, latency)
    else:
        first = received_in_chunks(ready, port, latency)[..., 0]
    enough = ends(shape.rule, shape.code, first.reshape(-1, n)).reshape(steps, parents)
    if chunks == 1:
        return first, enough[..., None]
    chosen = (first <= enough[..., None])[..., None]
    wanted = received_in_chunks(np.where(chosen, ready, np.inf), port, latency)
    return first, np.where(chosen, wanted, -np.inf).max(axis=2)


def _work(shape: _Shape, flow: _Flow, part: Floats) -> Floats:
    """Return how many parts are computed to their end within each step."""
    with np.errstate(invalid="ignore", divide="ignore"):  # those who are not there
        left = flow.seconds[:, None] - flow.begun
        done = np.where(part > 0.0, np.floor(left / part), np.inf)
    begun = flow.asked & (left >= 0.0)
    return np.asarray(np.where(begun, np.minimum(done, shape.load), 0.0).sum(axis=1))


def _by_events(
    scheme: Scheme, times: Times, rows: Ints, network: Network | None
) -> Outcome:
    """Run some steps on the event-driven simulator, equal ones once."""
    both = np.concatenate([times.fixed[rows], times.unit[rows]], axis=1)
    distinct, which = np.unique(both, axis=0, return_inverse=True)
    machine = Machine(drain=False, network=network)
    fixed, unit = np.hsplit(distinct, 2)
    events = run_events(scheme, Times(fixed, unit), machine)
    each = (getattr(events, field.name) for field in fields(Outcome))
    return Outcome(*(values[which.ravel()] for values in each))


def _tree_of(scheme: Scheme) -> Tree | None:
    """Return the tree that messages go up; None: events alone say how steps go.

    A star, of one layer, is that of an exact code with one message, of parts, a worker.
    """
    steps = scheme.traits.steps
    if steps is None or steps.seats is not None:
        return None
    if steps.tree is not None:
        return steps.tree
    each = steps.code.owner == tuple(range(scheme.workers))
    known = isinstance(steps.rule, Decodable | Threshold)
    is_star = scheme.tolerance is not None and each and known and all(scheme.placement)
    return Tree(scheme.workers, 1) if is_star else None


def _alive(times: Times) -> Bools:
    return np.isfinite(times.fixed + times.unit)


def _checked(network: Network | None, workers: int) -> Network:
    """Return a network that fits; one that takes no time if there is none."""
    found = network or Network()
    found.check(workers)
    if found.link is not None:
        problem = "has a link that is shared out in slots, which needs events"
        raise InvalidScenario("network", problem, "compare, or link=None")
    return found


def _in_one_piece(network: Network) -> Network:
    if network.chunks > 1:
        problem = "cuts messages into chunks, of which only tree_seconds knows"
        raise InvalidScenario("network", problem, "chunks=1")
    return network
