"""Ignore stragglers: the first few answers, scaled up. It drops data."""

from dataclasses import replace

from codedgrad import codes
from codedgrad.codes.arguments import whole
from codedgrad.codes.decoders import OneStep
from codedgrad.core.rules import First
from codedgrad.schemes.coded import Coded, title


def ignore(workers: int, count: int, *, pieces: int = 1) -> Coded:
    """Take the first COUNT answers, scale them up, drop the rest (loses samples).

    A baseline only: whoever is always slow is never learnt from.

    Args:
        workers: Number of workers.
        count: Answers to wait for.
        pieces: Parts for each worker.
    """
    count = whole("ignore", "count", count, least=1, most=workers)
    plain = codes.uncoded(workers)
    scaled = replace(
        plain,
        name=f"ignore(workers={workers})",
        tolerance=None,
        decoder=OneStep(plain.B, copies=1),
        inner=None,
    )
    code = codes.refined(scaled, pieces)
    name = title("ignore", count=count, pieces=pieces)
    return Coded(name, code, First(count))
