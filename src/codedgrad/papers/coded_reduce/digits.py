"""The GISETTE-like set from real digits.

GISETTE tells 4 from 9 by 5000 features: pixels from the middle of the top, products of
them, and probes that tell nothing. It is not available here. This set is made the same
way, as far as that is described, of the digits that come with scikit-learn; it is
smaller (361 digits of 8 x 8 pixels) and easier, and is not GISETTE.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from codedgrad.jobs import Floats, Gradient
from codedgrad.papers.digits import real_digits

NAME = "GISETTE-like set from real digits"
_CLASSES = (4, 9)
_WIDTH = 8
_PIXELS = tuple(_WIDTH * row + column for row in range(4) for column in range(2, 6))
_HELD_OUT = 3  # one in so many is for testing


@dataclass(frozen=True, slots=True, eq=False)
class FoursAndNines:
    """Features (samples, features) and labels, -1 for a 4 and 1 for a 9.

    Attributes:
        train: To learn from.
        test: Others.
        ridge: Half of it times the squared norm of the parameters is added to the loss.
    """

    train: tuple[Floats, Floats]
    test: tuple[Floats, Floats]
    ridge: float = 1e-3

    @property
    def rate(self) -> float:
        """The largest step that is sure to go down: 1 over the largest curvature."""
        features, labels = self.train
        curvature = np.linalg.norm(features, 2) ** 2 / (4 * len(labels))
        return float(1 / (curvature + self.ridge))

    def gradient(self, parts: int) -> Gradient:
        """Return the function that has the gradient of logistic loss of each part."""
        features, labels = self.train
        borders = np.linspace(0, len(labels), parts + 1).astype(int).tolist()
        ridge = self.ridge

        def of(x: Floats, part: int, step: int) -> tuple[float, float, Floats]:
            some = slice(borders[part], borders[part + 1])
            own, y = features[some], labels[some]
            margin, count = y * (own @ x), len(y)
            loss = np.logaddexp(0.0, -margin).sum() + ridge * count * (x @ x) / 2
            sums = ridge * count * x - (y / (1 + np.exp(margin))) @ own
            return float(loss), float(count), sums

        return of

    def judge(self, x: Floats) -> tuple[float, float]:
        """Return accuracy and mean logistic loss on the test set."""
        features, labels = self.test
        margin = labels * (features @ x)
        return float((margin > 0).mean()), float(np.logaddexp(0.0, -margin).mean())


def gisette_like(seed: int = 0, features: int = 5000) -> FoursAndNines:
    """Return the set: half of the features are pixels and products, half are probes.

    Products are of two to five different pixels. A probe has the values of a feature,
    dealt out anew to all samples, so that it tells nothing. Samples and features are in
    random order.
    """
    images, labels = _four_and_nine()
    rng = np.random.default_rng(seed)
    sets = [each for size in range(2, 6) for each in combinations(_PIXELS, size)]
    chosen = rng.choice(len(sets), features // 2 - len(_PIXELS), replace=False)
    products = [images[:, list(sets[i])].prod(axis=1) for i in chosen]
    real = np.column_stack([images[:, list(_PIXELS)], *products])
    whole = np.hstack([real, rng.permuted(real, axis=0)])
    order, test = rng.permutation(len(labels)), len(labels) // _HELD_OUT + 1
    whole = whole[order][:, rng.permutation(features)]
    labels = labels[order]
    train = np.ascontiguousarray(whole[test:]), labels[test:]
    return FoursAndNines(train, (whole[:test], labels[:test]))


def _four_and_nine() -> tuple[Floats, Floats]:
    pictures, targets = real_digits("--live")
    some = np.isin(targets, _CLASSES)
    labels = np.where(targets[some] == _CLASSES[1], 1.0, -1.0)
    return pictures[some], labels
