"""Stars, trees and rings over MPI, with nothing around them; runs in every process.

    bare.py --shape star,tree,ring --size 1000000 --rounds 3

Process 0 is the root, and computes nothing; the others are the workers, in the order
of a heap: worker k sends to (k - 1) // children. In a ring only the workers take part.
Prints one line of JSON for every shape and round: the seconds until the root has the
sum (until all workers have it, for a ring), and the bytes that came to the root's
interface meanwhile.

All processes are on one machine, so they share its clock. They never wait inside MPI,
which would keep a core busy: they ask, and sleep. Data moves only when they ask.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

WORLD = MPI.COMM_WORLD
ME, ALL = WORLD.Get_rank(), WORLD.Get_size()
WORKERS = ALL - 1
RECEIVED = Path("/sys/class/net/eth0/statistics/rx_bytes")
HEAD_START = 0.2  # seconds, for all to hear when a round starts


def wait(requests: Iterable[MPI.Request], nap: float) -> None:
    pending = list(requests)
    while not MPI.Request.Testall(pending):
        time.sleep(nap)


def start_together(nap: float) -> float:
    """Return the moment at which everybody starts, when it has come."""
    wait([WORLD.Ibarrier()], nap)
    moment = np.array([time.monotonic() + HEAD_START])
    wait([WORLD.Ibcast(moment, 0)], nap)
    time.sleep(max(0.0, moment[0] - time.monotonic()))
    return float(moment[0])


class Inbox:
    """Takes in one vector from each child, in the order in which they are ready.

    Args:
        rows: Where they go, one row for each.
        window: How many are under way at a time; further ones wait at their senders,
            if they are longer than MPI sends unasked.
        tag: Of this round.
        nap: Seconds between two looks.
    """

    def __init__(self, rows: NDArray[np.float32], window: int, tag: int, nap: float):
        self._rows, self._window, self._tag, self._nap = rows, window, tag, nap
        self._pending: list[MPI.Request] = []
        self._asked = 0
        self._heard = 0

    def take(self, needed: int) -> None:
        """Return when so many are here, counting from the first."""
        while self._heard < needed:
            if not (self._ask() + self._look()):
                time.sleep(self._nap)

    def _ask(self) -> int:
        before, status = self._asked, MPI.Status()
        while self._asked < len(self._rows) and len(self._pending) < self._window:
            if not WORLD.Iprobe(MPI.ANY_SOURCE, self._tag, status):
                break
            row = self._rows[self._asked]
            request = WORLD.Irecv(row, status.Get_source(), self._tag)
            self._pending.append(request)
            self._asked += 1
        return self._asked - before

    def _look(self) -> int:
        done = MPI.Request.Testsome(self._pending) if self._pending else []
        for index in sorted(done or [], reverse=True):
            del self._pending[index]
            self._heard += 1
        return len(done or [])


def tree(options: argparse.Namespace, fan: int, late: int, tag: int) -> float:
    """Add up one vector of every worker at the root; return the seconds it took."""
    nap = options.nap
    children = max(0, min(fan, ALL - 1 - fan * ME))
    rows = np.zeros((children, options.size // 4), np.float32)
    mine = np.full(options.size // 4, float(ME > 0), np.float32)
    inbox = Inbox(rows, options.window or ALL, tag, nap)
    begun = start_together(nap)
    inbox.take(max(0, children - late))
    if children:
        mine += rows.sum(axis=0) if late == 0 else 0.0
    ended = time.monotonic()
    sent = [] if ME == 0 else [WORLD.Isend(mine, (ME - 1) // fan, tag)]
    inbox.take(children)  # those that were late: so that the next round finds none
    wait(sent, nap)
    if ME == 0 and late == 0 and not (mine == WORKERS).all():
        raise SystemExit("the root has a wrong sum")
    return ended - begun


def ring(options: argparse.Namespace, tag: int) -> float:
    """Add up one vector of every worker at all of them; return the seconds it took."""
    nap = options.nap
    length = -(-options.size // 4 // WORKERS)
    parts = np.ones((WORKERS, length), np.float32)
    came = np.empty(length, np.float32)
    begun = start_together(nap)
    ended = begun
    if ME > 0:
        turn(parts, came, tag, nap)
        ended = time.monotonic()
        if not (parts == WORKERS).all():
            raise SystemExit("a worker has a wrong sum")
    last = np.array([ended])
    wait([WORLD.Iallreduce(MPI.IN_PLACE, last, MPI.MAX)], nap)
    return float(last[0] - begun)


def turn(
    parts: NDArray[np.float32], came: NDArray[np.float32], tag: int, nap: float
) -> None:
    me = ME - 1
    after, before = (me + 1) % WORKERS + 1, (me - 1) % WORKERS + 1
    for step in range(2 * (WORKERS - 1)):
        out, into = (me - step) % WORKERS, (me - step - 1) % WORKERS
        adds = step < WORKERS - 1
        request = WORLD.Irecv(came if adds else parts[into], before, tag)
        wait([request, WORLD.Isend(parts[out], after, tag)], nap)
        if adds:
            parts[into] += came


def library(options: argparse.Namespace, tag: int) -> float:
    """Let MPI itself add up, by the way that it picks; the root takes part."""
    vector = np.ones(options.size // 4, np.float32)
    begun = start_together(options.nap)
    WORLD.Allreduce(MPI.IN_PLACE, vector)  # waits inside, and is busy
    last = np.array([time.monotonic()])
    wait([WORLD.Iallreduce(MPI.IN_PLACE, last, MPI.MAX)], options.nap)
    return float(last[0] - begun)


def one_round(shape: str, options: argparse.Namespace, tag: int) -> float:
    match shape:
        case "star":
            late = options.late * WORKERS // options.children
            return tree(options, WORKERS, late, tag)
        case "tree":
            return tree(options, options.children, options.late, tag)
        case "ring":
            return ring(options, tag)
        case "library":
            return library(options, tag)
    raise SystemExit(f"no shape {shape!r}; use star, tree, ring or library")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="star,tree,ring")
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--children", type=int, default=4, help="of a tree's parents")
    parser.add_argument("--late", type=int, default=0, help="a parent does without")
    parser.add_argument("--window", type=int, default=0, help="vectors at a time")
    parser.add_argument("--nap", type=float, default=0.002, help="seconds")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    for shape in options.shape.split(","):
        for number in range(options.rounds):
            before = int(RECEIVED.read_text())
            seconds = one_round(shape, options, tag=1 + number)
            received = int(RECEIVED.read_text()) - before
            said = {"shape": shape, "round": number, "seconds": round(seconds, 4)}
            if ME == 0:
                print(json.dumps(said | {"root_received": received}), flush=True)
    wait([WORLD.Ibarrier()], options.nap)


if __name__ == "__main__":
    main()
