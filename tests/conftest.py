from hypothesis import settings

# Derandomised: a failure in CI fails on every machine. `make soak` draws anew.
settings.register_profile("codedgrad", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile("codedgrad")
