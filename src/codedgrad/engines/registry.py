"""Engines by their names: one word in a script says where workers are."""

from __future__ import annotations

import logging
import os
from importlib import import_module

from codedgrad.engines.engine import Attends, Engine
from codedgrad.errors import InvalidOptions

_log = logging.getLogger("codedgrad")
_ENGINES = {
    "local": ("local", "Local"),
    "ray": ("ray.engine", "Ray"),
    "mpi": ("mpi.engine", "Mpi"),
    "torchrun": ("torchrun.engine", "Torchrun"),
    "here": ("here", "Here"),
}  # module and class, by name

NAMES = tuple(_ENGINES)
"""Processes of this machine, of a Ray cluster, of an MPI job, of torchrun; this one."""


def engine_named(
    name: str, address: str | None = None, threads: int | str = "auto"
) -> Engine:
    """Return a new engine.

    Args:
        name: One of `NAMES`.
        address: Of a Ray cluster that is there, such as "auto" or "10.0.0.1:6379";
            "local": Ray starts one of its own, on this machine; None: the one that
            `RAY_ADDRESS` names, or else "local". Others have none.
        threads: That every worker computes with; "auto": the cores of its machine, or
            its share of Ray's, divided by the workers there.

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
    if name == "here":
        if threads != "auto":
            problem = f"is {threads!r}, but engine='here' computes in this process"
            raise InvalidOptions("threads", problem, "torch.set_num_threads")
        return made()  # type: ignore[no-any-return]
    engine: Engine = (
        made(address, threads=threads) if name == "ray" else made(threads=threads)
    )
    return engine


def engine_of(
    engine: Engine | str, address: str | None = None, threads: int | str = "auto"
) -> Engine:
    """Return an engine that may have been named only.

    In a process of torchrun's that is not the root this does not return: it serves.

    Args:
        engine: An engine, or the name of one.
        address: As in `engine_named`; an engine that is made has its own.
        threads: As in `engine_named`; likewise.

    Raises:
        InvalidOptions: If there is no such engine, or it has no address.
        EngineFailed: If what it needs is not installed.

    Example:
        >>> made = engine_of("here")
        >>> engine_of(made) is made
        True
    """
    if isinstance(engine, type):
        name = engine.__name__
        raise InvalidOptions("engine", f"is the class {name}", f"{name}()")
    if isinstance(engine, str):
        _warn_of_torchrun(engine)
        engine = engine_named(engine, address, threads)
    elif address is not None:
        problem = f"is {address!r}, but the engine is made already"
        raise InvalidOptions("address", problem, 'engine="ray"')
    elif threads != "auto":
        problem = f"is {threads!r}, but the engine is made already"
        raise InvalidOptions("threads", problem, "Local(threads=...)")
    if isinstance(engine, Attends):
        engine.attend()
    return engine


def _warn_of_torchrun(engine: str) -> None:
    """Say so if torchrun runs several processes of a script that does not use them."""
    size, rank = (os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK"))
    is_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if engine == "local" and is_torchrun and size != "1" and rank == "0":
        _log.warning(
            "torchrun has started %s processes, and each of them trains by itself; "
            'engine="torchrun" lets them train together', size,
        )  # fmt: skip
