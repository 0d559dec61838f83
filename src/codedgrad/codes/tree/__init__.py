"""Trees of workers with a small code at every parent: shape, and parts per worker."""

from codedgrad.codes.tree.allocation import (
    Allocation,
    Row,
    allocate,
    base_size,
    fewest_parts,
)
from codedgrad.codes.tree.shape import ROOT, Tree, delivers_each

__all__ = [
    "ROOT",
    "Allocation",
    "Row",
    "Tree",
    "allocate",
    "base_size",
    "delivers_each",
    "fewest_parts",
]
