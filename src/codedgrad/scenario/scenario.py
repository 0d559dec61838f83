"""What to simulate: from a TOML file, from flags, or from both.

A file and the flags of a command line end up in the same tables, which are checked in
one place, here. A flag wins over the file. Nothing that is read from a file is
executed: a Python file with a scheme may be named by a flag, and not in a scenario.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from reprlib import repr as brief

import numpy as np

from codedgrad.core import Scheme
from codedgrad.delays import MODELS, Chain, Delays, Replay, build, traces
from codedgrad.delays.arguments import LONGEST
from codedgrad.errors import (
    CodedgradError,
    InvalidCode,
    InvalidDelays,
    InvalidFolder,
    InvalidInput,
    InvalidOptions,
    InvalidScenario,
    InvalidScheme,
    InvalidTrace,
)
from codedgrad.scenario.delays_text import PATHS, table_of
from codedgrad.scenario.network_text import network_of, network_table
from codedgrad.scenario.times import (
    ReadTimes,
    TimesToReplay,
    read_recording,
    with_share,
)
from codedgrad.schemes import build as build_scheme
from codedgrad.schemes import families
from codedgrad.schemes.registry import find, options, parse
from codedgrad.sim.machine import Machine

DEFAULT_SCHEMES = ("uncoded", "fractional(tolerance=1)", "cyclic(tolerance=1)")
DEFAULT_LAW = "shifted-exponential(floor=1, mean=0.1)"
DEFAULT_WORKERS = 8
DEFAULT_STEPS = 1000

_KEYS = (
    "title", "workers", "steps", "runs", "seed", "pieces", "machine", "schemes",
    "delays",
)  # fmt: skip
_MACHINE = ("drain", "progress", "latency", "network")
_MOST = 20_000_000  # of anything; workers x steps and steps x runs too: about 1 GB
_MOST_WORKERS = 10_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """A comparison, ready to be run.

    Attributes:
        workers: How many.
        steps: In a run.
        runs: Independent ones.
        seed: Of the delays.
        schemes: To compare; the first is what the others are compared with.
        delays: How long workers take.
        machine: What the simulated engine can do.
        title: For people.
        notes: What was assumed because nobody said it, in sentences.
    """

    workers: int
    steps: int
    runs: int
    seed: int
    schemes: tuple[Scheme, ...]
    delays: Delays
    machine: Machine
    title: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What a command line says; None where it says nothing.

    Attributes:
        workers: As in `Scenario`, and so are `steps`, `runs` and `seed`.
        schemes: In words, such as `cyclic(tolerance=2)`.
        delays: In words, such as `sticky(factor=10, workers=0, always=true)`, or as
            tables.
        share: Of a recorded time, that which grows with the load.
        pieces: Parts for each worker, for schemes that do not say.
        drain: As in `Machine`, and so is `latency`.
        network: In words, such as `port=0.1, latency=0.05`.
    """

    workers: int | None = None
    steps: int | None = None
    runs: int | None = None
    seed: int | None = None
    schemes: Sequence[str] = ()
    delays: Sequence[str | Mapping[str, object]] = ()
    share: float | None = None
    pieces: int | None = None
    drain: bool | None = None
    latency: float | None = None
    network: str | None = None


def read_scenario(path: Path | str) -> Scenario:
    """Read a scenario from a TOML file.

    Args:
        path: The file; recordings it names are looked for next to it.

    Raises:
        InvalidScenario: With the file, the key, what is wrong and what would be right.
    """
    return scenario_from_flags(Flags(), path)


def scenario_from_flags(
    flags: Flags, path: Path | str | None = None, read: ReadTimes = read_recording
) -> Scenario:
    """Return the scenario of a command line.

    Args:
        flags: What it says.
        path: A TOML file for everything else.
        read: Reads the times at a path; default recordings only.

    Example:
        >>> scenario_from_flags(Flags(delays=["AR"], schemes=["uncoded"])).steps
        44
    """
    file = None if path is None else Path(path)
    given = _Given({} if file is None else _load(file), file, read)
    for key in ("workers", "steps", "runs", "seed", "pieces"):
        given.override(key, getattr(flags, key))
    given.override("schemes", list(flags.schemes) or None)
    given.override("delays", list(flags.delays) or None)
    machine: dict[str, object] = {"drain": flags.drain, "latency": flags.latency}
    said = {key: value for key, value in machine.items() if value is not None}
    if flags.network is not None:
        said["network"] = network_table(flags.network)
    given.override_in("machine", said)
    return _scenario(given, flags.share)


