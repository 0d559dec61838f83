"""Engines by their names: one word in a script says where workers are."""

from __future__ import annotations

from importlib import import_module

from codedgrad.engines.engine import Engine
from codedgrad.errors import InvalidOptions

_ENGINES = {
    "local": ("local", "Local"),
    "ray": ("ray.engine", "Ray"),
    "mpi": ("mpi.engine", "Mpi"),
    "here": ("here", "Here"),
}  # module and class, by name

NAMES = tuple(_ENGINES)
"""Processes of this machine; a Ray cluster; ranks of MPI; this process alone."""


def engine_named(name: str, address: str | None = None) -> Engine:
    """Return a new engine.

    Args:
        name: One of `NAMES`.
        address: Of a Ray cluster that is there, such as "auto" or "10.0.0.1:6379";
            "local": Ray starts one of its own, on this machine; None: the one that
            `RAY_ADDRESS` names, or else "local". Others have none.

    Raises:
        InvalidOptions: If there is no such engine, or it has no address.
        EngineFailed: If what it needs is not installed.

    Example:
        >>> engine_named("here").name
        'here'
        >>> engine_named("dask")
        Traceback (most recent call last):
        ...
        codedgrad.errors.InvalidOptions: engine: is 'dask'; try one of 'local', ...
    """
    if name not in NAMES:
        known = ", ".join(repr(known) for known in NAMES)
        raise InvalidOptions("engine", f"is {name!r}", f"one of {known}")
    if address is not None and name != "ray":
        problem = f"is {address!r}, but engine={name!r} has none"
        raise InvalidOptions("address", problem, 'engine="ray"')
    module, kind = _ENGINES[name]  # imported only now: Ray and MPI may not be installed
    made = getattr(import_module(f"codedgrad.engines.{module}"), kind)
    engine: Engine = made(address) if name == "ray" else made()
    return engine


def engine_of(engine: Engine | str, address: str | None = None) -> Engine:
    """Return an engine that may have been named only.

    Args:
        engine: An engine, or the name of one.
        address: As in `engine_named`; an engine that is made has its own.

    Raises:
        InvalidOptions: If there is no such engine, or it has no address.
        EngineFailed: If what it needs is not installed.

    Example:
        >>> made = engine_of("here")
        >>> engine_of(made) is made
        True
    """
    if isinstance(engine, str):
        return engine_named(engine, address)
    if address is not None:
        problem = f"is {address!r}, but the engine is made already"
        raise InvalidOptions("address", problem, 'engine="ray"')
    return engine
