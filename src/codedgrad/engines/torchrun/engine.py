"""The torchrun engine: `torchrun --nnodes=4 --nproc-per-node=1 train.py`.

```text
  torchrun on machine 0 -- process 0: train.py, the root; the agent of its machine
  torchrun on machine 1 -- process 1: train.py as far as `train`; the agent from there
```

torchrun runs the same script everywhere. On process 0 `train` trains. On the others it
serves until the root's script ends, and then ends the process, so that nothing behind
it runs twice. torchrun starts a process that is lost again (`--max-restarts`), and with
c10d all others, too: with `run_dir=..., resume="auto"` the run then goes on.
"""

from __future__ import annotations

import atexit
import hashlib
import hmac
import math
import os
import secrets
import shlex
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS
from codedgrad.engines.optional_libraries import extra
from codedgrad.engines.remote.agent import PATIENCE, Agent, Invitation, RootLost
from codedgrad.engines.remote.door import parse_ports
from codedgrad.engines.remote.engine import Remote
from codedgrad.engines.remote.handshake import RunKey
from codedgrad.engines.remote.lobby import Lobby
from codedgrad.engines.remote.world import World, WorldLauncher, end_with_launcher
from codedgrad.errors import CodedgradError, EngineFailed

SECRET = "CODEDGRAD_SECRET"
"""The variable that has the secret of a job on several machines."""

_LEAST = 16  # characters of it
_DRAWN = 32  # bytes of a secret that the root's process draws
_DOOR = "codedgrad/door"  # the key of the root's door in torchrun's store
_LOOK = 0.1  # seconds between looks at what another process has still to say
_CALLING = 10.0  # seconds to call at a door before the store is looked at again
_PATIENCE = 60.0  # seconds for the process of a root that was reached to come back

_world: World | None = None
_store: Any = None


class Torchrun(Remote):
    """Workers on the machines on which torchrun runs this script.

    Args:
        interface: Where root and agents listen: the name of an interface, or an address
            of this machine; None: at all interfaces.
        ports: At which: `"FIRST-LAST"` or (first, last); None: any.
        root_is_agent: Whether the root's process is the agent of its machine, whose
            workers it then shares memory with; False: another process there, if
            there is one.
        open_segments: Sums that a worker may hold in a step.
        preload: Modules that workers will import anyway; imported once a machine.
        threads: That every worker computes with; `"auto"`: the cores of its machine
            divided by the workers there.
    """

    name = "torchrun"

    def __init__(
        self,
        *,
        interface: str | None = None,
        ports: str | tuple[int, int] | None = None,
        root_is_agent: bool = True,
        open_segments: int = OPEN_SEGMENTS,
        preload: Sequence[str] = (),
        threads: int | str = "auto",
    ) -> None:
        self._interface, self._numbers = interface, ports
        super().__init__(
            WorldLauncher(partial(_root_world, interface, ports), root_is_agent),
            open_segments=open_segments,
            preload=preload,
            threads=threads,
        )

    def attend(self) -> None:
        """Serve the root, and end this process after that, unless this is the root's.

        `train` calls it before anything else, so that no other process of the job opens
        the folder of the run.
        """
        job = _Job.of_environment()
        if job.rank > 0:
            _serve(job, self._interface, parse_ports(self._numbers))
        if job.size > 1 and _world is None:
            # torchrun may have started this process again, and its store is the same.
            job.store().delete_key(_DOOR)
            atexit.register(_release_others, job, os.getpid())


def _root_world(interface: str | None, ports: str | tuple[int, int] | None) -> World:
    """Return the processes of this job, which keep their connections between runs."""
    global _world
    if _world is None:
        job = _Job.of_environment()
        if job.is_on_one_machine:
            with _drawn_secret() as (secret, path):
                world = _opened(job, secret, path, interface or "lo", ports)
                try:
                    world.gather()  # then no process needs the file any more
                except BaseException:
                    world.lobby.close()  # those that have called look for the next one
                    raise
        else:
            world = _opened(job, shared_secret(job), "", interface, ports)
        _world = world
        atexit.register(world.quit)
        end_with_launcher()
    return _world


