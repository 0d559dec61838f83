"""What runs in a Ray actor: the agent of a host, in a thread of its own."""

from __future__ import annotations

import os
import threading
import time
import traceback

from codedgrad.engines.host.parent_death import die_with_parent
from codedgrad.engines.remote.agent import Agent, Invitation, RootLost

_AGAIN = 1.0  # seconds before a root that has refused is called again


class HostActor:
    """The agent of a host, which calls the root as soon as Ray has started it.

    Ray starts an actor again, with the same arguments, when its process or its node is
    lost: the root hears of that by the next call.

    Args:
        invitation: From the root.
        number: Of the agent.
        cores: That the workers of the host share, as Ray has set them aside.
        divides_devices: Whether each worker is to see its share of the GPUs only.
    """

    def __init__(
        self, invitation: Invitation, number: int, cores: float, divides_devices: bool
    ) -> None:
        self._number = number
        # A killed root takes its raylet along. The raylet's actors notice that
        # themselves, unless they are stopped: then host and workers would stay.
        die_with_parent()
        agent = Agent(
            invitation,
            number,
            cores=cores,
            divides_devices=divides_devices,
        )
        threading.Thread(target=_serve, args=(agent,), daemon=True).start()

    def __repr__(self) -> str:
        return f"host {self._number}"  # as it is named in front of what it prints

    def pid(self) -> int:
        """Return the process id, once the actor is there."""
        return os.getpid()


def _serve(agent: Agent) -> None:
    while True:
        try:
            agent.serve()
        except RootLost:
            # The root's process has ended, and Ray is about to end this one; or the
            # root is too busy to listen.
            time.sleep(_AGAIN)
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # so that Ray starts another
        else:
            return
