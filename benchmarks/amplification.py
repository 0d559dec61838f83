"""How much decoding multiplies rounding errors: ours beside the papers' random draw.

    python benchmarks/amplification.py [--quick] [--plot FILE.png]

Exit code 1 if a random draw wins where `cyclic` does not look for one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from codedgrad.codes import amplification, cyclic
from codedgrad.codes.decoders import residuals
from codedgrad.codes.families.null_space import best_draw, draw
from codedgrad.codes.late_sets import heard_without

TABLE = [(3, 1), (4, 1), (4, 2), (5, 2), (10, 3), (20, 2), (20, 4), (50, 2), (50, 3)]
GAP = [(12, 5), (16, 8), (20, 4), (49, 3), (200, 2), (201, 199)]
DRAWS = 21


def ours(n: int, s: int) -> float:
    return amplification(cyclic(n, s, accept_amplification=True)).value


def draws(n: int, s: int) -> list[float]:
    return sorted(amplification(draw(n, s, i, "draw")).value for i in range(DRAWS))


def print_table(rows: list[tuple[int, int]]) -> None:
    print(f"{'workers':>7} {'late':>5} {'ours':>9} {'median draw':>12} {'ratio':>8}")
    for n, s in rows:
        mine, drawn = ours(n, s), float(np.median(draws(n, s)))
        print(f"{n:>7} {s:>5} {mine:>9.3g} {drawn:>12.3g} {drawn / mine:>7.0f}x")


def print_winning_draws(largest: int) -> bool:
    """Where the best of 200 draws beats the circulant, and whether we know it."""
    print("\nbest of 200 draws / circulant, where below 1 (n - s even):")
    unexpected = False
    for n in range(3, largest + 9):
        for s in range(n - 2, 0, -2):
            if n > largest and s < n - 2:
                break  # the farther from n - 2, the worse the draws
            plain = cyclic(n, s, construction="circulant", accept_amplification=True)
            below = amplification(plain).value
            better = best_draw(n, s, 0, "draw", below=below)
            if better is None:
                continue
            ratio = amplification(better).value / below
            known = amplification(cyclic(n, s)).value < below
            unexpected |= not known
            print(f"  ({n}, {s}): {ratio:.2f}" + ("" if known else "  NOT TAKEN"))
    print("every winning draw is taken" if not unexpected else "a winner is NOT taken")
    return unexpected


def print_gap(rows: list[tuple[int, int]]) -> None:
    """Residuals of sets that decode and sets that do not: `EXACT` is between them."""
    print("\nresiduals, over windows and 1000 random sets of s to s + 3 late workers:")
    print(f"{'workers':>7} {'late':>5} {'largest exact':>14} {'smallest inexact':>17}")
    rng = np.random.default_rng(0)
    exact_most, inexact_least = 0.0, np.inf
    for n, s in rows:
        code = cyclic(n, s)
        exact, inexact = [], []
        for late in range(s, min(s + 4, n)):
            sets = [rng.permutation(n)[:late] for _ in range(1000)]
            sets += [(np.arange(late) + start) % n for start in range(n)]
            heard = heard_without(np.array(sets), code.owner)
            found = residuals(code.B, code.decoder.weights(heard))
            decodes = code.decoder.decodable(heard)
            exact += found[decodes].tolist()
            inexact += found[~decodes].tolist()
        print(f"{n:>7} {s:>5} {max(exact):>14.0e} {min(inexact):>17.0e}")
        exact_most = max(exact_most, *exact)
        inexact_least = min(inexact_least, *inexact)
    print(f"{'in all':>13} {exact_most:>14.0e} {inexact_least:>17.0e}")


def plot(path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
    sizes = range(6, 51, 2)
    for s, mark, grey in ((1, "o", "0.0"), (2, "s", "0.35"), (3, "^", "0.6")):
        middle = [float(np.median(draws(n, s))) for n in sizes]
        axes.plot(sizes, middle, ls="--", marker=mark, ms=3.5, color=grey, mfc="white")
        mine = [ours(n, s) for n in sizes]
        axes.plot(sizes, mine, marker=mark, ms=3.5, color=grey, label=f"{s} late")
    axes.axhline(500, color="0.0", lw=0.8, ls=":")
    axes.text(50, 560, "refused above 500", ha="right", va="bottom", fontsize=8)
    axes.plot([], [], color="0.0", label="codedgrad")
    axes.plot([], [], color="0.0", ls="--", label="papers' random draw, median")
    axes.set(xlabel="workers", ylabel="rounding errors multiplied by", yscale="log")
    axes.set_title("Cyclic gradient codes: digits kept and digits lost", fontsize=10)
    axes.legend(fontsize=8, ncols=2, loc="upper left", framealpha=1)
    axes.set_ylim(0.7, 3e7)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    print(f"wrote {path}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--plot", type=Path, help="write the figure of the README")
    options = parser.parse_args()
    few = 5 if options.quick else None
    print_table(TABLE[:few])
    print_gap(GAP[:2] if options.quick else GAP)
    unexpected = print_winning_draws(5 if options.quick else 13)
    if options.plot:
        plot(options.plot)
    return unexpected


if __name__ == "__main__":
    sys.exit(main())
