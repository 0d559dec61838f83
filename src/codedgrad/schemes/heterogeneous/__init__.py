"""Codes for workers of unequal reliability, right on average at a deadline.

`reliability_layout` keeps a layout of the parts, and a code, for what was learnt of the
workers.
"""

from codedgrad.schemes.heterogeneous.scheme import Heterogeneous, heterogeneous

__all__ = ["Heterogeneous", "heterogeneous"]
