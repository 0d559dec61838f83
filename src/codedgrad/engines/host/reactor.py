"""One selector, and callbacks for every socket that it watches.

The root and the agent of every other machine have one reactor each. The sockets of
workers, of the nursery and of other hosts are all registered there, so one thread waits
for all of them and no lock is needed.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakSet

_NAP = 3600.0  # seconds to wait at a time; a selector takes no more than 24 days


@dataclass(slots=True, eq=False)
class _Socket:
    """A socket, what is wanted of it, and what to call."""

    socket: socket.socket
    read: Callable[[], None]
    write: Callable[[], None] | None
    events: int = selectors.EVENT_READ


class Reactor:
    """Calls back when a socket can be read or written.

    Example:
        >>> one, other = socket.socketpair()
        >>> reactor, heard = Reactor(), []
        >>> reactor.watch(one, lambda: heard.append(one.recv(10)))
        >>> _ = other.send(b"here")
        >>> reactor.poll(60.0)
        True
        >>> heard
        [b'here']
        >>> reactor.close(), one.close(), other.close()
        (None, None, None)
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._watched: dict[socket.socket, _Socket] = {}
        _reactors.add(self)

    def watch(
        self,
        link: socket.socket,
        read: Callable[[], None],
        write: Callable[[], None] | None = None,
    ) -> None:
        """Call `read` whenever there is something to read.

        Args:
            link: The socket.
            read: Called when it can be read, also when its other end is closed.
            write: Called when there is room to write, while `want_room` says so.
        """
        watched = self._watched[link] = _Socket(link, read, write)
        self._selector.register(link, watched.events, watched)

    def want_room(self, link: socket.socket, is_wanted: bool) -> None:
        """Say whether `write` is to be called when there is room."""
        watched = self._watched[link]
        events = selectors.EVENT_READ | selectors.EVENT_WRITE * is_wanted
        if watched.events != events:
            watched.events = events
            self._selector.modify(link, events, watched)

    def forget(self, link: socket.socket) -> None:
        """Watch a socket no more; one that is not watched is left alone."""
        watched = self._watched.pop(link, None)
        if watched is not None:
            self._selector.unregister(link)

    def poll(self, timeout: float) -> bool:
        """Wait so many seconds at most for something, and call back for all of it.

        Returns:
            Whether there was something.
        """
        ready = self._selector.select(min(max(0.0, timeout), _NAP))
        for key, mask in ready:
            watched: _Socket = key.data
            # A callback may have closed the socket that another one is about.
            if mask & selectors.EVENT_WRITE and watched.write and self._has(watched):
                watched.write()
            if mask & selectors.EVENT_READ and self._has(watched):
                watched.read()
        return bool(ready)

    def _has(self, watched: _Socket) -> bool:
        return self._watched.get(watched.socket) is watched

    def close(self) -> None:
        """Watch nothing any more."""
        self._watched.clear()
        self._selector.close()


_reactors: WeakSet[Reactor] = WeakSet()


def _leave_to_parent() -> None:
    """Close the copies of sockets that a fork of this process has.

    A script forks the loaders of its evaluation, say. With their copies connections and
    doors would outlive the script, and agents elsewhere would wait for it. The selector
    is left as it is: the parent and its fork have one between them.
    """
    for reactor in list(_reactors):
        watched = list(reactor._watched)
        reactor._watched.clear()
        for link in watched:
            link.close()


os.register_at_fork(after_in_child=_leave_to_parent)
