"""Bernoulli gradient codes (BGC). Charles, Papailiopoulos, Ellenberg, 2017."""

from codedgrad import codes
from codedgrad.schemes.coded import Coded, approximate


def bernoulli(
    workers: int,
    copies: int,
    *,
    budget: float | None = None,
    count: int | None = None,
    decoding: str = "one-step",
    seed: int = 0,
    pieces: int = 1,
    parts: int | None = None,
) -> Coded:
    """Parts placed by the toss of a coin, COPIES on average; approximate.

    Args:
        workers: Number of workers.
        copies: Mean number of workers that hold a part.
        budget: Seconds after which a step ends.
        count: Answers after which it ends.
        decoding: `one-step`, `optimal`, or `sum` (plain sum over COPIES).
        seed: Of the coin.
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    code = codes.bernoulli(workers, copies, decoding=decoding, seed=seed)
    return approximate(
        "bernoulli",
        code,
        {"copies": copies},
        budget,
        count,
        pieces,
        parts,
        decoding=None if decoding == "one-step" else decoding,
        seed=seed,
    )
