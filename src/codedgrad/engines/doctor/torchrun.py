"""Does torchrun work here: PyTorch, its launcher, a step on two processes."""

from __future__ import annotations

import sys

from codedgrad.engines.doctor.examination import Finding, Looking, ask_python, step
from codedgrad.engines.optional_libraries import EXTRAS
from codedgrad.engines.remote.machine import APART

_TRIAL = (
    *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    *("-m", "codedgrad.engines.doctor.trial", "torchrun"),
)


def torchrun(looking: Looking) -> Finding:
    """Look at torchrun; with `looking.tries`, take a step with two processes."""
    torch = EXTRAS["torch"]
    if torch.version is None:
        return Finding("torchrun", "missing", "PyTorch is not installed", torch.install)
    answer = ask_python("import torch.distributed.run", looking.limit)
    if answer.code != 0:
        why = answer.last or f"exit code {answer.code}"
        return Finding("torchrun", "broken", why, detail=answer.out + answer.err)
    found = Finding("torchrun", "ok", f"of PyTorch {torch.version}")
    if not looking.tries:
        return found
    # Both processes count as hosts, so that it is tried whether they reach each other.
    apart = {APART: "processes"}
    return step(found, [sys.executable, *_TRIAL], looking.limit, apart)
