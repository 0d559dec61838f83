"""Engines with workers on several machines: one agent a machine, a launcher for all.

A worker says that a sum is finished; the sum stays where it is. It is then fetched to
the root, or brought to the host of the worker that adds it up, a few at a time for
each; the coordinator hears of it when it has arrived. So a step that ends early leaves
the sums of late workers where they are, and what was heard outlives its sender.

The root's own machine is a host like the others, but its agent is the root's process:
sums of its workers are read where they are, and nothing is sent to them.
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from codedgrad.core import ROOT, MessageFailed
from codedgrad.engines.fleet.fleet import Fleet, inlet
from codedgrad.engines.fleet.worker_handle import WorkerHandle
from codedgrad.engines.host.cores import usable_cores
from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS, MemoryShape
from codedgrad.engines.host.nursery_messages import Setup
from codedgrad.engines.host.wire import Sent
from codedgrad.engines.preemption_notices import PreemptionNotice
from codedgrad.engines.remote.connection import bytes_of
from codedgrad.engines.remote.far_host import FarHost, Published
from codedgrad.engines.remote.launcher import Launcher, round_robin
from codedgrad.engines.remote.lobby import AgentLink, Gone, Lobby, Pool
from codedgrad.engines.remote.messages import (
    Broken,
    Carried,
    End,
    Ended,
    Open,
    Opened,
    Refuse,
    Refused,
    Up,
    Vector,
)
from codedgrad.engines.remote.port import FairPort, Port
from codedgrad.errors import EngineFailed
from codedgrad.uplink import Link

_log = logging.getLogger("codedgrad")
_LOBBY = -1  # the number under which the inbox has agents that have come
_CUT = 5.0  # seconds between looks at whether links are cut
_HEARSAY = 1.0  # seconds to hear that a host is lost with which others cannot speak
_POLITE = 10.0  # seconds for hosts to end when the engine is closed
_keys = count(1)  # of transfers and questions, of all engines of this process


@dataclass(slots=True, eq=False)
class _Transfer:
    """A sum that goes from one host to another, or waits until it may.

    Attributes:
        key: A number that no other transfer of this engine has.
        handle: Of the worker whose sum it is.
        life: Of that worker, at the time.
        sent: Its message.
        to: The worker that reads the sum, or the root.
        rows: Of the sender's host; known once the transfer has begun, as are the next.
        row: Of the inbox of the reader's host; -1: the sum goes to the root.
        vector: Memory of the root that it is written to; None: it goes elsewhere.
    """

    key: int
    handle: WorkerHandle
    life: int
    sent: Sent
    to: int
    rows: tuple[int, ...] = ()
    row: int = -1
    vector: NDArray[Any] | None = None

    @property
    def sender(self) -> int:
        """The worker whose sum it is."""
        return self.handle.worker


class Remote(Fleet):
    """Workers on hosts whose agents a launcher starts.

    Args:
        launcher: Ray's, MPI's, torchrun's.
        open_segments: Sums that a worker may hold in a step.
        preload: Modules that workers will import anyway; imported once a host.
        threads: That every worker computes with; `"auto"`: the cores of its host, or
            its share of Ray's, divided by the workers there.

    Attributes:
        fetched: Sums that have come to the root from other hosts.
        carried: Sums that have gone from host to host.
        read: Sums that the root has read where they were, on its own host.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        open_segments: int = OPEN_SEGMENTS,
        preload: Sequence[str] = (),
        threads: int | str = "auto",
    ) -> None:
        super().__init__(open_segments=open_segments, preload=preload, threads=threads)
        self.fetched = self.carried = self.read = 0
        self._launcher = launcher
        # First onto the stack: hosts end before it.
        self._held.stack.callback(launcher.close)
        self._far: dict[int, FarHost] = {}  # by number
        self._by_agent: dict[int, FarHost] = {}
        self._ports: dict[int, Port[_Transfer]] = {}
        self._under_way: dict[int, _Transfer] = {}  # by key
        self._link: Link | None = None
        self._looks: dict[int, float] = {}  # by port, when it is looked at again
        self._admitting: set[int] = set()  # ports; or each transfer would recurse
        self._pool = Pool()
        # Rows of the inbox of a host that another agent may still write to, as (host,
        # worker, row), by the key of the transfer that has failed.
        self._unsure: dict[int, tuple[int, int, int]] = {}
        # By key of a try: why it failed, "" if it did not, None while that is open.
        self._reached: dict[int, str | None] = {}

    # -- hosts -----------------------------------------------------------------------

    def _open(self, setup: Setup, workers: int) -> None:
        shares = self._launcher.open(workers)
        lobby = self._launcher.lobby
        self._reactor = lobby.reactor
        self._setup = setup
        numbers = round_robin([share.workers for share in shares])
        inbox = 2 * workers
        near: list[int] = []
        cores = float(usable_cores())
        for share, own in zip(shares, numbers, strict=True):
            if share.agent is None:
                near, cores = own, share.cores or cores
        self._begin_at_root(setup, near, workers - len(near), cores, inbox)
        self._published = Published(self._memory)
        for share, own in zip(shares, numbers, strict=True):
            if share.agent is not None:
                self._seat_far(share.agent, own, inbox)
        self._seat_workers(workers, inbox)
        for host in self._far.values():
            host.handles = [self._handles[worker] for worker in host.workers]
        self._held.stack.callback(_end_hosts, list(self._far.values()), lobby)
        lobby.present = inlet(self._inbox, _LOBBY)
        for link in list(lobby.links.values()):
            self._welcome(link)
        self._look_for_cuts()  # from now on: a host may be lost while it is set up
        self._wait(self._are_all_there, "on other hosts")

    def _seat_far(self, agent: int, workers: list[int], inbox: int) -> None:
        shape = MemoryShape.of(
            self._layout,
            len(workers),
            self.capabilities.rows_per_worker,
            inbox=inbox,
        )
        number = len(self._far) + 1
        host = FarHost(number, agent, workers, shape, self._published)
        self._far[number] = self._by_agent[agent] = host
        self._hosts.append(host)

    def _are_all_there(self) -> bool:
        self._launcher.check()
        return all(host.is_there for host in self._far.values())

    def _welcome(self, link: AgentLink) -> None:
        """Use an agent that has come; after a while, if its lives are short."""
        host = self._by_agent.get(link.number)
        if host is None:
            return  # its process is not needed in this run
        host.link = link
        link.hear = inlet(self._inbox, host.number)
        if not link.connection.is_open:  # its end came before it could be heard here
            self._lose_host(host, "its process has ended")
            return
        if link.said.problem and not self._lives.has_begun:
            problem = f"{host.name} cannot be reached by others: {link.said.problem}"
            raise EngineFailed(problem, link.said.advice)
        self._agenda.enter(
            host.back_off.seconds, 0, partial(self._open_host, host, link)
        )

    def _open_host(self, host: FarHost, link: AgentLink) -> None:
        if host.link is not link:
            return  # it was lost again before its back-off was over
        host.set_up(secrets.randbits(62), self.now())
        setup = msgspec.structs.replace(self._setup, job=b"")
        job = np.frombuffer(self._setup.job, np.uint8)
        message = Open(
            host.number, host.memory, setup, sys.path, host.shape, host.workers,
            self._threads,
        )  # fmt: skip
        link.send(message, [bytes_of(job)])

    def _hear_host(self, host: int, message: Any) -> None:
        if host == _LOBBY:
            self._welcome(message)
            return
        self._heard(self._far[host], message)

    def _heard(self, host: FarHost, message: Up | Gone) -> None:
        match message:
            case Opened(threads):
                self._begin_host(host, threads)
            case Broken(reason):
                self._broken(host, reason)
            case Gone(reason):
                self._lose_host(host, reason)
            case Vector(key):
                self._end_transfer(key)
            case Carried(key, problem) if key in self._reached:
                self._reached[key] = problem
            case Carried(key, problem):
                self._end_transfer(key, problem)
            case Refused(key):
                if key in self._unsure:
                    _, worker, row = self._unsure.pop(key)
                    self._rows.filled(worker, row)

    def _begin_host(self, host: FarHost, threads: int) -> None:
        host.begin()
        for key, (number, worker, row) in list(self._unsure.items()):
            if number == host.number:  # its memory is a new one
                del self._unsure[key]
                self._rows.filled(worker, row)
        self._threads_of[host.number] = threads
        if self._lives.has_begun:
            self._lives.come_back(host.handles)

    def _broken(self, host: FarHost, reason: str) -> None:
        """Note why a host cannot go on; its agent hangs up next."""
        if not self._lives.has_begun:
            problem = f"{host.name} cannot be set up: {reason}"
            raise EngineFailed(problem, "looking at what it has printed")
        host.problem = reason
        # Now: its workers may be lost already, and then nothing more is said of them.
        _log.warning("%s cannot go on: %s; it is set up again", host.name, reason)

    def _lose_host(self, host: FarHost, reason: str) -> None:
        name, was_there = host.name, host.is_there
        host.end(self.now())
        if not self._lives.has_begun:
            problem = f"{name} was lost while it was set up: {reason}"
            raise EngineFailed(problem, "looking at what it has printed")
        if was_there:
            self._cancel(host)
            is_gone = f"is gone ({reason})"
            cause = f"{name} {'cannot go on' if host.problem else is_gone}"
            back = "it comes" if len(host.workers) == 1 else "they come"
            outlook = f"{back} back if the host does"
            if not self._launcher.starts_again and not host.problem:
                outlook = f"{back} back only if the agent there is still running"
            self._lives.lose(host.handles, cause, outlook)
        elif not host.problem:
            _log.warning("%s is gone again: %s", name, reason)
        host.link = None

    def _look_for_cuts(self) -> None:
        """Give hosts up whose links are cut: such connections do not end themselves."""
        for host in self._far.values():
            if host.link is not None and host.link.connection.is_cut():
                host.link.connection.cut("the link to it is cut")
        self._agenda.enter(_CUT, 0, self._look_for_cuts)

    def machines(self) -> int:
        """Return on how many machines workers can be; reaches the cluster."""
        return self._launcher.machines()

    def name_of(self, host: int) -> str:
        """Return what people should call a host."""
        return self._far[host].name if host in self._far else "the root's host"

    def notices(self) -> list[PreemptionNotice]:
        """Return which hosts the launcher says will be taken away."""
        return self._launcher.notices()

    def try_pairs(self, seconds: float) -> dict[tuple[int, int], str]:
        """Try whether agents can reach each other; return why not, by pair of hosts.

        Between two steps only: what each agent sends is a row of a worker, to a row of
        the other host in which sums for its workers arrive.

        Args:
            seconds: To wait for answers.
        """
        keys: dict[int, tuple[int, int]] = {}
        for one in self._far.values():
            for other in self._far.values():
                if one is not other and other.link is not None:
                    key = next(_keys)
                    keys[key], self._reached[key] = (one.number, other.number), None
                    # Each of them has a row for itself in the inbox of the other.
                    one.carry(key, (0,), other, other.shape.rows - one.number)
        deadline, reached = self.now() + seconds, self._reached
        while self.now() < deadline and None in [reached[key] for key in keys]:
            self._poll(deadline - self.now())
        silence = f"no answer within {seconds:g} s"
        problems = {pair: reached.pop(key) for key, pair in keys.items()}
        return {
            pair: silence if problem is None else problem
            for pair, problem in problems.items()
            if problem != ""
        }

    # -- parameters ------------------------------------------------------------------

    def _in_flight(self) -> Collection[int]:
        return self._published.in_flight

    def _publish_elsewhere(
        self, version: int, changed: Sequence[tuple[int, int]] | None
    ) -> None:
        self._published.version = version
        for host in self._far.values():
            host.changed(changed)

    @property
    def delivered(self) -> int:
        """How often parameters, or some of them, were sent to a host."""
        return self._published.delivered

    # -- sums ------------------------------------------------------------------------

    def share(self, link: Link) -> None:
        """Let sums come to the root in the order in which a link grants it."""
        self._link = link

    def _is_where_wanted(self, handle: WorkerHandle, reader: int) -> bool:
        is_there = super()._is_where_wanted(handle, reader)
        if is_there and reader == ROOT:
            if self._link is not None:
                return False  # it waits for its turn, though it need not move
            self.read += 1
        return is_there

    def _bring(self, handle: WorkerHandle, sent: Sent, reader: int) -> None:
        transfer = _Transfer(next(_keys), handle, handle.life, sent, reader)
        self._port(reader).put(transfer)
        self._admit(reader)

    def _port(self, to: int) -> Port[_Transfer]:
        if to not in self._ports:
            shared = self._link if to == ROOT else None
            self._ports[to] = (
                FairPort(shared, len(self._handles), self._may_begin)
                if shared
                else Port(self._may_begin)
            )
        return self._ports[to]

    def _admit(self, to: int) -> None:
        """Let sums go to where they are wanted, as many as there is room for."""
        if to in self._admitting:
            return  # called from `_begin` below: a transfer had nothing to move
        port = self._port(to)
        self._admitting.add(to)
        try:
            while transfers := port.admit(self.now()):
                for transfer in transfers:
                    self._begin(transfer)
        finally:
            self._admitting.discard(to)
        now = self.now()
        again, planned = port.look_again(now), self._looks.get(to, -1.0)
        if again is not None and not now < planned <= again:
            self._looks[to] = again
            self._agenda.enter(again - now, 0, partial(self._admit, to))

    def _begin(self, transfer: _Transfer) -> None:
        worker, reader, key = transfer.sender, transfer.to, transfer.key
        rows = transfer.rows = self._rows.leave(worker, transfer.sent.cuts)
        self._under_way[key] = transfer
        sender, target = self._far_host(worker), self._far_host(reader)
        if not rows or (sender is target is None):
            self._end_transfer(key)  # there is nothing to move
            return
        if reader == ROOT:
            assert sender is not None  # or there is nothing to move
            transfer.vector = self._pool.vector(self._layout.row, self._layout.dtype)
            sender.fetch(key, rows, transfer.vector)
            return
        row = transfer.row = self._rows.room(reader)
        if target is None and sender is not None:
            sender.fetch(key, rows, self._memory.row(row))
        elif sender is None and target is not None:
            target.put(key, row, self._memory.sum(rows))
        elif sender is not None and target is not None:
            sender.carry(key, rows, target, row)

    def _far_host(self, worker: int) -> FarHost | None:
        """Return the host of a worker, or of the root; None: the root's own."""
        return self._far.get(self._rows.host_of(worker))

    def _end_transfer(self, key: int, problem: str = "") -> None:
        """Note that a sum is where it was to go, or why it never will be."""
        if problem:
            self._doubt(key)
        transfer = self._release(key)
        if transfer is None:
            return
        if self._is_wanted(transfer):
            if problem:
                fail = partial(self._fail_transfer, transfer, problem)
                self._agenda.enter(_HEARSAY, 0, fail)
            else:
                self._take_in(transfer)
        self._admit(transfer.to)

    def _release(self, key: int) -> _Transfer | None:
        """Free what a transfer has held, and return it; None: it has ended before."""
        transfer = self._under_way.pop(key, None)
        if transfer is not None:
            self._rows.left(transfer.sender, transfer.rows)
            if transfer.row >= 0:
                self._rows.filled(transfer.to, transfer.row)
            self._port(transfer.to).done(transfer, self.now())
        return transfer

    def _fail_transfer(self, transfer: _Transfer, problem: str) -> None:
        """Let the plan know that a sum does not come: without that it would wait."""
        if not self._is_wanted(transfer):
            return  # the step is over, or one of the two hosts is lost
        sent, worker = transfer.sent, transfer.sender
        hosts = (self.name_of(self._rows.host_of(w)) for w in (worker, transfer.to))
        reason = "a sum could not be sent from {} to {}: {}".format(*hosts, problem)
        _log.warning("step %d: %s", sent.step, reason)
        self._rows.refuse(worker, sent.cuts)
        self._pending.append(
            MessageFailed(sent.step, worker, sent.message, reason, 0.0)
        )

    def _is_wanted(self, transfer: _Transfer) -> bool:
        handle, sent = transfer.handle, transfer.sent
        same_life = handle.life == transfer.life and handle.is_there
        same_step = sent.step == self._step
        is_read = self._rows.reader(sent.message) == transfer.to
        return same_life and same_step and is_read

    def _may_begin(self, transfer: _Transfer) -> bool:
        """Whether a sum that has waited is where it was, and wanted where it is to go.

        The coordinator may not have heard of a loss that the engine knows of.
        """
        sent, to = transfer.sent, transfer.to
        reader = None if to == ROOT else self._handles[to]
        return (
            self._is_step_open
            and self._is_wanted(transfer)
            and transfer.handle.where.is_there
            and (reader is None or (reader.is_there and reader.where.is_there))
            and not self._rows.is_heard(sent.message)
            and not self._rows.is_dropped(sent.cuts)
        )

    def _take_in(self, transfer: _Transfer) -> None:
        rows, sent, worker = self._rows, transfer.sent, transfer.sender
        if transfer.row >= 0:
            self.carried += 1
            rows.delivered(sent.message, transfer.to, transfer.row)
        elif self._far_host(worker) is None:
            self.read += bool(transfer.rows)
        elif transfer.to == ROOT:
            vector = transfer.vector
            self.fetched += vector is not None
            rows.arrived(sent.message, () if vector is None else (vector,))
        rows.sent(worker, sent.message, sent.cuts)
        self._hand_out(transfer.handle, sent)

    def _cancel(self, host: FarHost) -> None:
        """End all transfers from and to a host that is gone."""
        for key, transfer in list(self._under_way.items()):
            if transfer.sender in host.workers or transfer.to in host.workers:
                self._doubt(key)
                self._release(key)
                self._admit(transfer.to)

    def _doubt(self, key: int) -> None:
        """Keep the row of a failed transfer until nothing more can be written to it.

        What the sending agent has sent may still be on its way: also that of a host
        which the root takes to be lost, if it is only out of the root's reach. It would
        be written into a row that was given out again.
        """
        transfer = self._under_way.get(key)
        if transfer is None or transfer.row < 0:
            return
        sender, target = self._far_host(transfer.sender), self._far_host(transfer.to)
        if sender is None or target is None or not target.is_there:
            return  # the root itself is an end of it, or the row is gone with its host
        self._unsure[key] = target.number, transfer.to, transfer.row
        target.take(Refuse(key))
        transfer.row = -1


def _end_hosts(hosts: list[FarHost], lobby: Lobby) -> None:
    """End all hosts, and wait until they have ended: their processes are gone then."""
    lobby.present = None
    ending = []
    for host in hosts:
        link = host.link
        if link is not None and link.connection.is_open:
            ended: list[Ended | Gone] = []

            def hear(message: Any, ended: list[Ended | Gone] = ended) -> None:
                if isinstance(message, Ended | Gone):
                    ended.append(message)

            link.hear = hear
            link.send(End())
            ending.append((link, ended))
    deadline = time.monotonic() + _POLITE
    while any(not ended for _, ended in ending) and time.monotonic() < deadline:
        lobby.reactor.poll(deadline - time.monotonic())
    for link, ended in ending:
        link.hear = None
        if not ended:
            link.connection.cut("it does not end its workers")
