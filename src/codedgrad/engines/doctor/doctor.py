"""Which engines work on this machine, what is missing, and how to get it.

Nothing is started for good, and nothing is imported here: every question is put to a
process of its own, for a limited time.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator

from codedgrad.engines.ask_process import ask
from codedgrad.engines.doctor.examination import (
    Finding,
    Looking,
    ask_python,
    step,
    unanswered,
)
from codedgrad.engines.doctor.mpi import mpi
from codedgrad.engines.doctor.ray import ray
from codedgrad.engines.doctor.torchrun import torchrun
from codedgrad.engines.host.shared_memory import available_memory
from codedgrad.engines.optional_libraries import EXTRAS

_LAB_TOOLS = ("ip", "tc", "bridge", "unshare")

_TORCH = """
import json, torch
kinds = ["cpu"]
for kind in ("cuda", "xpu"):
    module = getattr(torch, kind, None)
    if module is not None and module.is_available():
        kinds.append(f"{module.device_count()} {kind}")
if torch.backends.mps.is_available():
    kinds.append("mps")
print(json.dumps([torch.__version__, kinds]))
"""
_LAB = """
ip link add x type bridge &&
tc qdisc add dev lo root tbf rate 1mbit burst 32kbit latency 400ms
"""  # as the lab does, in a network namespace that is gone at once


def findings(
    looking: Looking, told: Callable[[str], None] = lambda name: None
) -> Iterator[Finding]:
    """Look at everything, one after the other.

    Args:
        looking: How.
        told: Is told what is looked at next.

    Example:
        >>> from codedgrad.engines.doctor.examination import Looking
        >>> local = next(findings(Looking()))
        >>> local.name, local.state
        ('local', 'ok')
    """
    rows = {
        "local": _local,
        "torch": _torch,
        "torchrun": torchrun,
        "ray": ray,
        "mpi": mpi,
        "lab": _lab,
    }
    for name, look in rows.items():
        told(name)
        yield look(looking)


def _local(looking: Looking) -> Finding:
    room = available_memory()
    memory = f"{room / 1e9:.1f} GB to share" if room < 1 << 60 else ""
    command = [sys.executable, "-P", "-m", "codedgrad.engines.doctor.trial", "local"]
    return step(Finding("local", "ok", memory), command, looking.limit)


def _torch(looking: Looking) -> Finding:
    torch = EXTRAS["torch"]
    if torch.version is None:
        return Finding("torch", "missing", "not installed", torch.install)
    answer = ask_python(_TORCH, looking.limit)
    if answer.code != 0:
        return unanswered("torch", f"PyTorch {torch.version}", answer, looking)
    version, kinds = json.loads(answer.out.splitlines()[-1])
    return Finding("torch", "ok", f"PyTorch {version}; devices: {', '.join(kinds)}")


def _lab(looking: Looking) -> Finding:
    if sys.platform != "linux":
        return Finding("lab", "missing", "network namespaces are a thing of Linux")
    absent = [tool for tool in _LAB_TOOLS if not shutil.which(tool)]
    if absent:
        advice = "apt-get install iproute2 util-linux"
        return Finding("lab", "missing", f"no {', no '.join(absent)}", advice)
    if os.geteuid() != 0:
        advice = "sudo $(command -v codedgrad) doctor"
        return Finding("lab", "missing", "not run by root", advice)
    tried = ask(["unshare", "--net", "--uts", "sh", "-c", _LAB], looking.limit)
    if tried.code != 0:
        reason = f"network namespaces do not work: {tried.last}"
        return Finding("lab", "broken", reason, detail=tried.out + tried.err)
    return Finding("lab", "ok", f"root, {', '.join(_LAB_TOOLS)}: hosts can be imitated")
