"""Logistic regression on real processes, one of them slow.

    python examples/logistic_regression.py --slow 3=0.2 --kill 5@10
    python examples/logistic_regression.py --engine ray

The data is GISETTE-like, built from scikit-learn's digits; it is not GISETTE. As there,
4 is told from 9, and the features are pixels, products of random pairs of pixels, and
as many probes: columns shuffled among the samples, which say nothing. Every scheme
trains on real processes, here or on a cluster, with the same trouble, and is compared
with training in a single process.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from codedgrad.engines import FaultPlan, train
from codedgrad.errors import CodedgradError
from codedgrad.jobs import single_process
from codedgrad.schemes import build

DATA = "GISETTE-like, built from scikit-learn's digits; not GISETTE"
FEATURES, HELD_OUT, RATE = 600, 89, 0.1


def make_data(seed):
    """Return features and labels (1: a nine), those held out first."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("this example needs scikit-learn: pip install scikit-learn")
    rng = np.random.default_rng(seed)
    images, digits = load_digits(return_X_y=True)
    chosen = rng.permutation(np.flatnonzero((digits == 4) | (digits == 9)))
    pixels, y = images[chosen] / 16.0, (digits[chosen] == 9).astype(float)
    one, other = rng.integers(64, size=(2, FEATURES // 2 - 64))
    real = np.hstack([pixels, pixels[:, one] * pixels[:, other]])
    probes = rng.permuted(real, axis=0)
    return np.hstack([real, probes])[:, rng.permutation(FEATURES)], y


def logistic(X, y, parts):
    """Return the gradient of a part, as a function; it takes its data along."""
    X_parts, y_parts = np.array_split(X, parts), np.array_split(y, parts)

    def gradient(parameters, part, step):
        x, wanted = X_parts[part], y_parts[part]
        score = x @ parameters
        loss = np.logaddexp(0.0, score) - wanted * score
        return loss.sum(), len(wanted), x.T @ (1.0 / (1.0 + np.exp(-score)) - wanted)

    return gradient


def trouble(asked):
    faults = FaultPlan()
    for worker, seconds in asked.slow:
        for step in range(asked.steps):
            faults.slow(worker, step, seconds)
    for worker, step in asked.kill:
        faults.kill(worker, step)
    return faults


def often_late(reports, workers):
    """Say which worker was late most often."""
    times = np.bincount([w for r in reports for w in r.late], minlength=workers)
    worst = times.argmax()
    return f"{worst} in {times[worst]} steps" if times[worst] else "nobody"


def compare(asked):
    schemes = [build(name, workers=asked.workers) for name in asked.scheme]
    X, y = make_data(asked.seed)
    announce(asked, samples=len(y) - HELD_OUT)

    def accuracy(parameters):
        return float(np.mean((X[:HELD_OUT] @ parameters > 0) == y[:HELD_OUT]))

    for number, scheme in enumerate(schemes):
        gradient = logistic(X[HELD_OUT:], y[HELD_OUT:], scheme.parts)
        start, options = np.zeros(FEATURES), {"steps": asked.steps, "rate": RATE}
        alone = single_process(gradient, start, scheme.parts, **options)
        trace = asked.trace
        if trace and len(schemes) > 1:
            trace = trace.with_stem(f"{trace.stem}-{number}")
        faults = trouble(asked)
        run = train(
            gradient,
            start,
            scheme,
            engine=asked.engine,
            faults=faults,
            evaluate=accuracy,
            trace=trace,
            **options,
        )
        step = np.median([report.seconds for report in run.steps])
        late = often_late(run.steps, asked.workers)
        off = np.abs(run.parameters - alone.parameters).max()
        name = asked.scheme[number]
        print(f"{name:<30} {step:>9.4f} {run.score[-1]:>9.3f} {late:>14} {off:>12.1e}")
        for fault in faults.planned:
            if fault.kind == "kill" and fault not in faults.fired:
                print(f"  {fault}: not done, it was given nothing in that step")


def announce(asked, samples):
    who = [f"{worker} takes {s:g} s longer a step" for worker, s in asked.slow]
    who += [f"{worker} is killed in step {step}" for worker, step in asked.kill]
    print(DATA)
    half = FEATURES // 2
    print(
        f"{samples} samples, {HELD_OUT} more held out; {half} features, {half} probes"
    )
    print(f"{asked.workers} workers, {asked.steps} steps, seed {asked.seed}")
    print("\n".join(f"worker {words}" for words in who))
    print()
    print(f"{'':<30} {'median':>9} {'accuracy':>9} {'late':>14} {'off single':>12}")
    print(f"{'scheme':<30} {'step [s]':>9} {'held out':>9} {'most often':>14} "
          f"{'process':>12}")  # fmt: skip


class Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong."""

    def error(self, message):
        """Exit."""
        self.exit(2, f"{self.prog}: {message}\n")


def whole(least):
    def parse(text):
        if not text.isdecimal() or int(text) < least:
            problem = f"{text!r} is not a whole number, {least} or more"
            raise argparse.ArgumentTypeError(problem)
        return int(text)

    return parse


def worker_and_seconds(text):
    worker, _, seconds = text.partition("=")
    try:
        added = float(seconds or 0.1)
    except ValueError:
        added = 0.0
    if not 0 < added < 3600:
        problem = f"{text!r} has no seconds greater than 0; try 3=0.1"
        raise argparse.ArgumentTypeError(problem)
    return whole(0)(worker), added


def worker_and_step(text):
    worker, at, step = text.partition("@")
    if not at:
        raise argparse.ArgumentTypeError(f"{text!r} names no step; try 5@10")
    return whole(0)(worker), whole(0)(step)


def parser():
    made = Parser(
        description=f"Logistic regression on real processes. The data: {DATA}.",
        epilog="example: python examples/logistic_regression.py --kill 5@10",
    )
    add = made.add_argument
    add("--workers", type=whole(1), default=8, metavar="N", help="default: 8")
    add("--engine", default="local", help="local, ray or mpi; default: local")
    add(
        "--scheme",
        action="append",
        help="repeat it to compare; default: uncoded and 'fractional(tolerance=1)'",
    )
    add("--steps", type=whole(1), default=40, metavar="N", help="default: 40")
    add(
        "--slow",
        type=worker_and_seconds,
        action="append",
        metavar="WORKER[=SECONDS]",
        help="takes longer in every step, by 0.1 s or so many; default: 3=0.1",
    )
    add(
        "--kill",
        type=worker_and_step,
        action="append",
        default=[],
        metavar="WORKER@STEP",
        help="killed by SIGKILL when that step is handed out",
    )
    add("--seed", type=whole(0), default=0, metavar="N", help="of the data; default: 0")
    add(
        "--trace",
        type=Path,
        metavar="FILE",
        help="record the events; for several schemes a number is put into its name",
    )
    return made


def check(asked):
    """Return what is wrong with what was asked for, or nothing."""
    for worker, _ in asked.slow + asked.kill:
        if worker >= asked.workers:
            return f"there is no worker {worker}; they are 0 to {asked.workers - 1}"
    for _, step in asked.kill:
        if step >= asked.steps:
            return f"there is no step {step}; they are 0 to {asked.steps - 1}"
    if asked.trace and not asked.trace.absolute().parent.is_dir():
        return f"there is no folder {asked.trace.parent} for the trace"
    return ""


def main():
    cli = parser()
    asked = cli.parse_args()
    asked.scheme = asked.scheme or ["uncoded", "fractional(tolerance=1)"]
    asked.slow = asked.slow or [(min(3, asked.workers - 1), 0.1)]
    if problem := check(asked):
        cli.error(problem)
    try:
        compare(asked)
    except CodedgradError as error:
        if isinstance(error, ValueError):  # what was asked for cannot be
            cli.error(str(error))
        sys.exit(f"{cli.prog}: {error}")


if __name__ == "__main__":
    main()