@dataclass
class _Given:
    """Tables as they came, and where each key came from."""

    tables: dict[str, object]
    file: Path | None
    read: ReadTimes
    flags: set[str] = field(default_factory=set)
    replayed: dict[str, TimesToReplay] = field(default_factory=dict)  # by path

    def override(self, key: str, value: object) -> None:
        if value is not None:
            self.tables[key] = value
            self.flags.add(key)

    def override_in(self, key: str, values: Mapping[str, object]) -> None:
        table = self.tables.get(key, {})
        if values and isinstance(table, dict):
            self.tables[key] = {**table, **values}
            self.flags |= {f"{key}.{name}" for name in values}

    def has_latency(self) -> bool:
        """Whether a latency, or a network that has one, was given."""
        table = self.tables.get("machine", {})
        return not isinstance(table, Mapping) or bool(
            {"latency", "network"} & set(table)
        )

    def place(self, key: str) -> str:
        """Return how to name a key to whoever wrote it."""
        if key in self.flags or self.file is None:
            return f"--{key.rpartition('.')[2]}"
        return f"{self.file}: {key}"

    def is_from_file(self, key: str) -> bool:
        return self.file is not None and key not in self.flags

    def wrong(self, key: str, problem: str, advice: str) -> InvalidInput:
        kind = InvalidScenario if self.is_from_file(key) else InvalidOptions
        return kind(self.place(key), problem, advice)

    def entries(self, key: str) -> list[object]:
        value = self.tables[key]
        if isinstance(value, Mapping):
            advice = f"[[{key}]], in double brackets"
            raise self.wrong(key, "is one table, a list is wanted", advice)
        if not isinstance(value, list):
            problem = f"must be a list of tables, got {brief(value)}"
            raise self.wrong(key, problem, f"[[{key}]]")
        if not value:
            raise self.wrong(key, "is empty", f"one [[{key}]] at least")
        return value

    def whole(self, key: str, default: int, least: int, most: int = _MOST) -> int:
        value = self.tables.get(key, default)
        advice = f"a whole number from {least} to {most}"
        if isinstance(value, bool) or not isinstance(value, int):
            problem = f"must be a whole number, got {brief(value)}"
            raise self.wrong(key, problem, advice)
        if not least <= value <= most:
            raise self.wrong(key, f"is {brief(value)}", advice)
        return value


def _load(path: Path) -> dict[str, object]:
    advice = "the path of a scenario in TOML"
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise InvalidScenario(str(path), problem, advice) from None
    except UnicodeDecodeError:
        raise InvalidScenario(str(path), "is not a text in UTF-8", advice) from None
    except RecursionError:
        raise InvalidScenario(str(path), "is nested too deeply", advice) from None
    except ValueError as error:  # not TOML, or a number of thousands of digits
        problem = f"is not TOML: {' '.join(str(error).split())}"
        raise InvalidScenario(str(path), problem, "mending that place") from None
    _known(str(path), tables, _KEYS)
    return tables


def _known(place: str, table: Mapping[str, object], keys: Sequence[str]) -> None:
    for key in table:
        if key not in keys:
            close = get_close_matches(key, keys, n=1)
            listed = ", ".join(keys)
            advice = f"{close[0]!r} of {listed}" if close else f"one of {listed}"
            raise InvalidScenario(place, f"there is no key {brief(key)}", advice)


