"""What several files need. Ray is started once, when the first test asks for it.

All tests of this folder are long. `make test` takes one step on Ray and one under MPI,
in tests/engines/test_doctor.py, and what both share in tests/engines/test_remote.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from codedgrad.engines.ray.cluster import Cluster

HERE = Path(__file__).parent

CPUS = 6


@pytest.hookimpl(tryfirst=True)  # before `-m "not long"` takes tests out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("long")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    """A cluster of this machine with room for 6 workers, to which we are connected."""
    pytest.importorskip("ray")
    cluster = Cluster("local", CPUS, None)
    yield cluster
    cluster.close()
