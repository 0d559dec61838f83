"""Real pictures to train on, from packages: no hub, no download at run time."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from codedgrad.errors import InvalidData, InvalidOptions

FASHION = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package `dataset-fashion-mnist` puts it."""

_HELD_OUT = 5  # one in so many digits is for testing
_UNSIGNED_BYTES = 8  # the type of numbers in an idx file


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Pictures and what they show.

    Attributes:
        name: Of the set.
        train: Pictures (samples, pixels) in 0..1 and classes (samples,).
        test: Likewise, others.
        classes: How many there are.
        goal: An accuracy that a small network reaches.
    """

    name: str
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int
    goal: float


def pictures(name: str) -> Pictures:
    """Return a set by name: `digits`, `fashion-mnist`, or the latter's folder."""
    if name == "digits":
        return digits()
    if name == "fashion-mnist":
        if not FASHION.is_dir():
            advice = "apt-get install dataset-fashion-mnist, or the folder it is in"
            raise InvalidOptions(f"--data {name}", "is not installed", advice)
        return fashion_mnist(FASHION)
    if Path(name).is_dir():
        return fashion_mnist(Path(name))
    advice = "digits, fashion-mnist, or a folder with its four .gz files"
    raise InvalidOptions(f"--data {name}", "is not there", advice)


def digits() -> Pictures:
    """Return the 1,797 digits of 8 x 8 pixels that come with scikit-learn."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # has no types
    except ImportError:
        advice = 'pip install "codedgrad[demo]"'
        problem = "needs scikit-learn, which is not installed"
        raise InvalidOptions("--data digits", problem, advice) from None
    loaded = load_digits()
    order = np.random.default_rng(0).permutation(len(loaded.target))
    images = torch.tensor(loaded.data[order] / 16.0, dtype=torch.float32)
    labels = torch.tensor(loaded.target[order], dtype=torch.int64)
    test = len(labels) // _HELD_OUT
    return Pictures(
        "digits",
        (images[test:], labels[test:]),
        (images[:test], labels[:test]),
        classes=10,
        goal=0.95,
    )


def fashion_mnist(folder: Path) -> Pictures:
    """Return Fashion-MNIST from the folder with its four files."""
    train, test = _labelled(folder, "train"), _labelled(folder, "t10k")
    return Pictures("Fashion-MNIST", train, test, classes=10, goal=0.80)


def _labelled(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    images = _idx(folder / f"{name}-images-idx3-ubyte.gz", 3)
    labels = _idx(folder / f"{name}-labels-idx1-ubyte.gz", 1)
    if len(images) != len(labels):
        problem = f"has {len(images)} pictures, {len(labels)} labels"
        raise InvalidData(f"--data {folder}", problem, "a folder that is whole")
    flat = torch.from_numpy(images.reshape(len(images), -1).astype(np.float32))
    return flat / 255.0, torch.from_numpy(labels.astype(np.int64))


def _idx(
    file: Path, dimensions: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Read an array of bytes: two zeros, its type, its dimensions, its shape."""
    advice = "a folder with the four .gz files"
    try:
        with gzip.open(file) as opened:
            data = opened.read()
    except (OSError, EOFError) as error:
        problem = f"cannot be read ({error})"
        raise InvalidData(f"--data {file}", problem, advice) from None
    head = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(data[4:head], dtype=">u4").tolist())
    is_idx = data[:4] == bytes((0, 0, _UNSIGNED_BYTES, dimensions))
    if not is_idx or len(data) - head != math.prod(shape) or not shape[0]:
        raise InvalidData(f"--data {file}", "is not an idx file of bytes", advice)
    return np.frombuffer(data, dtype=np.uint8, offset=head).reshape(shape)