def _scenario(given: _Given, share: float | None) -> Scenario:
    notes: list[str] = []
    delays = _delays(given, share, notes)
    recorded = delays.base if isinstance(delays, Chain) else delays
    rows, columns = (
        recorded.seconds.shape
        if isinstance(recorded, Replay)
        else (DEFAULT_STEPS, DEFAULT_WORKERS)
    )
    workers = given.whole("workers", columns, 1, _MOST_WORKERS)
    steps = given.whole("steps", rows, least=1)
    runs = given.whole("runs", 1, least=1)
    if isinstance(delays, Replay) and delays.order == "recorded":
        advice = f"{rows} steps and 1 run, or order=shuffled to draw rows at random"
        if steps > rows or runs > 1:  # the same once more would look like evidence
            problem = f"{steps} x {runs} asked for, {rows} x 1 were recorded"
            raise given.wrong("steps" if steps > rows else "runs", problem, advice)
    for key, count in (("workers", workers), ("runs", runs)):
        if steps * count > _MOST:
            problem = f"{steps} steps x {count} {key} are too many for memory"
            advice = f"{_MOST // count} steps at most"
            raise given.wrong("steps", problem, advice)
    try:  # one step shows whether they fit so many workers
        delays.sample(np.random.default_rng(0), 1, workers)
    except InvalidDelays as error:
        raise _placed(given, "delays", error) from None
    title = given.tables.get("title", "")
    if not isinstance(title, str):
        raise given.wrong("title", f"must be a text, got {brief(title)}", '"a text"')
    return Scenario(
        workers=workers,
        steps=steps,
        runs=runs,
        seed=given.whole("seed", 0, 0, 2**63 - 1),
        schemes=_schemes(given, workers, notes),
        delays=delays,
        machine=_machine(given),
        title=" ".join("".join(c if c.isprintable() else " " for c in title).split()),
        notes=tuple(notes),
    )


def _machine(given: _Given) -> Machine:
    table = given.tables.get("machine", {})
    if not isinstance(table, Mapping):
        problem = f"must be a table, got {brief(table)}"
        raise given.wrong("machine", problem, "[machine]")
    _known(f"{given.file}: machine", table, _MACHINE)
    for key in ("drain", "progress"):
        if not isinstance(table.get(key, True), bool):
            problem = f"must be true or false, got {brief(table[key])}"
            raise given.wrong(f"machine.{key}", problem, "true")
    latency = table.get("latency", 0.0)
    number = isinstance(latency, int | float) and not isinstance(latency, bool)
    if not (number and 0 <= latency <= LONGEST):
        problem = f"is {brief(latency)}"
        advice = f"seconds from 0 to {LONGEST:.7g}"
        raise given.wrong("machine.latency", problem, advice)
    network = table.get("network")
    if network is None:
        return Machine(**table)
    if not isinstance(network, Mapping):
        problem = f"must be a table, got {brief(network)}"
        raise given.wrong("machine.network", problem, "{port = 0.1}")
    return Machine(**{**table, "network": network_of(network)})


# -- schemes -------------------------------------------------------------------------


def _schemes(given: _Given, workers: int, notes: list[str]) -> tuple[Scheme, ...]:
    pieces = None
    if "pieces" in given.tables:
        pieces = given.whole("pieces", 1, 1, 1000)
    if "schemes" not in given.tables:
        if given.file is not None:
            raise given.wrong("schemes", "is missing", "one [[schemes]] at least")
        used = [times.scheme for times in given.replayed.values() if times.scheme]
        return _default_schemes(workers, pieces, used, notes)
    typed = not given.is_from_file("schemes")  # by a person, on the command line
    made = []
    for number, entry in enumerate(given.entries("schemes"), start=1):
        try:
            made.append(_scheme(entry, workers, pieces, run_files=typed))
        except CodedgradError as error:
            raise _placed(given, "schemes", error, number) from None
    return tuple(made)


def _default_schemes(
    workers: int, pieces: int | None, used: Sequence[str], notes: list[str]
) -> tuple[Scheme, ...]:
    """Return the default schemes, and those that the times were taken with."""
    made: list[Scheme] = []
    for text in (*DEFAULT_SCHEMES, *used):
        try:
            scheme = _scheme(text, workers, pieces)
        except (InvalidCode, InvalidScheme) as error:
            notes.append(f"{text} is left out: {_why_left_out(text, workers, error)}.")
            continue
        if scheme.name not in [other.name for other in made]:
            made.append(scheme)
    return tuple(made)


def _why_left_out(text: str, workers: int, error: InvalidCode | InvalidScheme) -> str:
    if isinstance(error, InvalidCode):
        return f"it does not fit {workers} workers"
    name = text.partition("(")[0].strip()
    if name in families():
        return error.problem
    # A run keeps the name of its scheme, not the file that the scheme came from.
    return (
        f"no scheme {name} is registered here; compare it with --scheme uncoded "
        f"--scheme FILE.py:NAME, or install the package that registers it"
    )


