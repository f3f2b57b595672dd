"""The connections between rank 0 and the other ranks: a Unix socket within a host, TCP between hosts.

Rank 0 listens until all have come. A random key, which ranks share through MPI, keeps strangers out.
"""

import contextlib
import fcntl
import hmac
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from linkscope.run.process import patient_s

_CONNECT_LIMIT_S = 5.0  # for one address
_GREETING_LIMIT_S = 2.0  # anybody in the network can connect, and say nothing
_LONGEST_GREETING = 128
_POLL_EVERY_S = 0.2
_SIOCGIFADDR = 0x8915
# A host that vanishes closes nothing. The kernel gives it up after 20 s.
_GIVE_UP = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_UNANSWERED_MS = 20_000


class CannotReach(Exception):
    """No address of another host answers; the message has each address with its reason."""


class NobodyCame(Exception):
    """A rank did not come in time. `rank`: its number."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"rank {rank} did not come")
        self.rank = rank


def own_network() -> str:
    """Returns a name for what processes must have in common to meet by Unix sockets: a kernel and its network."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}-{os.stat('/proc/self/ns/net').st_ino}"


def own_addresses() -> list[str]:
    """Returns the IP addresses by which other hosts may reach this one: IPv4 first, without those of loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                asked = struct.pack("256s", name.encode()[:15])
                found.append(socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, asked)[20:24]))
    with contextlib.suppress(OSError):  # a kernel without IPv6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            address, _, _, scope, *_ = line.split()
            if scope == "00":  # reachable from elsewhere
                found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address)))
    return [address for address in found if not address.startswith("127.")]


def own_tcp_counts() -> dict[str, int]:
    """Returns the segments of TCP that this host has `sent`, and `sent_again`; {} where the kernel does not say."""
    try:
        lines = Path("/proc/net/snmp").read_text().splitlines()
    except OSError:
        return {}
    names, values = (line.split()[1:] for line in lines if line.startswith("Tcp:"))
    counts = dict(zip(names, map(int, values), strict=True))
    return {"sent": counts["OutSegs"], "sent_again": counts["RetransSegs"]}


class Listener:
    """Rank 0's end until all other ranks have come. `far`: whether some of them are on other hosts."""

    def __init__(self, key: str, *, far: bool) -> None:
        self._key = key
        self._near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._near.bind(_name(key))
        self._near.listen(256)
        self._far = _port_for_all() if far else None

    @property
    def port(self) -> int:
        """The port for ranks on other hosts; 0 if there are none."""
        return int(self._far.getsockname()[1]) if self._far else 0

    def come(self, ranks: Collection[int], limit_s: float, stop_asked: Callable[[], bool]) -> dict[int, socket.socket]:
        """Waits for these ranks, and closes the port. Raises NobodyCame after the limit or a stop."""
        links: dict[int, socket.socket] = {}
        deadline = time.monotonic() + limit_s
        sockets = [one for one in (self._near, self._far) if one]
        try:
            while missing := set(ranks) - set(links):
                ready, _, _ = select.select(sockets, [], [], _POLL_EVERY_S)
                for one in ready:
                    link, _ = one.accept()
                    number = self._greeted(link)
                    if number in missing:
                        links[number] = _lasting(link)
                    else:
                        link.close()
                if not ready and (stop_asked() or time.monotonic() > deadline):
                    raise NobodyCame(min(missing))
        finally:
            for one in sockets:
                one.close()
        return links

    def _greeted(self, link: socket.socket) -> int:
        """Returns the rank that has come; -1 for a stranger."""
        link.settimeout(patient_s(_GREETING_LIMIT_S))
        text = b""
        with contextlib.suppress(OSError):
            while not text.endswith(b"\n") and len(text) < _LONGEST_GREETING:
                if not (data := link.recv(1)):
                    break
                text += data
        key, _, number = text.decode(errors="replace").strip().partition(" ")
        return int(number) if hmac.compare_digest(key.encode(), self._key.encode()) and number.isdigit() else -1


def connect(key: str, number: int, addresses: Sequence[str], port: int) -> socket.socket:
    """Returns rank `number`'s connection to rank 0: by TCP to the first of the `addresses` that answers, or without
    addresses within this host. Raises CannotReach."""
    reasons = []
    for address in addresses:
        try:
            link = socket.create_connection((address, port), _CONNECT_LIMIT_S)
        except OSError as problem:
            reasons.append(f"{address}: {problem.strerror or problem}")
            continue
        return _greeting(link, key, number)
    if addresses:
        raise CannotReach(", ".join(reasons))
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(_name(key))
    except OSError as problem:
        link.close()
        raise CannotReach(problem.strerror) from None
    return _greeting(link, key, number)


def _greeting(link: socket.socket, key: str, number: int) -> socket.socket:
    link.sendall(f"{key} {number}\n".encode())
    return _lasting(link)


def _lasting(link: socket.socket) -> socket.socket:
    """Returns the connection without a limit for single messages, but with one for a host that vanishes."""
    link.settimeout(None)
    if link.family != socket.AF_UNIX:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)
        for option, value in _GIVE_UP:
            link.setsockopt(socket.IPPROTO_TCP, option, value)
    return link


def _name(key: str) -> str:
    return f"\0linkscope-{key}"


def _port_for_all() -> socket.socket:
    try:
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
    except (OSError, ValueError):  # a kernel without IPv6
        return socket.create_server(("", 0), backlog=256)
