"""A link between two networks that delays and loses packets, where the kernel has no netem: `python relay.py A B
DELAY_S LOSS MTU ADDRESS ADDRESS` joins the networks of the processes A and B by two TUN devices.

The devices end with this process.
"""

import contextlib
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_MOST_WAITING = 4096  # packets in each direction; a link drops what its queue cannot hold


def device(name: str, network_of: str, address: str, mtu: str) -> int:
    """Makes a TUN device, and gives it to the network of a process. Returns its descriptor."""
    made = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(made, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    subprocess.run(["ip", "link", "set", name, "mtu", mtu, "netns", network_of], check=True)
    inside = ["nsenter", "--target", network_of, "--net", "--", "ip"]
    subprocess.run([*inside, "link", "set", name, "name", "eth0"], check=True)
    subprocess.run([*inside, "address", "add", f"{address}/24", "dev", "eth0"], check=True)
    subprocess.run([*inside, "link", "set", "eth0", "up"], check=True)
    return made


def relay(ends: tuple[int, int], delay_s: float, loss: float) -> None:
    """Passes packets until the process is killed."""
    chance = random.Random(1)
    waiting: dict[int, deque[tuple[float, bytes]]] = {end: deque() for end in ends}  # by the end that they leave from
    other = dict(zip(ends, reversed(ends), strict=True))
    while True:
        due = min((queue[0][0] for queue in waiting.values() if queue), default=None)
        ready, _, _ = select.select(ends, [], [], None if due is None else max(0.0, due - time.monotonic()))
        for end in ready:
            while True:
                try:
                    packet = os.read(end, 1 << 16)
                except BlockingIOError:
                    break
                queue = waiting[other[end]]
                if chance.random() >= loss and len(queue) < _MOST_WAITING:
                    queue.append((time.monotonic() + delay_s, packet))
        now = time.monotonic()
        for end, queue in waiting.items():
            while queue and queue[0][0] <= now:
                os.write(end, queue.popleft()[1])


def main() -> None:
    one, two, delay, loss, mtu, *addresses = sys.argv[1:]
    with contextlib.suppress(OSError):  # a link does not wait for a core behind ranks that poll
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    Path("/proc/self/timerslack_ns").write_text("1")  # sleeps end 50 us late otherwise
    ends = device("one", one, addresses[0], mtu), device("two", two, addresses[1], mtu)
    print("ready", flush=True)
    relay(ends, float(delay), float(loss))


if __name__ == "__main__":
    main()
