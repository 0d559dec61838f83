"""Engines whose workers are elsewhere: all that Ray's and MPI's have in common.

A worker says that a sum is finished; the sum stays where it is. It is then fetched to
the root, or brought to the worker that adds it up, a few at a time for each; the
coordinator hears of it when it has arrived. So a step that ends early leaves the sums
of late workers where they are, and what was heard outlives whoever sent it.

A worker on the root's own host is near: it reads the parameters where the root has
them, and the root its sums where they are. Memory outlives the processes that have
written it, so here, too, what was heard does. Each life of an agent has memory of its
own: a process left over from an earlier life writes where the root no longer reads.
"""

from __future__ import annotations

import logging
import signal
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from numpy.typing import NDArray

from codedgrad.core import ROOT, Assign, Drop, Order
from codedgrad.delays import Times
from codedgrad.engines.engine import MakeJob
from codedgrad.engines.host.changed_stretches import Stale
from codedgrad.engines.host.fleet import Fleet
from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS, Memory, MemoryShape
from codedgrad.engines.host.nearby import Where
from codedgrad.engines.host.nursery_client import packed, script_arguments
from codedgrad.engines.host.nursery_messages import (
    Born,
    Died,
    Failed,
    Prepare,
    Signal,
    Spawn,
)
from codedgrad.engines.host.process_title import script_name
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.engines.host.wire import Give, Sent
from codedgrad.engines.host.worker_handle import WorkerHandle
from codedgrad.engines.remote.agent import (
    Gives,
    Heard,
    Near,
    Over,
    Setup,
    decode_up,
    encode_down,
)
from codedgrad.engines.remote.far_rows import FarRows
from codedgrad.engines.remote.pace import Pace
from codedgrad.engines.remote.port import FairPort, Port
from codedgrad.engines.remote.transport import (
    Carried,
    Fetched,
    Joined,
    Lost,
    Notice,
    Spoke,
    Transport,
)
from codedgrad.errors import EngineFailed, JobFailed
from codedgrad.uplink import Link

_log = logging.getLogger("codedgrad")

_Terms: TypeAlias = tuple[NDArray[Any], ...]
"""What a sum is the sum of: one vector that has come, or rows where they are."""


class _AgentLine:
    """A life of a worker, as the root sees it: frames to it and from it."""

    is_full = False

    def __init__(self, transport: Transport, worker: int, life: int) -> None:
        self._transport = transport
        self._worker, self._life = worker, life
        self._heard: list[bytes] = []
        self.is_open = True

    def send(self, frame: bytes) -> None:
        self._transport.send(self._worker, encode_down(Gives(self._life, frame)))

    def hear(self, frame: bytes) -> None:
        self._heard.append(frame)

    def receive(self) -> list[bytes]:
        heard, self._heard = self._heard, []
        return heard

    def close(self) -> None:
        self.is_open = False


class _FarHandle(WorkerHandle):
    """A worker whose parameters are brought to it when it has time for a step.

    A late worker is then sent once all that has changed since, and not every version.
    """

    def __init__(self, worker: int, deliver: Callable[[int, int], None]) -> None:
        super().__init__(worker)
        self._deliver = deliver
        self.has_agent = False
        self.has_parameters = False  # it reads them where the root has them
        self.rows: Memory | None = None  # its own, if the root can read them
        self._slot, self._planned_step, self._delivered = 0, -1, -1

    def end(self, at: float) -> None:
        """End a life."""
        super().end(at)
        self._planned_step = self._delivered = -1

    def slot(self, step: int) -> int:
        """Return where this worker finds the parameters of a step."""
        if step != self._planned_step:
            self._planned_step = step
            self._slot = 1 - self._slot  # the other one may be in hand
        return self._slot

    def _send(self, gives: list[Give]) -> None:
        for give in gives:
            if isinstance(give.order, Assign) and give.order.step != self._delivered:
                self._delivered = give.order.step
                if not self.has_parameters:
                    self._deliver(self.worker, give.version)
        super()._send(gives)


def _end(transport: Transport, held: dict[int, Memory]) -> None:
    try:
        transport.close()
    finally:
        while held:
            held.popitem()[1].close()


@dataclass(frozen=True, slots=True, eq=False)
class _Trip:
    """A sum that is to go somewhere."""

    key: int
    handle: _FarHandle
    life: int
    sent: Sent
    to: int

    @property
    def sender(self) -> int:
        """The worker whose sum it is."""
        return self.handle.worker


