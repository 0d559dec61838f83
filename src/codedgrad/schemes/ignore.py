"""Ignore stragglers (IS-SGD): add up the first few answers. It drops data."""

from dataclasses import replace

from codedgrad import codes
from codedgrad.codes.decoders import Decoder, Fixed, OneStep
from codedgrad.core.rules import First
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.coded import Coded, in_all, stopping, title


def ignore(
    workers: int,
    count: int | None = None,
    *,
    budget: float | None = None,
    scaled: bool = True,
    pieces: int = 1,
    parts: int | None = None,
) -> Coded:
    """Take the first COUNT answers, scale them up, drop the rest (loses samples).

    A baseline only: whoever is always slow is never learnt from.

    Args:
        workers: Number of workers.
        count: Answers to wait for.
        budget: Seconds after which a step ends.
        scaled: Whether to make up for the answers that are missing; `false` just adds
            those there are, as IS-SGD is published.
        pieces: Parts for each worker.
        parts: Parts in all; None: `pieces` for each worker.
    """
    if not isinstance(scaled, bool):
        raise InvalidScheme(f"ignore: scaled = {scaled!r}", "true or false")
    plain = codes.uncoded(workers)
    decoder: Decoder = OneStep(plain.B, copies=1) if scaled else Fixed(plain.B)
    called = f"ignore(workers={workers}{'' if scaled else ', scaled=False'})"
    code = replace(plain, name=called, tolerance=None, decoder=decoder, inner=None)
    rule = stopping("ignore", code, budget, count, First(workers))
    total, said = in_all("ignore", workers, pieces, parts)
    name = title("ignore", count=count, budget=budget, scaled=scaled, **said)
    return Coded(name, codes.recut(code, total), rule)
