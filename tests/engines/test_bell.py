"""Bells: whoever waits is woken, and nobody who rings has to wait."""

import os
import subprocess
import sys

import msgspec

from codedgrad.engines.remote.bell import Bell, Rope

RINGER = """
import sys, msgspec
from codedgrad.engines.remote.bell import Rope
from codedgrad.engines.host.nearby import Where
rope = Rope.reach(msgspec.json.decode(sys.argv[1], type=Where))
rope.ring()
"""


def test_another_process_wakes_who_waits() -> None:
    bell = Bell()
    asked = [sys.executable, "-c", RINGER, msgspec.json.encode(bell.where).decode()]
    with subprocess.Popen(asked) as ringer:
        assert bell.wait(60.0)
    assert ringer.returncode == 0
    assert bell.was_rung()
    assert not bell.was_rung()
    bell.close()


def test_to_ring_a_thousand_times_too_often_is_harmless() -> None:
    bell = Bell()
    rope = Rope.reach(bell.where)
    assert rope is not None
    for _ in range(200_000):  # more than a pipe holds
        rope.ring()
    assert bell.was_rung()
    assert not bell.was_rung()
    rope.close()
    bell.close()


def test_to_ring_for_somebody_who_is_gone_is_harmless() -> None:
    before = os.listdir("/proc/self/fd")
    bell = Bell()
    where = bell.where
    rope = Rope.reach(where)
    assert rope is not None
    bell.close()
    bell.close()
    rope.ring()
    rope.close()
    assert Rope.reach(where) is None
    assert os.listdir("/proc/self/fd") == before


def test_a_very_short_wait_does_not_wait_for_a_ring() -> None:
    bell = Bell()
    assert not bell.wait(1e-4)
    bell.close()
