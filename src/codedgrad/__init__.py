"""Synchronous distributed training that does not wait for its slowest workers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from codedgrad.errors import CodedgradError

if TYPE_CHECKING:
    from codedgrad import codes

    __version__: str

_ON_DEMAND = (
    "codes",
    "delays",
    "engines",
    "schemes",
    "sim",
    "testing",
    "torch",
    "trace",
)

__all__ = ["CodedgradError", "__version__", "codes"]


def __getattr__(name: str) -> Any:
    """Import a package when it is asked for; `codedgrad.torch` needs PyTorch."""
    if name in _ON_DEMAND:
        return import_module(f"codedgrad.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("codedgrad")
    raise AttributeError(f"module 'codedgrad' has no attribute {name!r}")
