"""Real digits, for papers whose own data cannot be had."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from codedgrad.errors import InvalidOptions


def real_digits(
    who: str,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the digits of scikit-learn: pictures from 0 to 1, (1797, 64), and labels.

    Args:
        who: Needs them, for people who do not have scikit-learn.
    """
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # has no types
    except ImportError:
        problem = "needs the digits of scikit-learn, which is not installed"
        raise InvalidOptions(who, problem, 'pip install "codedgrad[demo]"') from None
    loaded = load_digits()
    return loaded.data / 16.0, loaded.target
