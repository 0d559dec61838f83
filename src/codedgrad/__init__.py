"""Synchronous distributed training that does not wait for its slowest workers."""

from importlib import import_module
from importlib.metadata import version
from types import ModuleType

from codedgrad import codes
from codedgrad.errors import CodedgradError

__version__ = version("codedgrad")

_ON_DEMAND = ("delays", "engines", "schemes", "sim", "testing", "torch", "trace")

__all__ = ["CodedgradError", "__version__", "codes"]


def __getattr__(name: str) -> ModuleType:
    """Import a package when it is asked for; `codedgrad.torch` needs PyTorch."""
    if name in _ON_DEMAND:
        return import_module(f"codedgrad.{name}")
    raise AttributeError(f"module 'codedgrad' has no attribute {name!r}")
