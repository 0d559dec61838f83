"""How an engine is examined: what is asked, for how long, and what was found."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from codedgrad.engines.ask_process import Answer, ask
from codedgrad.engines.optional_libraries import EXTRAS

_REPEAT = "codedgrad doctor --try --json"  # has all that was said
_LONGER = "codedgrad doctor --try --limit 600"


@dataclass(frozen=True, slots=True)
class Finding:
    """How one engine, or what belongs to one, was found.

    Attributes:
        name: `local`, `torch`, `torchrun`, `ray`, `mpi` or `lab`.
        state: Whether it works, is not there, or is there and does not work.
        reason: In a few words.
        advice: A command that helps; empty if none is needed, or none would.
        seconds: What a step took, start and end of the engine included; None: none was
            taken.
        detail: All that was said, where something does not work.
    """

    name: str
    state: Literal["ok", "missing", "broken"]
    reason: str
    advice: str = ""
    seconds: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Looking:
    """How to look.

    Attributes:
        address: Of a Ray cluster; None: that of `RAY_ADDRESS`, if any.
        tries: Whether to take a step on every engine that is installed; else on the
            local one only.
        limit: Seconds for each question.
    """

    address: str | None = None
    tries: bool = False
    limit: float = 60.0


def ask_python(script: str, limit: float, *words: str) -> Answer:
    """Let another Python run a script; the working directory is not imported from."""
    return ask([sys.executable, "-P", "-c", script, *words], limit)


def step(
    finding: Finding,
    command: list[str],
    limit: float,
    environment: Mapping[str, str] | None = None,
) -> Finding:
    """Take a step with a command that runs `trial`, and add how it went.

    Args:
        finding: What was found before; its reason is kept.
        command: The program and its words.
        limit: Seconds.
        environment: Variables to set besides.
    """
    variables = {"RAY_USAGE_STATS_ENABLED": "0", **(environment or {})}
    answer = ask(command, limit, variables)
    result = _result(answer)
    before = f"{finding.reason}; " if finding.reason else ""
    if answer.code == 0 and "seconds" in result:
        seconds = float(str(result["seconds"]))
        workers, hosts = (int(str(result[name])) for name in ("workers", "hosts"))
        on = (
            f" on {hosts} hosts, each of which reaches all others," if hosts > 1 else ""
        )
        reason = f"{before}one exact step by {workers} workers{on} in {seconds:.1f} s"
        return Finding(finding.name, "ok", reason, finding.advice, seconds)
    problem = str(result.get("problem") or answer.last or f"exit code {answer.code}")
    advice = _REPEAT
    if answer.code is None:
        problem, advice = f"no step within {limit:g} s", _LONGER
    detail = answer.out + answer.err
    return Finding(finding.name, "broken", before + problem, advice, detail=detail)


def _result(answer: Answer) -> dict[str, object]:
    """Return what `trial` has said, among whatever the engine says."""
    for line in reversed(answer.out.splitlines()):
        if line.startswith(('{"seconds": ', '{"problem": ')):
            result: dict[str, object] = json.loads(line)
            return result
    return {}


def unanswered(name: str, what: str, answer: Answer, looking: Looking) -> Finding:
    """Return that an extra is installed and cannot be used.

    Args:
        name: Of the extra.
        what: It, with its version.
        answer: Of a process that has tried to import it.
        looking: How it was looked at.
    """
    why = answer.last or f"exit code {answer.code}"
    advice = EXTRAS[name].install.replace("install", "install --force-reinstall", 1)
    if answer.code is None:
        why, advice = f"no answer within {looking.limit:g} s", _LONGER
    detail = answer.out + answer.err
    return Finding(name, "broken", f"{what}: {why}", advice, detail=detail)
