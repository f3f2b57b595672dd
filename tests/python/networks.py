"""Several hosts on this machine: each is a process that holds a network and a host name, and ends with the test.

The hosts hang on one switch, which is another such process. Nothing is visible outside, and nothing stays: the kernel
removes a network, with its devices, when its last process ends.
"""

import contextlib
import functools
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_RELAY = Path(__file__).with_name("relay.py")
_PROGRAMS = ("ip", "tc", "unshare", "nsenter", "setpriv")


@functools.cache
def why_no_hosts() -> str:
    """Why this machine cannot have several hosts; '' if it can."""
    if missing := [name for name in _PROGRAMS if not shutil.which(name)]:
        return f"{missing[0]} is missing (Debian: iproute2, util-linux)"
    devices = "ip link add port type veth peer name other && ip link add switch type bridge"
    done = subprocess.run(["unshare", "--net", "--uts", "sh", "-c", devices], capture_output=True, text=True)
    return f"the kernel refuses networks: {done.stderr.strip()}" if done.returncode else ""


needs_hosts = pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts() or "there are hosts")


@dataclass(frozen=True)
class Host:
    """A host. `holder`: the process that holds its network and its name. `ahead_s`: how far its monotonic clock is
    ahead of this machine's."""

    name: str
    address: str
    holder: subprocess.Popen[str]
    ahead_s: int = 0

    @property
    def enter(self) -> list[str]:
        """The words before a command that runs on it."""
        clock = ["unshare", "--time", "--monotonic", str(self.ahead_s), "--fork", "--kill-child", "--"]
        inside = ["nsenter", "--target", str(self.holder.pid), "--net", "--uts", "--"]
        return [*inside, *(clock if self.ahead_s else [])]

    def run(self, *words: str) -> str:
        """Runs a command on it; returns the command's output."""
        return subprocess.run([*self.enter, *words], check=True, capture_output=True, text=True).stdout


def _host(name: str, address: str) -> Host:
    say = f"hostname {name} && ip link set lo up && echo ready && exec sleep infinity"
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "sh", "-c", say],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
    return Host(name, address, holder)


def _switch(name: str) -> Host:
    made = _host(name, "")
    made.run("ip", "link", "add", "switch", "type", "bridge")
    made.run("ip", "link", "set", "switch", "up")
    return made


def _attach(switch: Host, host: Host, number: int, shape: Sequence[str]) -> None:
    port = f"port{number}"
    switch.run(*f"ip link add {port} type veth peer name eth0 netns {host.holder.pid}".split())
    switch.run(*f"ip link set {port} master switch up".split())
    host.run(*f"ip address add {host.address}/24 dev eth0".split())
    host.run("ip", "link", "set", "eth0", "up")
    if shape:
        host.run("tc", "qdisc", "add", "dev", "eth0", "root", *shape)


@contextlib.contextmanager
def hosts(count: int, *shape: str) -> Iterator[list[Host]]:
    """Hosts `node0`, `node1`, … on a switch. `shape`: the words of tc for what leaves each host, such as 'tbf', 'rate',
    '1gbit'."""
    everything = []
    try:
        switch = _switch("switch")
        everything.append(switch)
        for number in range(count):
            host = _host(f"node{number}", f"10.77.0.{number + 1}")
            everything.append(host)
            _attach(switch, host, number, shape)
        yield everything[1:]
    finally:
        _end(everything)


@contextlib.contextmanager
def hosts_on_two_switches(count: int, *shape: str) -> Iterator[list[Host]]:
    """Hosts of which each half has a switch. `shape`: of the one link between the switches, in both directions."""
    everything = []
    try:
        switches = [_switch("left"), _switch("right")]
        everything += switches
        switches[0].run(*f"ip link add uplink type veth peer name uplink netns {switches[1].holder.pid}".split())
        for switch in switches:
            switch.run("ip", "link", "set", "uplink", "master", "switch", "up")
            switch.run("tc", "qdisc", "add", "dev", "uplink", "root", *shape)
        for number in range(count):
            host = _host(f"node{number}", f"10.77.0.{number + 1}")
            everything.append(host)
            _attach(switches[2 * number // count], host, number, ())
        yield everything[2:]
    finally:
        _end(everything)


def _end(everything: Sequence[Host]) -> None:
    for one in everything:
        one.holder.kill()
        one.holder.wait()


@contextlib.contextmanager
def two_far_hosts(delay_s: float, loss: float, mtu: int, *shape: str) -> Iterator[list[Host]]:
    """Two hosts with a link that delays each packet by `delay_s`, and loses the fraction `loss` of them. `mtu`: bytes
    of the largest packet. `shape`: as in hosts()."""
    everything: list[subprocess.Popen[str]] = []
    try:
        found = [_host(f"node{number}", f"10.77.0.{number + 1}") for number in range(2)]
        everything += [one.holder for one in found]
        pids = [str(one.holder.pid) for one in found]
        words = [*pids, str(delay_s), str(loss), str(mtu), *(one.address for one in found)]
        link = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", sys.executable, str(_RELAY), *words],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        everything.append(link)
        assert link.stdout is not None and link.stdout.readline() == "ready\n"
        for one in found if shape else []:
            one.run("tc", "qdisc", "add", "dev", "eth0", "root", *shape)
        yield found
    finally:
        for process in reversed(everything):
            process.kill()
            process.wait()


_REMOTE_SHELL = """#!/bin/sh
while case "$1" in -*) true;; *) false;; esac; do shift; done
host=$1
shift
case $host in
{cases}
esac
"""


def launch(program: Path, on: Sequence[Host], folder: Path) -> list[str]:
    """The words that start one rank on each of the hosts; the first one is where the launcher runs."""
    remote = folder / "remote-shell"
    cases = "\n".join(f'{one.address}) exec {" ".join(one.enter)} sh -c "$*";;' for one in on)
    remote.write_text(_REMOTE_SHELL.format(cases=cases))
    os.chmod(remote, stat.S_IRWXU)
    addresses = ",".join(one.address for one in on)
    return [
        *on[0].enter, str(program), "-launcher", "ssh", "-launcher-exec", str(remote), "-localhost", on[0].address,
        "-genv", "UCX_TLS", "tcp",  # otherwise UCX finds that all are on one kernel, and leaves the network out
        "-n", str(len(on)), "-ppn", "1", "-hosts", addresses,
    ]  # fmt: skip
