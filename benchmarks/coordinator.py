"""What a decision costs: microseconds per event, at 1,000 workers with 8 parts each.

    python benchmarks/coordinator.py            # about half a minute
    python benchmarks/coordinator.py --quick    # fewer workers, for a look

A simulated step is recorded, then its events are fed to a fresh coordinator again and
again. Decoders are counted: none is asked before every part is held by some message.
Exit code 1 if an aim is missed.
"""

from __future__ import annotations

import sys
import time
from statistics import mean, median, quantiles

import numpy as np

from codedgrad import codes
from codedgrad.codes.decoders import Bools, Decoder
from codedgrad.core import Coordinator, Event
from codedgrad.delays import ShiftedExponential
from codedgrad.schemes import CodedScheme
from codedgrad.schemes.stop_rules import Decodable
from codedgrad.sim import Simulator

QUICK = "--quick" in sys.argv[1:]
WORKERS = 200 if QUICK else 1000
PARTS_EACH = 8


def count_questions(decoder: Decoder) -> list[int]:
    """Let a decoder note how many messages were heard whenever it is asked."""
    asked: list[int] = []
    decodable = decoder.decodable

    def counted(heard: Bools) -> Bools:
        asked.extend(np.count_nonzero(heard, axis=1).tolist())
        return decodable(heard)

    decoder.decodable = counted
    return asked


def recorded(scheme: CodedScheme, steps: int) -> list[Event]:
    events: list[Event] = []
    law = ShiftedExponential(floor=1.0, mean=0.3)
    times = law.sample(np.random.default_rng(0), steps, scheme.workers)
    simulator = Simulator(scheme, watch=lambda event, commands: events.append(event))
    for step in simulator.run(times):
        assert step.combined, step.reason
    return events


def handle_times(scheme: CodedScheme, events: list[Event]) -> list[float]:
    coordinator, spent = Coordinator(scheme), []
    for event in events:
        start = time.perf_counter()
        coordinator.handle(event)
        spent.append(time.perf_counter() - start)
    return spent


def main() -> int:
    missed: list[str] = []
    print(f"{WORKERS} workers, {PARTS_EACH} parts each at the uncoded load")
    heads = f"{'median':>8} {'mean':>8} {'p99':>8} {'start':>8} {'decoder':>8}"
    print(f"{'scheme':<24} {'events/step':>11} {heads}")
    print(f"{'':<36} {'[us]':>8} {'[us]':>8} {'[us]':>8} {'[ms]':>8} {'asked':>8}")
    for name, code in {
        "uncoded": codes.uncoded(WORKERS),
        "fractional s=1": codes.fractional(WORKERS, 1),
        "clusters of 10, s=2": codes.clustered(codes.cyclic(10, 2), WORKERS // 10),
        "cyclic s=1": codes.cyclic(WORKERS, 1),
        "vertex graph, degree 10": codes.vertex_graph(WORKERS, 10),
    }.items():
        asked = count_questions((code.inner or code).decoder)
        scheme = CodedScheme(name, codes.refined(code, PARTS_EACH), Decodable())
        steps = 2
        events = recorded(scheme, steps)
        asked.clear()
        spent = handle_times(scheme, events)
        questions = len(asked) / steps
        necessary = (code.inner or code).fewest
        if any(count < necessary for count in asked):
            missed.append(
                f"{name}: the decoder was asked before {necessary} were heard"
            )
        starts = [s for s, e in zip(spent, events, strict=True) if hasattr(e, "step")
                  and type(e).__name__ == "StepStarted"]  # fmt: skip
        typical, p99 = median(spent), quantiles(spent, n=100)[98]
        print(
            f"{name:<24} {len(events) / steps:>11.0f} {1e6 * typical:>8.1f} "
            f"{1e6 * mean(spent):>8.1f} {1e6 * p99:>8.1f} {1e3 * mean(starts):>8.1f} "
            f"{questions:>8.0f}"
        )
        if typical > 50e-6:
            missed.append(f"{name}: an event takes {1e6 * typical:.0f} us")
    print("\naims: a median of at most 50 us; no decoder asked before the necessary")
    print("count:")
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
