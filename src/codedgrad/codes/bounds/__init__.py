"""Closed forms and lower bounds to judge codes, trees and schemes by.

`codes`: the error of any code. `tree_loads`, `tree_times`: load, failures and seconds
of trees and rings; a star is a tree of one layer. `clairvoyant`, `ring`: how soon a
step could end for a scheme that knew all times beforehand.
"""

from codedgrad.codes.bounds.clairvoyant import clairvoyant, clairvoyant_whole
from codedgrad.codes.bounds.codes import shrink, unbiased_error
from codedgrad.codes.bounds.ring import ring_bound
from codedgrad.codes.bounds.tree_loads import (
    relay_load,
    star_failure,
    tree_failure,
    tree_load,
)
from codedgrad.codes.bounds.tree_times import (
    latency_to_beat_ring,
    message_to_beat_ring,
    ring_seconds,
    tree_compute,
    tree_receive,
    tree_seconds,
)

__all__ = [
    "clairvoyant",
    "clairvoyant_whole",
    "latency_to_beat_ring",
    "message_to_beat_ring",
    "relay_load",
    "ring_bound",
    "ring_seconds",
    "shrink",
    "star_failure",
    "tree_compute",
    "tree_failure",
    "tree_load",
    "tree_receive",
    "tree_seconds",
    "unbiased_error",
]
