"""Computing a part leaves no trace, and depends on its numbers alone."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from codedgrad.torch.model.determinism import one_thread, quietly, seed_everything


def draw() -> tuple[list[float], float, float]:
    legacy = float(np.random.rand())  # noqa: NPY002
    return torch.rand(3).tolist(), legacy, random.random()


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_generators_are_as_they_were() -> None:
    seed_everything(1)
    undisturbed = draw()
    seed_everything(1)
    with quietly():
        seed_everything(9, 9)
        draw()
    assert draw() == undisturbed


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("kind", [quietly, one_thread])
def test_one_thread_is_used_and_then_as_many_as_before(kind: Callable) -> None:
    with kind():
        assert torch.get_num_threads() == 1
        with kind():
            assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_an_error_leaves_no_trace_either() -> None:
    seed_everything(1)
    undisturbed = draw()
    seed_everything(1)
    with pytest.raises(ZeroDivisionError), quietly():
        raise ZeroDivisionError(draw())
    assert draw() == undisturbed
    assert torch.get_num_threads() == 2


def test_it_can_be_nested() -> None:
    seed_everything(1)
    undisturbed = draw()
    seed_everything(1)
    with quietly():
        draw()
        with quietly():
            seed_everything(3)
    assert draw() == undisturbed


def test_the_same_numbers_seed_the_same() -> None:
    drawn = []
    for _ in range(2):
        seed_everything(5, 0, 3)
        drawn.append(draw())
    assert drawn[0] == drawn[1]


def test_other_numbers_seed_otherwise_in_every_generator() -> None:
    """Of 600 parts no two have the same luck, whichever generator they draw from."""
    seen: list[Any] = []
    for step in range(30):
        for part in range(20):
            seed_everything(5, step, part)
            seen.append(draw())
    for which in range(3):
        assert len({str(drawn[which]) for drawn in seen}) == 600


def test_fewer_numbers_are_not_zeros() -> None:
    """What a job draws is not what its first part draws."""
    drawn = []
    for which in ((), (0,), (0, 0), (0, 0, 0)):
        seed_everything(5, *which)
        drawn.append(str(draw()))
    assert len({*drawn}) == 4


def test_torch_is_seeded_as_by_its_own_function() -> None:
    """Also where there is no device, and the slow way around is not taken."""
    seed_everything(1, 2)
    number = torch.initial_seed()
    drawn = torch.rand(5)
    torch.manual_seed(number)
    assert torch.equal(torch.rand(5), drawn)
    assert 0 <= number < 2**63
