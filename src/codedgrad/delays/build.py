"""Models from plain tables, as a TOML file or the command line gives them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from reprlib import repr as brief
from typing import Any, TypeAlias

from codedgrad.delays.matrix import Matrix
from codedgrad.delays.models import MODELS
from codedgrad.delays.models.chain import Chain
from codedgrad.delays.models.markov import Markov
from codedgrad.delays.models.replay import Replay
from codedgrad.delays.models.shifted_exponential import ShiftedExponential
from codedgrad.delays.times import Change, Delays
from codedgrad.errors import InvalidDelays

Table = Mapping[str, object]


def build(
    specs: Sequence[Table], read: Callable[[str], Matrix] | None = None
) -> Delays:
    """Make a law from tables: the first is a base law, the others change it.

    Each table has `kind`, a name in `MODELS`, and the fields of that model. The laws
    `fast` and `slow` of `markov` are tables of `shifted-exponential`; `replay` has
    `path` in place of `seconds`. Values are checked and copied, never executed.

    Args:
        specs: The tables.
        read: Reads the recording at the `path` of a `replay`; default `Replay.read`.

    Example:
        >>> base = {"kind": "shifted-exponential", "mean": 0.5}
        >>> print(build([base, {"kind": "jitter", "factor": 1.5}]))
        shifted exponential: floor 1 s, mean excess 0.5 s; jitter: 1.5 x slow, \
1 random worker, drawn every step
        >>> build([{"kind": "markow"}])
        Traceback (most recent call last):
        ...
        codedgrad.errors.InvalidDelays: delays: kind = 'markow' is not known; try \
'markov' of shifted-exponential, markov, replay, spikes, sticky, classes, speeds, \
jitter, pauses, dead, slow
    """
    if isinstance(specs, str | Mapping) or not isinstance(specs, Sequence) or not specs:
        problem = f"a list of tables is wanted, got {brief(specs)}"
        raise InvalidDelays("delays", problem, "[{kind = 'shifted-exponential'}]")
    factories = _FACTORIES if read is None else {**_FACTORIES, "replay": _replay(read)}
    base, *changes = (_model(spec, factories) for spec in specs)
    if not isinstance(base, Delays):
        problem = f"the first table must be a law, {base.kind} is a change"
        raise InvalidDelays("delays", problem, f"first one of {_kinds('sample')}")
    for change in changes:
        if not isinstance(change, Change):
            problem = f"only the first table may be a law, {change.kind} comes later"
            raise InvalidDelays("delays", problem, f"there one of {_kinds('change')}")
    return Chain(base, *changes) if changes else base


def _markov(fast: object, slow: object, enter: float, leave: float) -> Markov:
    return Markov(_law("fast", fast), _law("slow", slow), enter, leave)


def _replay(read: Callable[[str], Matrix]) -> Callable[..., Replay]:
    """Return how to make a `Replay` of what `read` finds at a path."""

    def replay(path: str, share: float = 1.0, order: str = "recorded") -> Replay:
        given: object = path  # a table may hold anything
        if not isinstance(given, str):
            return Replay.read(path, share, order)  # says what is wrong with it
        return Replay(read(given).seconds, share, order)

    return replay


_Factories: TypeAlias = Mapping[str, Callable[..., Any]]

_FACTORIES: _Factories = {
    Replay.kind: Replay.read,
    Markov.kind: _markov,
}
"""How to make what is not made from its own fields."""


def _model(spec: object, factories: _Factories) -> Any:
    table = _table("delays", "each model", spec)
    if "kind" not in table:
        problem = f"{brief(dict(table))} has no kind"
        raise InvalidDelays("delays", problem, f"kind = one of {', '.join(MODELS)}")
    kind = table["kind"]
    if not isinstance(kind, str) or kind not in MODELS:
        problem = f"kind = {brief(kind)} is not known"
        raise InvalidDelays("delays", problem, _nearest(kind, [*MODELS]))
    return _call(kind, factories.get(kind, MODELS[kind]), table)


def _law(name: str, spec: object) -> ShiftedExponential:
    table = _table(Markov.kind, name, spec)
    kind = ShiftedExponential.kind
    if table.get("kind", kind) != kind:
        problem = f"{name} has kind = {brief(table['kind'])}"
        raise InvalidDelays(Markov.kind, problem, f"kind = '{kind}', or no kind")
    try:
        law: ShiftedExponential = _call(kind, ShiftedExponential, table)
    except InvalidDelays as error:
        problem = f"{name}: {error.problem}"
        raise InvalidDelays(Markov.kind, problem, error.advice) from None
    return law


def _table(model: str, name: str, spec: object) -> Table:
    if not isinstance(spec, Mapping):
        problem = f"{name} must be a table, got {brief(spec)}"
        raise InvalidDelays(model, problem, "{floor = 1.0, mean = 0.2} or the like")
    return spec


def _call(kind: str, factory: Callable[..., Any], table: Table) -> Any:
    keys = inspect.signature(factory).parameters
    given = {key: value for key, value in table.items() if key != "kind"}
    for key in given:
        if key not in keys:
            problem = f"there is no key {brief(key)}"
            raise InvalidDelays(kind, problem, _nearest(key, [*keys]))
    for key, parameter in keys.items():
        if parameter.default is parameter.empty and key not in given:
            needed = [k for k, p in keys.items() if p.default is p.empty]
            problem = f"the key {key} is missing"
            raise InvalidDelays(kind, problem, f"all of {', '.join(needed)}")
    return factory(**given)


def _nearest(word: object, choices: list[str]) -> str:
    close = get_close_matches(str(word), choices, n=1)
    listed = ", ".join(choices)
    return f"'{close[0]}' of {listed}" if close else f"one of {listed}"


def _kinds(method: str) -> str:
    return ", ".join(kind for kind, model in MODELS.items() if hasattr(model, method))
