"""What late workers cost a training run, in virtual seconds.

    python examples/train_in_virtual_time.py

Softmax regression on eight workers, each with a part of the data, one of them ten
times as slow. The gradients are real, the seconds are simulated. The parts are not
alike (each has almost only one class), as data that lives where it was made tends to
be; so whoever ignores the slow worker does not learn its class.
"""

import numpy as np

from codedgrad.delays import Chain, ShiftedExponential, Sticky
from codedgrad.schemes import fractional, ignore, uncoded
from codedgrad.sim import train

WORKERS, CLASSES, FEATURES, SAMPLES = 8, 8, 20, 200


def make_data(rng):
    centres = 0.7 * rng.normal(size=(CLASSES, FEATURES))
    labels = rng.integers(CLASSES, size=(WORKERS, SAMPLES))
    own = np.arange(WORKERS)[:, None]
    labels = np.where(rng.random(labels.shape) < 0.999, own, labels)
    return centres[labels] + rng.normal(size=(WORKERS, SAMPLES, FEATURES)), labels


def probabilities(x, W):
    scores = x @ W
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True)


def main():
    rng = np.random.default_rng(0)
    X, Y = make_data(rng)

    def gradient(parameters, part, step):
        x, y = X[part], Y[part]
        p = probabilities(x, parameters.reshape(FEATURES, CLASSES))
        loss = -np.log(p[np.arange(SAMPLES), y]).sum()
        p[np.arange(SAMPLES), y] -= 1.0
        return loss, SAMPLES, (x.T @ p).ravel()

    def accuracy(parameters):
        p = probabilities(X, parameters.reshape(FEATURES, CLASSES))
        return float(np.mean(p.argmax(axis=-1) == Y))

    def full_loss(parameters):
        return sum(gradient(parameters, p, 0)[0] for p in range(WORKERS)) / Y.size

    slow = Sticky(factor=10, workers=(0,), always=True)
    delays = Chain(ShiftedExponential(floor=1.0, mean=0.1), slow)
    print("scheme                    final loss   accuracy   virtual seconds")
    for scheme in (uncoded(WORKERS), fractional(WORKERS, 1), ignore(WORKERS, 7)):
        run = train(
            gradient,
            np.zeros(FEATURES * CLASSES),
            scheme,
            delays,
            steps=60,
            rate=0.1,
            evaluate=accuracy,
        )
        seconds = run.seconds[-1]
        loss, score = full_loss(run.parameters), run.score[-1]
        print(f"{scheme.name:<25} {loss:>10.3f} {score:>10.3f} {seconds:>17.0f}")


if __name__ == "__main__":
    main()
