from collections.abc import Callable
from functools import cache

import pytest

from codedgrad.papers import PAPERS, Effort, Exhibit

Make = Callable[[str, str], Exhibit]


@pytest.fixture(scope="session")
def exhibit() -> Make:
    """Make an exhibit from as little as can be; once for all tests."""

    @cache
    def make(paper: str, name: str) -> Exhibit:
        recipes = {recipe.name: recipe for recipe in PAPERS[paper].recipes}
        return recipes[name].make(Effort(quick=True, part=0.1))

    return make
