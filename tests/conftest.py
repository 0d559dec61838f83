import pytest
from hypothesis import settings

# Derandomised: a failure in CI fails on every machine. `make soak` draws anew.
settings.register_profile("codedgrad", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile("codedgrad")


@pytest.fixture
def schedules(request: pytest.FixtureRequest) -> int:
    """How many schedules of faults: 2,000, and 100,000 in a soak."""
    profile = request.config.getoption("--hypothesis-profile")
    return 100_000 if profile == "soak" else 2000
