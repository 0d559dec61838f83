"""What all files here need: one thread, so that workers have the cores for themselves.

Many threads for small tensors wait for each other, and the longer the busier it is.
"""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
