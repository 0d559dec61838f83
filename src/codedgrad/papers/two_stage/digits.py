"""A small network that learns to read real digits, in NumPy.

The 1,797 digits of 8 x 8 pixels that come with scikit-learn; one hidden layer, softmax,
the gradient of all digits in every step, with momentum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codedgrad.jobs import Floats, Gradient, Update
from codedgrad.papers.digits import real_digits

NAME = "digits of scikit-learn"
RATE = 0.8
_HIDDEN, _CLASSES = 32, 10
_HELD_OUT = 5  # one in so many is for testing
_KEPT = 0.9  # of the last step, by momentum


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """Pictures (samples, pixels) in 0..1, and what they show.

    Attributes:
        train: To learn from.
        test: Others.
    """

    train: tuple[Floats, NDArray[np.intp]]
    test: tuple[Floats, NDArray[np.intp]]

    def gradient(self, parts: int) -> Gradient:
        """Return the function that has the gradient of the loss of each part.

        All parts are computed together when the first is asked for, and kept until
        there are other parameters.
        """
        stacked = _stacked(*self.train, parts)
        last: tuple[Floats, tuple[Floats, Floats, Floats]] | None = None

        def of(x: Floats, part: int, step: int) -> tuple[float, float, Floats]:
            nonlocal last
            if last is None or last[0] is not x:
                last = x, _all_parts(x, *stacked)
            loss, count, sums = last[1]
            return float(loss[part]), float(count[part]), sums[part]

        return of

    def accuracy(self, x: Floats) -> float:
        """Return the share of test digits that are read."""
        pictures, labels = self.test
        _, scores = _forward(x, pictures)
        return float((scores.argmax(axis=1) == labels).mean())


def begin(pixels: int, seed: int) -> Floats:
    """Return parameters to start from, flat."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal((pixels, _HIDDEN)) / np.sqrt(pixels)
    last = rng.standard_normal((_HIDDEN, _CLASSES)) / np.sqrt(_HIDDEN)
    none = np.zeros(_HIDDEN), np.zeros(_CLASSES)
    return np.concatenate([first.ravel(), none[0], last.ravel(), none[1]])


def momentum(size: int) -> Update:
    """Return descent that keeps most of its last step; for one run."""
    speed = np.zeros(size)

    def update(x: Floats, gradient: Floats, step: int) -> Floats:
        nonlocal speed
        speed = _KEPT * speed - RATE * (1 - _KEPT) * gradient
        return np.asarray(x + speed)

    return update


def digits() -> Digits:
    """Return the digits in random order, the same in every run."""
    pictures, labels = real_digits("the two-stage paper")
    order = np.random.default_rng(0).permutation(len(labels))
    pictures, labels = pictures[order], labels[order]
    test = len(labels) // _HELD_OUT
    return Digits((pictures[test:], labels[test:]), (pictures[:test], labels[:test]))


def _layers(x: Floats, pixels: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return weights and offsets of both layers, without copying."""
    one = pixels * _HIDDEN
    two = one + _HIDDEN
    three = two + _HIDDEN * _CLASSES
    W, V = x[:one].reshape(pixels, -1), x[two:three].reshape(_HIDDEN, -1)
    return W, x[one:two], V, x[three:]


def _forward(x: Floats, pictures: Floats) -> tuple[Floats, Floats]:
    """Return what the hidden layer gives, and the scores of the classes."""
    W, b, V, c = _layers(x, pictures.shape[-1])
    hidden = np.tanh(pictures @ W + b)
    return hidden, hidden @ V + c


def _stacked(
    pictures: Floats, labels: NDArray[np.intp], parts: int
) -> tuple[Floats, NDArray[np.intp], Floats]:
    """Return pictures, labels and weights by part; what fills parts up weighs 0."""
    cut = np.array_split(np.arange(len(labels)), parts)
    size = max(map(len, cut))
    places = np.array([np.resize(each, size) for each in cut])
    weights = np.array([[i < len(each) for i in range(size)] for each in cut])
    return pictures[places], labels[places], weights.astype(np.float64)


def _all_parts(
    x: Floats, pictures: Floats, labels: NDArray[np.intp], weights: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return losses, numbers of samples and gradients of all parts, as sums."""
    hidden, scores = _forward(x, pictures)
    scores = scores - scores.max(axis=-1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    true = np.take_along_axis(logs, labels[..., None], axis=-1)[..., 0]
    off = np.exp(logs)
    off -= np.eye(_CLASSES)[labels]
    off *= weights[..., None]
    V = _layers(x, pictures.shape[-1])[2]
    back = (off @ V.T) * (1.0 - hidden**2)
    whole = (
        pictures.swapaxes(1, 2) @ back,
        back.sum(axis=1),
        hidden.swapaxes(1, 2) @ off,
        off.sum(axis=1),
    )
    sums = np.hstack([each.reshape(len(labels), -1) for each in whole])
    return -(true * weights).sum(axis=1), weights.sum(axis=1), sums
