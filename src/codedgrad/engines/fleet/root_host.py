"""The root's own machine as the root sees it: a host whose memory the root shares."""

from __future__ import annotations

from codedgrad.engines.host.host import Host
from codedgrad.engines.host.rows import ROOT_HOST


class RootHost(Host):
    """Host number 0, in the root's own process.

    Attributes:
        number: Of the host.
        is_there: Whether workers can be started there.
        published: Which version in memory has the parameters of the open step.
    """

    number = ROOT_HOST
    is_there = True
    published = -1

    @property
    def workers(self) -> list[int]:
        """Their numbers, in the order of their rows."""
        return self._prepare.workers

    def version(self, step: int) -> int:
        """Return where workers find the parameters of the open step."""
        return self.published
