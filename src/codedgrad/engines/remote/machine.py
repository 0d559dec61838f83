"""Which machine this is, for a run on several, and by which addresses it is reached."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from pathlib import Path

from codedgrad.errors import InvalidOptions

APART = "CODEDGRAD_HOSTS"
"""Set to `processes`, every process of a launcher counts as a machine of its own, so
that what happens between machines can be tried out on one."""

ANY = "::"
"""Where to listen at all interfaces, by both versions of IP."""

_SIOCGIFADDR = 0x8915  # asks the kernel for the IPv4 address of an interface
_REQUEST = struct.Struct("16s24s")
_ADDRESS = slice(20, 24)  # in the answer to it
_LOOPBACK = "127."


def machine() -> str:
    """Return what only processes of the same machine say.

    A machine is what was booted once and has one network: hosts imitated by network
    namespaces, and containers with networks of their own, are machines, too.
    """
    apart = os.environ.get(APART, "machines")
    if apart not in ("machines", "processes"):
        raise InvalidOptions(APART, f"is {apart!r}", "machines or processes")
    own = f" {os.getpid()}" if apart == "processes" else ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}{own}"
    except OSError:  # not Linux
        return f"{socket.gethostname()}{own}"


def addresses() -> dict[str, str]:
    """Return the addresses of this machine by interface, those of the loopback last.

    An interface that has an IPv4 address is listed with that, others with the IPv6
    address by which other machines reach it.
    """
    found = _ipv6()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        for _, name in socket.if_nameindex():
            request = _REQUEST.pack(name.encode()[:15], b"")
            try:
                answer = fcntl.ioctl(link.fileno(), _SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            found[name] = socket.inet_ntoa(answer[_ADDRESS])
    return dict(sorted(found.items(), key=lambda one: one[1].startswith(_LOOPBACK)))


def _ipv6() -> dict[str, str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        digits, _, _, scope, _, name = line.split()
        if scope == "00":  # of the whole network
            found[name] = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
    return found


def reachable_at(interface: str | None) -> tuple[tuple[str, ...], str]:
    """Return the addresses to tell other machines, and the one to listen at.

    Args:
        interface: The name of an interface such as `eth1`, or an address of this
            machine; None: others try all addresses, and it listens at all interfaces.

    Raises:
        InvalidOptions: If there is no such interface here.

    Example:
        >>> reachable_at("lo")
        (('127.0.0.1',), '127.0.0.1')
    """
    known = addresses()
    if interface is None:
        outer = tuple(a for a in known.values() if not a.startswith(_LOOPBACK))
        if not outer:
            return ("127.0.0.1",), "127.0.0.1"
        return outer, ANY if any(":" in address for address in outer) else ""
    address = known.get(interface, interface)
    if not _is_here(address):
        there = ", ".join(f"{name} ({where})" for name, where in known.items())
        raise InvalidOptions("interface", f"is {interface!r}", f"one of {there}")
    return (address,), address


def _is_here(address: str) -> bool:
    """Whether an address is of this machine: an interface may have several."""
    try:
        if ipaddress.ip_address(address).is_unspecified:
            return False
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as link:
            link.bind((address, 0))
    except (ValueError, OSError):
        return False
    return True