def _scheme(
    entry: object, workers: int, pieces: int | None, run_files: bool = False
) -> Scheme:
    advice = '{scheme = "cyclic(tolerance=2)"}, or {name = "cyclic", tolerance = 2}'
    table = {"scheme": entry} if isinstance(entry, str) else entry
    if not isinstance(table, Mapping):
        raise InvalidScheme(f"{brief(entry)} is not a table", advice)
    apart = {key: v for key, v in table.items() if key not in ("scheme", "name")}
    if len(table) - len(apart) != 1:
        raise InvalidScheme("either scheme or name is wanted", advice)
    text = table.get("scheme", table.get("name"))
    if not isinstance(text, str):
        raise InvalidScheme(f"{brief(text)} is not the name of a scheme", advice)
    known = families(run_files=run_files)
    name, inside = parse(text, known)
    if twice := inside.keys() & apart.keys():
        key = min(twice)
        raise InvalidScheme(f"{name}: {key} is given twice", f"one {key}")
    said = {**inside, **apart}
    takes_pieces = "pieces" in options(find(name, known)) and "parts" not in said
    if pieces is not None and takes_pieces:
        said.setdefault("pieces", pieces)
    return build_scheme(name, workers, said, run_files=run_files)


# -- delays --------------------------------------------------------------------------


def _delays(given: _Given, share: float | None, notes: list[str]) -> Delays:
    if "delays" not in given.tables:
        if given.file is not None:
            raise given.wrong("delays", "is missing", "one [[delays]] at least")
        notes.append(f"No delays were given: {DEFAULT_LAW} is assumed.")
        given.tables["delays"] = [DEFAULT_LAW]
    entries = given.entries("delays")
    try:
        tables = [_table(given, entry) for entry in entries]
        if "delays" in given.flags and is_change(tables[0]):
            changed = f"{tables[0]['kind']} changes a law and none was given"
            notes.append(f"{changed}: {DEFAULT_LAW} is assumed.")
            tables.insert(0, table_of(DEFAULT_LAW))
        _put_share(tables, share, given)
        tables = [with_share(table, given.replayed, given.read) for table in tables]
        for path, times in given.replayed.items():
            notes += [f"The times are those of {path}.", *times.notes]
            if times.latency and not given.has_latency():
                given.override_in("machine", {"latency": times.latency})
        return build(tables, read=lambda path: given.replayed[path].matrix)
    except (InvalidDelays, InvalidFolder, InvalidOptions, InvalidTrace) as error:
        raise _placed(given, "delays", error) from None


def _table(given: _Given, entry: object) -> dict[str, object]:
    table = table_of(entry) if isinstance(entry, str) else entry
    if not isinstance(table, Mapping):
        problem = f"{brief(entry)} is not a table"
        raise InvalidDelays("delays", problem, '{kind = "shifted-exponential"}')
    path = table.get("path")
    if given.is_from_file("delays") and isinstance(path, str) and path not in traces():
        assert given.file is not None
        return {**table, "path": str(given.file.parent / path)}
    return dict(table)


def is_change(table: Mapping[str, object]) -> bool:
    """Whether a table of delays changes a law, and is none."""
    return hasattr(MODELS.get(str(table.get("kind"))), "change")


def _put_share(
    tables: list[dict[str, object]], share: float | None, given: _Given
) -> None:
    """Give recordings the share of `--share`; it wins over a file."""
    if share is None:
        return
    recorded = [table for table in tables if table.get("kind") == "replay"]
    if not recorded:
        problem = "there is no recording that it could be about"
        raise InvalidOptions("--share", problem, "--delays AR, or a file of your own")
    for table in recorded:
        if "share" in table and not given.is_from_file("delays"):
            raise InvalidOptions("--share", "is given twice", "one share")
        table["share"] = share


def _placed(
    given: _Given, key: str, error: CodedgradError, number: int | None = None
) -> CodedgradError:
    """Say in which file, and where in it; a flag speaks for itself."""
    if not given.is_from_file(key):
        return error
    place = key if number is None else f"{key}[{number}]"
    problem, _, advice = str(error).removeprefix(f"{key}: ").partition("; try ")
    return InvalidScenario(f"{given.file}: {place}", problem, advice or PATHS)