class Remote(Fleet):
    """Workers that a transport reaches.

    Args:
        transport: Ray's or MPI's.
        open_segments: Sums that a worker may hold in a step.
        preload: Modules that workers will import anyway.
        share_memory: Whether workers on the root's own host share its memory.

    Attributes:
        fetched: Sums that have come to the root.
        carried: Sums that have gone from worker to worker.
        read: Sums that the root has read where they were.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        open_segments: int = OPEN_SEGMENTS,
        preload: Sequence[str] = (),
        share_memory: bool = True,
    ) -> None:
        super().__init__(open_segments=open_segments, preload=preload)
        self.fetched = self.carried = self.read = 0
        self._shares = share_memory
        self._version = -1  # of the open step's parameters, where workers are near
        self._transport = transport
        self._ports: dict[int, Port[_Trip]] = {}
        self._alerted: dict[int, int] = {}  # by port, the trip that comes next
        self._pace = Pace()  # of all ports but the root's
        self._trips: dict[int, tuple[_Trip, tuple[int, ...], int]] = {}
        self._keys = 0
        self._link: Link | None = None
        self._looks: dict[int, float] = {}  # by port, when it is looked at again
        self._held: dict[int, Memory] = {}  # shared ones: the root's own, and others'
        self._end = weakref.finalize(self, _end, transport, self._held)

    def close(self) -> None:
        """End all agents and their workers."""
        self._end()
        if self._handles:
            self._rows.begin()  # sums of the last step are in memory of others

    @property
    def _is_open(self) -> bool:
        return self._end.alive

    def _prepare_all(
        self, make: MakeJob, workers: int, delays: Times, parts: int
    ) -> None:
        places, inbox = self.capabilities.rows_per_worker * 2, 2 * workers
        own = MemoryShape.of(self._layout, 1, self.capabilities.rows_per_worker)
        prepare = Prepare(
            script=script_name(),
            preload=self._preload,
            job=packed(make),
            shape=msgspec.structs.replace(own, rows=places + inbox, versions=2),
            fixed=delays.fixed.T.tolist(),
            part=delays.part(parts).T.tolist(),
            interrupts=self.capabilities.interrupts_part,
            stretch=[] if delays.stretch is None else delays.stretch.T.tolist(),
            argv=script_arguments(),
            published=MemoryShape.of(self._layout, workers, 1).published,
        )
        self._prepare = prepare
        self._stale = Stale(self._layout.parameters)  # by (agent, slot)
        setup = msgspec.msgpack.encode(Setup(prepare, sys.path, self._publish_here()))
        self._rows: FarRows = FarRows(self._layout, places, inbox)
        self._handles = [_FarHandle(number, self._deliver) for number in range(workers)]
        self._transport.open(setup, workers)
        self._wait(lambda: all(self._far(w).has_agent for w in range(workers)), "")

    def _far(self, worker: int) -> _FarHandle:
        handle = self._handles[worker]
        assert isinstance(handle, _FarHandle)
        return handle

    # -- orders ----------------------------------------------------------------------

    def give(self, order: Order) -> None:
        """Give an order to its worker; never waits for it."""
        if isinstance(order, Drop):
            self._call_off(order.worker)
        super().give(order)

    def finish(self, step: int) -> None:
        """Let all workers drop what they have in hand of a step."""
        for port in self._ports.values():
            port.clear(lambda trip: trip.sent.step > step)
        super().finish(step)

    def _keep(
        self, parameters: NDArray[Any], changed: Sequence[tuple[int, int]] | None
    ) -> None:
        handles = [self._far(handle.worker) for handle in self._handles]
        near = [handle for handle in handles if handle.has_parameters]
        may_come = self._transport.restarts and ROOT in self._held
        if near or may_come:  # whoever comes in the midst of the step may be near
            in_hand = {handle.version for handle in near if handle.in_hand is not None}
            self._version = self._held[ROOT].publish(parameters, in_hand, changed)
        elif ROOT in self._held:
            self._held[ROOT].pass_over(changed)
        self._stale.change(changed)
        self._transport.publish(parameters)

    def _deliver(self, worker: int, slot: int) -> None:
        stretches = self._stale.take((worker, slot))
        self._transport.deliver(worker, slot, stretches)

    def _place(self, handle: WorkerHandle, row: int, step: int) -> tuple[int, int]:
        far = self._far(handle.worker)
        version = self._version if far.has_parameters else far.slot(step)
        return self._rows.place(row), version

    def _spawn(self, handle: WorkerHandle) -> None:
        if handle.channel is not None or not self._far(handle.worker).has_agent:
            return  # its agent's coming will be heard of
        life = handle.life + 1
        handle.begin(_AgentLine(self._transport, handle.worker, life), self.now())
        spawn = Spawn(handle.worker, life, self._faults.for_workers())
        self._transport.send(handle.worker, encode_down(spawn))

    def _signal(self, handle: WorkerHandle, life: int, number: signal.Signals) -> None:
        if handle.life == life and handle.channel is not None:
            told = Signal(handle.worker, life, number, handle.pid)
            self._transport.send(handle.worker, encode_down(told))

    def _has_sent(self, handle: WorkerHandle) -> None:
        """Nothing to see to: a transport takes whatever it is given."""

    def _forget_channel(self, handle: WorkerHandle) -> None:
        self._call_off(handle.worker)

    def _call_off(self, worker: int) -> None:
        for port in self._ports.values():
            port.clear(lambda trip: trip.handle.worker != worker)

    # -- sums ------------------------------------------------------------------------

    def _arrive(self, handle: WorkerHandle, sent: Sent) -> None:
        if not self._rows.is_asked(handle.worker, sent.message, sent.cuts):
            self._unknown(handle, sent)
            return
        if self._rows.is_there(sent.message) or self._rows.is_dropped(sent.cuts):
            self._hand_out(handle, sent)  # once more; or too late, and nobody's concern
            return
        to = self._rows.target(sent.message)
        if to is None:
            return  # to somebody who is gone; the coordinator knows, or soon will
        if to == ROOT and self._link is None and self._far(handle.worker).rows:
            self._read(self._far(handle.worker), sent)
            return
        self._keys += 1
        trip = _Trip(self._keys, self._far(handle.worker), handle.life, sent, to)
        self._port(to).put(trip)
        self._admit(to)

    def share(self, link: Link) -> None:
        """Let sums come to the root in the order in which a link grants it."""
        self._link = link

    def _port(self, to: int) -> Port[_Trip]:
        if to not in self._ports:
            shared = self._link if to == ROOT else None
            workers = len(self._handles)
            pace = Pace() if to == ROOT else self._pace
            self._ports[to] = FairPort(shared, workers) if shared else Port(pace=pace)
        return self._ports[to]

    def _admit(self, to: int) -> None:
        """Let sums go to where they are wanted, as many as there is room for."""
        port = self._port(to)
        for trip in port.admit(self.now()):
            self._go(trip)
        soon = port.next_up
        if soon is not None and self._alerted.get(to) != soon.key:
            self._alerted[to] = soon.key
            self._transport.alert(soon.sender)
        now = self.now()
        again, planned = port.look_again(now), self._looks.get(to, -1.0)
        if again is not None and not now < planned <= again:
            self._looks[to] = again
            self._plan(again - now, lambda: self._admit(to))

    def _go(self, trip: _Trip) -> None:
        rows = self._rows.leave(trip.sent.cuts)
        places = tuple(self._rows.place(row) for row in rows)
        room = -1
        if rows and trip.to != ROOT:
            room = self._rows.room(trip.to)
        self._trips[trip.key] = trip, rows, room
        worker = trip.handle.worker
        if not rows:
            self._come(trip.key, ())
        elif trip.to == ROOT and trip.handle.rows:
            self._come(trip.key, self._lent(trip.handle, rows))
        elif trip.to == ROOT:
            self._transport.fetch(worker, trip.key, places)
        else:
            self._transport.carry(worker, trip.key, places, trip.to, room)

    def _read(self, handle: _FarHandle, sent: Sent) -> None:
        """Take in a sum that need not come."""
        self._take_in_here(handle, sent, self._lent(handle, self._rows.of(sent.cuts)))

    def _lent(self, handle: _FarHandle, rows: tuple[int, ...]) -> _Terms:
        assert handle.rows is not None
        return tuple(handle.rows.row(self._rows.place(row)) for row in rows)

    def _come(self, key: int, terms: _Terms | None) -> None:
        """Take note of a sum that has come, or never will (None)."""
        if key not in self._trips:
            return
        trip, rows, room = self._trips.pop(key)
        self._port(trip.to).done(trip, self.now())
        self._rows.left(rows)
        if room >= 0:
            self._rows.filled(trip.to, room)
        if terms is not None and self._is_wanted(trip):
            self._take_in(trip, terms, room)
        self._admit(trip.to)

    def _is_wanted(self, trip: _Trip) -> bool:
        handle, sent = trip.handle, trip.sent
        same_life = handle.life == trip.life and handle.channel is not None
        same_step = sent.step == self._step
        return same_life and same_step and self._rows.target(sent.message) == trip.to

    def _take_in(self, trip: _Trip, terms: _Terms, room: int) -> None:
        handle, sent = trip.handle, trip.sent
        if trip.to == ROOT:
            self._take_in_here(handle, sent, terms)
            return
        if room >= 0:
            self.carried += 1
            self._rows.delivered(sent.message, trip.to, room)
        self._rows.sent(handle.worker, sent.message, sent.cuts)
        self._hand_out(handle, sent)

    def _take_in_here(self, handle: _FarHandle, sent: Sent, terms: _Terms) -> None:
        is_lent = handle.rows is not None
        if is_lent:
            self.read += bool(terms)
        else:
            self.fetched += bool(terms)
        self._rows.arrived(sent.message, terms, is_lent)
        self._rows.sent(handle.worker, sent.message, sent.cuts)
        self._hand_out(handle, sent)

    # -- what happens ----------------------------------------------------------------

    def _wait_for_something(self, timeout: float) -> None:
        for notice in self._transport.poll(timeout):
            self._note(notice)

    def _note(self, notice: Notice) -> None:
        match notice:
            case Spoke(agent, frame):
                for up in decode_up(frame):
                    self._spoke(self._far(agent), up)
            case Fetched(_, key, vector):
                self._come(key, None if vector is None else (vector,))
            case Carried(_, key, _, arrived):
                self._come(key, () if arrived else None)
            case Joined(agent, near):
                self._meet(self._far(agent), near)
                if self._started:
                    self._plan_life(self._far(agent))
            case Lost(agent, reason):
                self._agent_lost(self._far(agent), reason)

    def _spoke(
        self, handle: _FarHandle, up: Born | Failed | Died | Heard | Over
    ) -> None:
        line = handle.channel
        match up:
            case Heard(life, frame) if line is not None and life == handle.life:
                assert isinstance(line, _AgentLine)
                line.hear(frame)
                self._hear(handle)
            case Over(life) if line is not None and life == handle.life:
                line.close()
                self._hear(handle)
            case Failed(text):
                raise JobFailed(f"the job, as worker {handle.worker} unpacked it", text)
            case Died(worker, life, code):
                self._died(worker, life, code)

    def _publish_here(self) -> Where | None:
        """Make memory for parameters that others may reach; None: they may not."""
        published = self._prepare.published
        if not self._shares or published is None:
            return None
        try:
            shared = Shared(published.size, least=2 * published.version_bytes)
        except (EngineFailed, OSError):  # too little memory, or too few addresses
            return None
        where = shared.where
        if where is None:
            shared.close()
        else:
            self._held[ROOT] = Memory(shared, published)
        return where

    def _meet(self, handle: _FarHandle, near: Near) -> None:
        for slot in range(self._prepare.shape.versions):
            self._stale.forget((handle.worker, slot))  # it is a new agent's
        handle.has_agent = True
        handle.has_parameters = near.has_parameters
        rows = Shared.reach(near.rows) if self._shares else None
        if rows is not None:
            handle.rows = self._held[handle.worker] = Memory(rows, self._prepare.shape)

    def _part(self, handle: _FarHandle) -> None:
        handle.has_agent = handle.has_parameters = False
        handle.rows = None
        if handle.worker in self._held:
            self._held.pop(handle.worker).close()

    def _agent_lost(self, handle: _FarHandle, reason: str) -> None:
        self._part(handle)
        if not self._started:
            problem = f"worker {handle.worker} was lost while it was set up: {reason}"
            raise EngineFailed(problem, "looking at its log")
        self._call_off(handle.worker)  # or what ends would let it in next
        if handle.worker in self._ports:
            self._ports[handle.worker].clear(lambda trip: False)
        for key, (trip, _, _) in list(self._trips.items()):
            if handle.worker in (trip.handle.worker, trip.to):
                self._come(key, None)
        if handle.channel is not None:
            handle.channel.close()
            self._hear(handle)
        cause = f"its agent is gone ({reason})"
        if not self._losses.explain_all(handle.worker, cause):
            outlook = self._outlook(handle)
            _log.warning("worker %d: %s; %s", handle.worker, cause, outlook)

    def _outlook(self, handle: WorkerHandle) -> str:
        """Say what follows the loss of a worker."""
        if self._far(handle.worker).has_agent:
            return super()._outlook(handle)
        if self._transport.restarts:
            return "it comes back with a new agent"
        return "it does not come back"
