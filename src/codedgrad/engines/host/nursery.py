"""The process that workers are forked from; `Children` starts it.

It imports the heavy libraries once, unpacks the job once, and never starts a thread;
so workers start in milliseconds and share the job's data until they write to it. The
root asks for workers over a private socket and sends each one's end of a socket along.

- The nursery keeps no end of a worker's socket, and a worker closes the nursery's: so
  the root sees a worker's death, and workers and nursery see the root's, as the end of
  a stream.
- When the root is gone, the nursery kills its children, stopped ones too, and ends. So
  nothing depends on a signal handler of the root, which SIGKILL would not run.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np

from codedgrad.engines.faults import Injector
from codedgrad.engines.host import unpacking
from codedgrad.engines.host.cores import own_devices, use_threads
from codedgrad.engines.host.memory_layout import Memory, WorkerMemory
from codedgrad.engines.host.nursery_messages import (
    Born,
    Died,
    Failed,
    Prepare,
    Signal,
    Spawn,
)
from codedgrad.engines.host.process_title import set_title
from codedgrad.engines.host.same_job import fingerprint_of, host_name
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.engines.host.wire import (
    Crashed,
    Ready,
    Said,
    WorkerLine,
    decode_gives,
    encode,
)
from codedgrad.engines.host.worker import PartFailed, Worker
from codedgrad.jobs import WorkerJob

_HEAD = struct.Struct("<Q")
_LONGEST = 20_000  # characters of a traceback
_LOOK = 1000  # milliseconds between looks at whether the root is still the parent


_decode = msgspec.msgpack.Decoder(Prepare | Spawn | Signal).decode


class _Nursery:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._parent = os.getppid()
        self._children: dict[int, Spawn] = {}  # by process id
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the root's business
        # So is a scheduler's warning, which may go to all processes of a job. Workers
        # inherit this; `Children` has blocked the signal until here.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the root is gone."""
        try:
            while self._serve():
                pass
        finally:
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)
            for pid in self._children:
                os.waitpid(pid, 0)
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGKILL)  # what workers have started, and itself

    def _serve(self) -> bool:
        ready = {fd for fd, _ in self._poll.poll(_LOOK)}
        if os.getppid() != self._parent:
            return False
        if self._wake in ready:
            os.read(self._wake, 4096)
        self._reap()
        if self._control.fileno() not in ready:
            return True
        received = self._receive()
        if received is None:
            return False
        frame, descriptors = received
        match _decode(frame):
            case Prepare() as prepare:
                self._prepare(prepare, descriptors)
            case Spawn() as spawn:
                self._spawn(spawn, descriptors[0])
            case Signal(worker, life, number):
                for pid, child in self._children.items():
                    if (child.worker, child.life) == (worker, life):
                        os.kill(pid, number)
        return True

    def _receive(self) -> tuple[bytearray, list[int]] | None:
        head, descriptors, _, _ = socket.recv_fds(self._control, _HEAD.size, 4)
        if len(head) < _HEAD.size:
            return None
        (length,) = _HEAD.unpack(head)
        frame = bytearray(length)
        view = memoryview(frame)
        while view:
            count = self._control.recv_into(view)
            if count == 0:
                return None
            view = view[count:]
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return frame, list(descriptors)

    def _prepare(self, prepare: Prepare, descriptors: list[int]) -> None:
        self._script = prepare.setup.script
        set_title("nursery", self._script)  # first: imports take seconds
        unpacking.is_going_on = True
        # Before anything is imported: a module may parse its arguments, as the job may.
        sys.argv[:] = map(os.fsdecode, prepare.setup.argv)
        try:
            for name in prepare.setup.preload:
                importlib.import_module(name)
            self._make: Callable[[], WorkerJob] = pickle.loads(prepare.setup.job)
        except BaseException:
            self._say(Failed(_short(traceback.format_exc())))
            return
        finally:
            unpacking.is_going_on = False
        self._descriptor, shape = descriptors[0], prepare.shape
        shared = Shared.attach(self._descriptor, shape.size, read_only=True)
        self._memory = Memory(shared, shape)  # workers map their own rows to write
        self._prepared = prepare
        gc.collect()
        gc.freeze()  # so that collections in workers do not copy what is shared
        self._say(Born(_threads()))

    def _spawn(self, spawn: Spawn, descriptor: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:  # too many processes, or too little memory
            print(f"codedgrad: a worker cannot be forked: {error}", file=sys.stderr)
            os.close(descriptor)
            return
        if pid == 0:
            self._control.close()
            signal.set_wakeup_fd(-1)
            os.close(self._wake)
            os.close(self._woken)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._be_worker(spawn, WorkerLine(socket.socket(fileno=descriptor)))
        os.close(descriptor)
        self._children[pid] = spawn

    def _be_worker(self, spawn: Spawn, line: WorkerLine) -> NoReturn:
        code = 1
        try:
            set_title(f"worker {spawn.worker}", self._script)
            code = self._work(spawn, line)
        finally:
            os._exit(code)  # whatever happened: never back into the nursery's loop

    def _work(self, spawn: Spawn, line: WorkerLine) -> int:
        """Be a worker until the root is gone; return the exit code."""
        prepared, number, step = self._prepared, spawn.worker, -1
        setup, index = prepared.setup, prepared.workers.index(number)

        def say(said: list[Said]) -> None:
            line.send(encode(said))

        try:
            use_threads(prepared.threads)
            if prepared.divides_devices:
                own_devices(index, len(prepared.workers))
            memory = WorkerMemory(self._memory, self._descriptor, index)
            job = self._make()
            use_threads(prepared.threads)  # what the job has imported, too
            memory.shape.check(job.layout)
            stretch = np.array(setup.stretch[number]) if setup.stretch else None
            fixed, part = np.array(setup.fixed[number]), np.array(setup.part[number])
            injector = Injector(number, spawn.faults, fixed, part, say, stretch)
            worker = Worker(number, job, memory, say, injector, setup.interrupts)
            say([Ready(os.getpid(), host_name(), fingerprint_of(job))])
            threading.Thread(target=_listen, args=(line, worker), daemon=True).start()
            step = 0
            worker.run()
        except PartFailed as failed:
            text = "".join(traceback.format_exception(failed.__cause__))
            say([Crashed(failed.task.step, failed.task.part, _short(text))])
        except ConnectionError:
            return 0  # the root is gone
        except BaseException:
            say([Crashed(step, -1, _short(traceback.format_exc()))])
        return 1

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None:
                code = os.waitstatus_to_exitcode(status)
                self._say(Died(child.worker, child.life, code))

    def _say(self, message: Born | Failed | Died) -> None:
        frame = msgspec.msgpack.encode(message)
        self._control.sendall(struct.pack("<I", len(frame)) + frame)


def _short(text: str) -> str:
    """Return the end of a traceback: the root may not be reading yet."""
    return text[-_LONGEST:]


def _listen(line: WorkerLine, worker: Worker) -> None:
    """Take orders until the root is gone, and end the process then."""
    try:
        while (frame := line.receive()) is not None:
            worker.take(decode_gives(frame))
    except ConnectionError:
        pass
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _threads() -> int:
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()


def main(fd: int) -> None:
    """Serve the root at the other end of a socket."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a killed process flushes nothing
    with suppress(ConnectionError):  # the root is gone
        _Nursery(socket.socket(fileno=fd)).run()
