"""Which hosts Ray is draining: its notice that they will be taken away.

Ray marks a node as draining when its autoscaler ends it, when a cloud takes it back, or
when `ray start --block` there gets SIGTERM. It has no public call that says so, so this
is the one that Ray's own Train and Data make, in a thread of its own: it asks the head,
which may not answer. Without that call in another version of Ray there are no notices.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from codedgrad.engines.preemption_notices import PreemptionNotice

_log = logging.getLogger("codedgrad")
_LOOK = 1.0  # seconds between two questions
_POLITE = 2.0  # seconds for an answer that is on its way when this is closed


class Drains:
    """Looks for nodes of the run that Ray is draining.

    Args:
        ray: The module, connected to a cluster.
        nodes: Returns the ids of the nodes that have workers now.
    """

    def __init__(self, ray: Any, nodes: Callable[[], Collection[str]]) -> None:
        self._ray = ray
        self._nodes = nodes
        self._root = ray.get_runtime_context().get_node_id()
        self._told: set[str] = set()
        self._found: queue.SimpleQueue[PreemptionNotice] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def notices(self) -> list[PreemptionNotice]:
        """Return the notices that came since the last call."""
        return [self._found.get() for _ in range(self._found.qsize())]

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()
        self._thread.join(_POLITE)

    def _look(self) -> None:
        while not self._closed.wait(_LOOK):
            try:
                draining = self._ray._private.state.state.get_draining_nodes()
                self._note(draining)
            except AttributeError as error:
                _log.info("this Ray does not say which hosts it drains: %s", error)
                return
            except Exception as error:  # of many kinds: the head does not answer now
                _log.debug("Ray does not say which hosts it drains: %s", error)

    def _note(self, draining: dict[str, int]) -> None:
        concerned = {self._root, *self._nodes()} & draining.keys() - self._told
        if not concerned:
            return
        known = self._ray.nodes()
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in known}
        for node in sorted(concerned):
            deadline = draining[node] / 1000  # 0: Ray was not told any
            seconds = max(0.0, deadline - time.time()) if deadline else None
            name, is_root = names.get(node, node), node == self._root
            self._found.put(PreemptionNotice(name, seconds, "Ray drains it", is_root))
            self._told.add(node)
