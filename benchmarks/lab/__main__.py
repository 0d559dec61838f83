"""A network of up to 85 hosts on one machine, and what codedgrad does on it.

    python benchmarks/lab                    # everything; about half an hour
    python benchmarks/lab trees --quick      # one experiment, smaller; a minute or two

    model     stars, trees and rings over bare MPI, beside the simulator
    trees     the MPI engine on 84 workers, with and without slow hosts
    rates     gradient coding beside CodedReduce, on slower and slower links
    latency   which latency decides a tree against a ring
    fair      a shared link with unequal rates: fair, and first come, first served
    spot      Ray on nine hosts: one killed, one cut off, one brought back
    hosts     MPI and torchrun on three hosts: one killed, cut off, stopped; a worker...

Hosts are network namespaces, their links are limited by the kernel, and nothing leaves
them. It needs root and iproute2. Figures and tables go to --out, docs by default.
Exit code 1 if an aim is missed, 2 if there can be no lab.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
from pathlib import Path

from kernel import LabFailed

MODULES = {
    **{name: name for name in ("model", "trees", "rates", "latency", "fair", "spot")},
    "hosts": "host_losses",  # `hosts.py` is the lab itself
}


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that labs are closed
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT")
    parser.add_argument("--quick", action="store_true", help="fewer hosts and steps")
    docs = Path(__file__).parents[2] / "docs"
    parser.add_argument("--out", type=Path, default=docs, help="a folder; docs")
    asked = parser.parse_args()
    unknown = sorted(set(asked.experiments) - MODULES.keys())
    if unknown:
        parser.error(f"there is no {unknown[0]}; try {', '.join(MODULES)}")
    missed: list[str] = []
    try:
        for name in asked.experiments or MODULES:
            begun = time.monotonic()
            print(f"--- {name}", flush=True)
            found = importlib.import_module(MODULES[name]).main(asked.quick, asked.out)
            missed += [f"{name}: {line}" for line in found]
            print(f"    ({time.monotonic() - begun:.0f} s)\n", flush=True)
    except LabFailed as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
