"""Computing a part so that it depends on its numbers alone, and leaves no trace.

Then any worker gives the same bits for a part of a step, and a checkpoint needs nothing
about data or random numbers of workers but the step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch

_LIMIT = 2**32


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: what is computed is the same in a worker and at the root."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def quietly() -> Iterator[None]:
    """Use one thread, and put the global generators back as they were.

    So whoever computes at the root draws the same numbers afterwards.
    """
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002  users'
    try:
        with one_thread():
            yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002  users'
        random.setstate(states[2])


def seed_everything(seed: int, *which: int) -> None:
    """Seed the global generators of torch, numpy and random from some numbers.

    Args:
        seed: Of the run.
        which: What it is for; (0,) and (0, 0) are two different things.

    Example:
        >>> seed_everything(1, 2, 3)
        >>> a = torch.rand(2), np.random.rand(), random.random()
        >>> seed_everything(1, 2, 3)
        >>> b = torch.rand(2), np.random.rand(), random.random()
        >>> torch.equal(a[0], b[0]) and a[1:] == b[1:]
        True
    """
    sequence = np.random.SeedSequence(seed, spawn_key=which)
    words = sequence.generate_state(4).tolist()
    _seed_torch(words[0] * _LIMIT // 2 + words[1])
    np.random.seed(words[2])  # noqa: NPY002  users'
    random.seed(words[3])


def _seed_torch(number: int) -> None:
    """Seed torch; without a device to seed, that is much faster without asking."""
    if _has_device():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


@cache
def _has_device() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available()
