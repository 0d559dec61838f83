"""Holds every packet of the lab for a while, then passes it on: latency.

    python relay.py DEVICE SECONDS

Makes a TAP device in the namespace it runs in, and writes back what comes out of it
when it has aged so many seconds. Prints `ready` when the device is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF = 0x400454CA
TAP, NO_INFO, WITH_HEADER = 0x0002, 0x1000, 0x4000
LONGEST = 70_000  # bytes of a packet with its header
BATCH = 64  # packets read before those that are due are written


def open_tap(name: str) -> int:
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = TAP | NO_INFO | WITH_HEADER  # the header says what is left to checksum
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    return handle


def relay(handle: int, seconds: float) -> None:
    held: deque[tuple[float, bytes]] = deque()
    while True:
        wait = None if not held else max(0.0, held[0][0] - time.monotonic())
        if select.select([handle], [], [], wait)[0]:
            take(handle, held, seconds)
        now = time.monotonic()
        while held and held[0][0] <= now:
            packet = held.popleft()[1]
            with contextlib.suppress(OSError):  # down, or full: the packet is lost
                os.write(handle, packet)


def take(handle: int, held: deque[tuple[float, bytes]], seconds: float) -> None:
    for _ in range(BATCH):
        try:
            packet = os.read(handle, LONGEST)
        except BlockingIOError:
            return
        except OSError:  # the device is down
            time.sleep(0.001)
            return
        held.append((time.monotonic() + seconds, packet))


if __name__ == "__main__":
    tap = open_tap(sys.argv[1])
    print("ready", flush=True)
    relay(tap, float(sys.argv[2]))