def _opened(
    job: _Job,
    secret: bytes,
    path: str,
    interface: str | None,
    ports: str | tuple[int, int] | None,
) -> World:
    """Open the root's door, and write where it is into torchrun's store."""
    nonce = secrets.token_hex(16)
    lobby = Lobby(job.key(secret, nonce), interface, ports)
    addresses, port = lobby.invitation.addresses, lobby.invitation.port
    if job.size > 1:
        door = _RootDoor(addresses, port, nonce, path)
        job.store().set(_DOOR, msgspec.json.encode(door))
    return World(lobby, job.size - 1)


def _release_others(job: _Job, owner: int) -> None:
    """Let the other processes end if the root's script has ended without a run.

    They wait for its door for as long as that script takes, which may end with 0 all
    the same: torchrun would then wait for them for ever. After an exception it is
    torchrun that ends them, or starts the root again.

    Args:
        job: Of the script.
        owner: The process id of the root: a fork of it may end long before it does.
    """
    has_failed = getattr(sys, "last_value", None) is not None
    if _world is None and os.getpid() == owner and not has_failed:
        nonce = secrets.token_hex(16)
        none = _RootDoor(addresses=(), port=0, nonce=nonce, path="")
        with suppress(RuntimeError):  # torchrun ends: so do they
            job.store().set(_DOOR, msgspec.json.encode(none))


def _serve(job: _Job, interface: str | None, ports: tuple[int, ...]) -> NoReturn:
    """Be an agent until the root's script ends; then end the process."""
    # What a terminal or a scheduler signals to all processes is the root's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    code = 1
    try:
        _serve_lives(job, interface, ports)
        code = 0
    except RootLost as error:
        print(f"codedgrad: {error}", file=sys.stderr)
    except CodedgradError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)  # not sys.exit: what follows `train` must not run here


def _serve_lives(job: _Job, interface: str | None, ports: tuple[int, ...]) -> None:
    """Serve the root; if it is lost, and torchrun starts it again, its next life.

    After a restart the store still has the door of the life before, which no process
    opens any more, until the new root gets to `train` and removes it. So a door that
    cannot be reached is looked up again and again, for as long as the root's script may
    need; torchrun ends this process if that script fails. The word that there will be
    no door is believed at once, but after a restart: then it may be of the life before,
    and is believed after a minute if it does not change.

    A root that was reached and is lost may have ended without a word: it is called for
    a minute if its machine answers that no process listens, and otherwise for as long
    as any agent calls.

    Raises:
        RootLost: If it is, or torchrun has ended.
    """
    parent = os.getppid()
    if job.is_on_one_machine and interface is None:
        interface = "lo"
    if not job.is_on_one_machine:
        shared_secret(job)  # now: without it the root will not say where its door is
    store, begun, lost_since = job.store(), time.monotonic(), math.inf
    stale = _door(store) if job.may_be_restarted else None
    door: _RootDoor | None = None
    secret: bytes | None = None
    while True:
        before, door = door, _door(store)
        if door is not None and not door.addresses:
            if door != stale or time.monotonic() - begun > _PATIENCE:
                return  # the root's script has ended before it opened one
            door = None
        if door is not None and (door != before or secret is None):
            # Once: the root removes the file when all processes have called.
            one = job.is_on_one_machine
            secret = _secret_in(door.path) if one else shared_secret(job)
        lost = RootLost("the root's process has not said where its door is")
        if door is not None and secret is not None:
            key = job.key(secret, door.nonce)
            invitation = Invitation(key, door.addresses, door.port, interface, ports)
            agent = Agent(
                invitation, job.rank, ends_with_parent=True, patience=_CALLING
            )
            try:
                agent.serve()
            except RootLost as error:
                lost = error
            else:
                return
            if lost.has_other_secret:
                problem = "the root of this job has another secret than this process"
                raise EngineFailed(problem, f"the same {SECRET} on all machines")
            if agent.was_admitted:
                lost_since = time.monotonic()
        if os.getppid() != parent:
            raise RootLost("torchrun has ended")
        patience = _PATIENCE if lost.is_refused else PATIENCE
        if time.monotonic() - lost_since > patience:
            raise lost
        time.sleep(_LOOK)


def _door(store: Any) -> _RootDoor | None:
    """Return where the root's door is, if the root has said so.

    Raises:
        RootLost: If the store does not answer.
    """
    try:
        if not store.check([_DOOR]):
            return None
        return msgspec.json.decode(bytes(store.get(_DOOR)), type=_RootDoor)
    except RuntimeError as error:  # as all of PyTorch's that are about stores
        raise RootLost(f"torchrun's store does not answer: {_line(error)}") from None
    except msgspec.MsgspecError as error:  # every process that reaches it may write
        raise RootLost(f"torchrun's store has a door that is none: {error}") from None


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


