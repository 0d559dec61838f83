"""How two hosts of a run convince each other that they belong to it, without I/O.

```text
  dialer                                             door
  hello: run, from whom, to whom, nonce ------------>        80 bytes
         <--------------- nonce, HMAC("door", ...)           64 bytes
  HMAC("dialer", ...) ------------------------------>        32 bytes
```

Both HMACs (SHA-256) are over the hello and the door's nonce, with a key that only the
processes of the run have. Each side proves that it has the key and learns nothing about
it; the labels keep one side's proof from being used as the other's. The hello names the
process that is called, because an address may lead elsewhere: the bridge of a container
engine has the same address on every machine, and all doors may have the same port. All
of it is of fixed length, so whatever a stranger sends, `HELLO_BYTES` are read and no
more. What is said afterwards is not encrypted, nor is it signed: see docs/security.md.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from dataclasses import dataclass

from codedgrad.errors import ProtocolError

_MAGIC = b"codedgr1"  # the version of the protocol is its last character
_HELLO = struct.Struct("<8s16sIQIQ32s")
_NONCE = 32
HELLO_BYTES = _HELLO.size
"""Bytes that a dialer says first."""

CHALLENGE_BYTES = _NONCE + 32
"""Bytes that the door answers; all of them are 0 if it is the wrong door."""

PROOF_BYTES = 32
"""Bytes that the dialer says last."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """What the processes of a run know, and no other process does.

    Attributes:
        run: A number that tells runs apart, 16 bytes; not secret.
        secret: 32 bytes.
    """

    run: bytes
    secret: bytes

    @classmethod
    def draw(cls) -> RunKey:
        """Return the key of a new run."""
        return cls(secrets.token_bytes(16), secrets.token_bytes(32))

    def __repr__(self) -> str:
        return f"RunKey(run={self.run.hex()})"  # logs must not show the secret

    def proof(self, label: bytes, said: bytes) -> bytes:
        """Return the HMAC of what was said, under a label."""
        return hmac.digest(self.secret, label + said, "sha256")


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end.

    Attributes:
        host: Its number.
        life: Which life of that host; a number that its process has drawn.
    """

    host: int
    life: int


ROOT = Peer(0xFFFF_FFFF, 0)
"""The root."""


class NotOfThisRun(ProtocolError):
    """The other end is of another run, speaks another protocol, or lacks the secret.

    Attributes:
        is_lost: Whether it is a process of codedgrad that has called at a wrong door.
    """

    def __init__(self, problem: str, is_lost: bool = False) -> None:
        super().__init__(problem)
        self.is_lost = is_lost


class OtherSecret(NotOfThisRun):
    """A process of this very run has answered, but not with the secret of this one."""


class Dialer:
    """The side that has opened the connection.

    Args:
        key: Of the run.
        me: This process.
        to: The process that is called.

    Attributes:
        hello: What to say first.

    Example:
        >>> key = RunKey.draw()
        >>> dialer, door = Dialer(key, Peer(3, 1), ROOT), DoorKeeper(key, ROOT)
        >>> proof = dialer.answer(door.challenge(dialer.hello))
        >>> door.admit(proof)
        Peer(host=3, life=1)
        >>> stranger = Dialer(RunKey(key.run, b"guess"), Peer(3, 1), ROOT)
        >>> stranger.answer(door.challenge(stranger.hello))
        Traceback (most recent call last):
        ...
        codedgrad.engines.remote.handshake.OtherSecret: the other end has another \
secret
    """

    def __init__(self, key: RunKey, me: Peer, to: Peer) -> None:
        nonce = secrets.token_bytes(_NONCE)
        self._key = key
        ends = me.host, me.life, to.host, to.life
        self.hello = _HELLO.pack(_MAGIC, key.run, *ends, nonce)

    def answer(self, challenge: bytes) -> bytes:
        """Return the proof that answers a door's challenge.

        Raises:
            NotOfThisRun: If it is the wrong door.
            OtherSecret: If the door has not proved that it has the secret.
        """
        nonce, proof = challenge[:_NONCE], challenge[_NONCE:]
        said = self.hello + nonce
        if not any(challenge):
            raise NotOfThisRun("that door is of another run, or of another process")
        if not hmac.compare_digest(proof, self._key.proof(b"door", said)):
            raise OtherSecret("the other end has another secret")
        return self._key.proof(b"dialer", said)


class DoorKeeper:
    """The side that has accepted the connection.

    Args:
        key: Of the run.
        me: This process.
    """

    def __init__(self, key: RunKey, me: Peer) -> None:
        self._key, self._me = key, me
        self._said = b""
        self._peer = Peer(-1, -1)

    def challenge(self, hello: bytes) -> bytes:
        """Return what to answer to a dialer's hello.

        Raises:
            NotOfThisRun: If the hello is none, or of another run.
        """
        magic, run, host, life, to_host, to_life, _ = _HELLO.unpack(hello)
        if magic != _MAGIC:
            raise NotOfThisRun("the other end does not speak our protocol")
        if run != self._key.run:
            raise NotOfThisRun("the other end is of another run", is_lost=True)
        if Peer(to_host, to_life) != self._me:
            raise NotOfThisRun("the other end calls another process", is_lost=True)
        nonce = secrets.token_bytes(_NONCE)
        self._peer, self._said = Peer(host, life), hello + nonce
        return nonce + self._key.proof(b"door", self._said)

    def admit(self, proof: bytes) -> Peer:
        """Return the dialer, if its proof is right.

        Raises:
            NotOfThisRun: If it is not.
        """
        if not hmac.compare_digest(proof, self._key.proof(b"dialer", self._said)):
            raise NotOfThisRun("the other end has another secret")
        return self._peer
