"""Synchronous distributed training that does not wait for its slowest workers."""

from importlib.metadata import version

from codedgrad import codes
from codedgrad.errors import CodedgradError

__version__ = version("codedgrad")

__all__ = ["CodedgradError", "__version__", "codes"]
