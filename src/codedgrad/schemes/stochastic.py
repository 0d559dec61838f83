"""Stochastic gradient coding (SGC). Bitar, Wootters, El Rouayheb, 2019."""

from collections.abc import Sequence

from codedgrad import codes
from codedgrad.schemes.coded import Coded, approximate


def stochastic(
    workers: int,
    copies: int,
    straggle: float | Sequence[float],
    *,
    budget: float | None = None,
    count: int | None = None,
    placement: str = "random",
    weights: str = "equal",
    seed: int = 0,
    pieces: int = 1,
    parts: int | None = None,
) -> Coded:
    """Parts with COPIES random workers, added up as they come; right on average.

    Args:
        workers: Number of workers.
        copies: Workers that hold a part.
        straggle: Probability to be late, one for all or `[one, per, worker]`; the mean
            is right if it is.
        budget: Seconds after which a step ends.
        count: Answers after which it ends.
        placement: `random` or `cyclic`.
        weights: `equal` shares of a part, or `inverse-odds` (of being late).
        seed: Of the placement.
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    where = {"placement": placement, "weights": weights}
    code = codes.stochastic(workers, copies, straggle, **where, seed=seed)
    options = {"copies": copies, "straggle": straggle}
    return approximate(
        "stochastic", code, options, budget, count, pieces, parts, **where, seed=seed
    )