class _RootDoor(Struct, frozen=True):
    """What the root writes into torchrun's store, where nothing is secret.

    Attributes:
        addresses: Of its machine, to be tried in turn; none: there will be no door.
        port: Of its door.
        nonce: Drawn by this life of the root, so that no two doors are equal.
        path: On one machine, of the file that has the secret; empty: `SECRET` has it.
    """

    addresses: tuple[str, ...]
    port: int
    nonce: str
    path: str


@dataclass(frozen=True, slots=True)
class _Job:
    """The job of torchrun that this process is of, as its environment says.

    Attributes:
        rank: Of this process.
        size: How many there are.
        machines: On how many machines.
        run: What tells this job from others.
        restarts: How often this machine's torchrun has started its processes again for
            a failure of its own; it does not count those for another machine's.
    """

    rank: int
    size: int
    machines: int
    run: str
    restarts: int

    @classmethod
    def of_environment(cls) -> _Job:
        """Return it.

        Raises:
            EngineFailed: If torchrun has not started this process.
        """
        try:
            rank, size, machines = (
                int(os.environ[name])
                for name in ("RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE")
            )
            restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
            run = os.environ["TORCHELASTIC_RUN_ID"]
            return cls(rank, size, machines, run, restarts)
        except (KeyError, ValueError):
            script = shlex.join(sys.argv) if sys.argv[0] else "train.py"
            problem = "the torchrun engine works in a script that torchrun runs"
            advice = f"`torchrun --standalone --nproc-per-node=1 {script}`"
            raise EngineFailed(problem, advice) from None

    @property
    def is_on_one_machine(self) -> bool:
        """Whether all processes are on this machine."""
        return self.machines == 1

    @property
    def may_be_restarted(self) -> bool:
        """Whether the store may have something of an earlier life of the root."""
        return self.restarts > 0 or not self.is_on_one_machine

    def store(self) -> Any:
        """Return torchrun's store, which every process that reaches it may read.

        It is kept: where torchrun does not serve it, process 0 does, for as long as the
        object is there.
        """
        global _store
        if _store is None:
            torch = extra("torch", 'engine="torchrun"')
            from torch.distributed.rendezvous import rendezvous

            assert torch  # it is installed
            _store, _, _ = next(iter(rendezvous("env://")))
        return _store

    def key(self, secret: bytes, nonce: str) -> RunKey:
        """Return the key of a life of the root, which has drawn the nonce."""
        run = f"{self.run} {nonce}".encode()
        public = hashlib.sha256(run).digest()[:16]
        return RunKey(public, hmac.digest(secret, run, "sha256"))


def shared_secret(job: _Job) -> bytes:
    """Return the secret that the user has set on all machines.

    Raises:
        EngineFailed: If it is not there, or too short.
    """
    secret = os.environ.get(SECRET, "")
    if len(secret) < _LEAST:
        problem = (
            f"torchrun hands no secret to {job.machines} machines, and {SECRET} "
            + (f"has less than {_LEAST} characters" if secret else "is not set")
        )
        advice = f"`export {SECRET}=$(openssl rand -hex 32)`, the same on all"
        raise EngineFailed(problem, advice)
    return secret.encode()


@contextmanager
def _drawn_secret() -> Iterator[tuple[bytes, str]]:
    """Draw a secret, and leave it meanwhile in a file that only this user may read."""
    secret = secrets.token_bytes(_DRAWN)
    try:
        fd, path = tempfile.mkstemp(prefix="codedgrad-")
    except OSError as error:
        problem = f"the secret of the run cannot be written: {error}"
        raise EngineFailed(problem, "a TMPDIR of your own") from None
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secret)
        yield secret, path
    finally:
        Path(path).unlink(missing_ok=True)


def _secret_in(path: str) -> bytes | None:
    """Return the secret in a file; None: the file is not there, or not all of it.

    The path comes from the store, where another user may have written it: only a plain
    file of this user that no other one may read or write counts.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not block
    try:
        fd = os.open(path, flags)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        is_own = about.st_uid == os.geteuid() and not about.st_mode & 0o077
        if not (is_own and stat.S_ISREG(about.st_mode)):
            return None
        secret = file.read(_DRAWN + 1)
    return secret if len(secret) == _DRAWN else None
