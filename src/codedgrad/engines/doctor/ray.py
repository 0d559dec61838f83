"""Does Ray work here: installed, a cluster that answers, a step on it."""

from __future__ import annotations

import json
import os
import sys

from codedgrad.engines.ask_process import Answer
from codedgrad.engines.doctor.examination import Finding, Looking, ask_python, step
from codedgrad.engines.optional_libraries import EXTRAS
from codedgrad.engines.ray.address import JOIN, is_refused, knock, to_try

_CLUSTER = f"""{JOIN}
import json
hosts = sum(node["Alive"] for node in ray.nodes())
print(json.dumps([hosts, ray.cluster_resources().get("CPU", 0)]))
"""


def ray(looking: Looking) -> Finding:
    """Look at Ray; a cluster is started only with `looking.tries`."""
    python = EXTRAS["ray"]
    if python.version is None:
        return Finding("ray", "missing", "not installed", python.install)
    address = looking.address or os.environ.get("RAY_ADDRESS") or "local"
    found = Finding("ray", "ok", f"Ray {python.version}")
    if address != "local":
        found = _cluster(found, address, looking)
    elif not looking.tries:
        reason = f"{found.reason} is installed; no cluster was looked for"
        return Finding("ray", "ok", reason, "codedgrad doctor --try")
    if not looking.tries or found.state != "ok":
        return found
    trial = [
        sys.executable,
        "-P",
        "-m",
        "codedgrad.engines.doctor.trial",
        "ray",
        address,
    ]
    return step(found, trial, looking.limit)


def _cluster(found: Finding, address: str, looking: Looking) -> Finding:
    advice = "ray start --head" if address == "auto" else f"ray status -a {address}"
    problem = knock(address)
    answer = Answer(1, "", problem)
    if not problem:
        answer = ask_python(_CLUSTER, looking.limit, address)
        advice = to_try(advice, answer)
    if answer.code == 0:
        hosts, cores = json.loads(answer.out.splitlines()[-1])
        reason = f"{found.reason}; {address}: hosts {hosts}, CPUs {cores:g}"
        return Finding("ray", "ok", reason)
    why = answer.last if answer.code else f"no answer within {looking.limit:g} s"
    if is_refused(answer):
        why = "it wants a token, and got none or another"
    reason = f"{found.reason}; no cluster at {address}: {why}"
    return Finding("ray", "broken", reason, advice, detail=answer.out + answer.err)
