"""What several files need. Ray is started once, when the first test asks for it."""

from collections.abc import Iterator

import pytest

from codedgrad.engines.ray.cluster import Cluster

CPUS = 6


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    """A cluster of this machine with room for 6 workers, to which we are connected."""
    pytest.importorskip("ray")
    cluster = Cluster("local", CPUS, None)
    yield cluster
    cluster.close()
