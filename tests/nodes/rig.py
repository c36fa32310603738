"""Two real hosts on one machine: network, process, mount, hostname, IPC and /dev/shm views of their own, own sshd.

A data link joins them (`data0`, as RoCE would); a management LAN (`mgmt0`) joins both to us, who are a third machine.
SIGKILL of a host's first process is a power-off. Needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN, iproute2 and
util-linux. Only addresses inside these namespaces are ever contacted. Not represented: NCCL, RDMA, GPUs, latency,
separate disks and clocks.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.engines import session
from tests.nodes.sshd import PATH, NoRig, sshd

UNSHARE = "unshare --mount --pid --uts --ipc --fork --kill-child=SIGKILL --mount-proc"

INIT = """#!/bin/bash
# First process of a host: its own /run, /dev/shm, accounts and name; then sshd, which also reaps orphans
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run; mkdir -m 755 /run/sshd
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for file in passwd shadow hosts; do mount --bind {folder}/etc/$file /etc/$file; done
hostname {name}; cd /
exec env -i PATH={path} LD_LIBRARY_PATH={libraries} {sshd} -D -e -f {folder}/sshd_config
"""

SSHD_CONFIG = """ListenAddress 0.0.0.0
HostKey {folder}/host_key
PidFile none
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
StrictModes no
MaxStartups 50:30:100
AuthorizedKeysFile {folder}/home/.ssh/authorized_keys
"""


@dataclass
class Host:
    """One host: `rank` 0 or 1, its addresses, and its first process while it is powered on."""

    name: str
    rank: int
    folder: Path
    namespace: str
    data_address: str
    management_address: str
    power: subprocess.Popen[bytes] | None = None

    @property
    def first_process(self) -> int:
        """Number, in our namespace, of the host's process 1."""
        assert self.power is not None, f"{self.name} is off"
        return int(Path(f"/proc/{self.power.pid}/task/{self.power.pid}/children").read_text().split()[0])

    def processes(self) -> list[int]:
        """Numbers, in our namespace, of all live processes of the host."""
        if self.power is None or self.power.poll() is not None:
            return []
        mine = Path(f"/proc/{self.first_process}/ns/pid").readlink()
        found = []
        for pid in session.processes():
            with suppress(OSError):
                stat = session.stat_of(pid)
                if Path(f"/proc/{pid}/ns/pid").readlink() == mine and stat is not None and stat.state not in "ZX":
                    found.append(pid)
        return found

    def named(self, word: str) -> list[int]:
        """Processes whose command line holds a word ("VLLM::EngineCore", "--headless")."""
        found = []
        for pid in self.processes():
            with suppress(OSError):
                if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                    found.append(pid)
        return found

    def leader(self) -> int:
        """The rank's main process: the leader of the one session that is neither sshd's nor a keeper's."""
        found = []
        for pid in self.processes():
            with suppress(OSError):
                stat, command = session.stat_of(pid), Path(f"/proc/{pid}/cmdline").read_bytes()
                ours = not any(word in command for word in (b"sshd", b"sounding-echo"))
                if stat is not None and stat.session == pid and ours:
                    found.append(pid)
        (leader,) = found
        return leader

    def inside(self, argv: Sequence[str]) -> list[str]:
        """argv that runs a command on the host, as its console would."""
        return ["nsenter", "-t", str(self.first_process), "-m", "-n", "-p", "-u", "-i", *argv]


class Rig:
    """The two hosts, made by `up` and gone after `down`."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self.bridge = f"snd-br{number}"
        self.hosts = tuple(
            Host(
                f"spark-{letter}",
                rank,
                folder / f"spark-{letter}",
                f"snd{number}-{letter}",
                f"10.77.{2 * number}.{rank + 1}",
                f"10.77.{2 * number + 1}.{rank + 1}",
            )
            for rank, letter in enumerate("ab")
        )
        self.head, self.worker = self.hosts

    def up(self) -> None:
        """Make links, keys and hosts; returns when both answer by ssh. Raises NoRig."""
        self.sshd, self.libraries = sshd()
        _keygen(self.folder / "key")
        (self.folder / "ssh_config").write_text("")  # ours alone: no user's configuration reaches the rig
        try:
            self._links()
            for host in self.hosts:
                self._prepare(host)
            known = (f"{h.management_address},{h.data_address} {_public(h.folder / 'host_key')}" for h in self.hosts)
            (self.folder / "known_hosts").write_text("\n".join(known) + "\n")
            for host in self.hosts:
                self.power_on(host)
        except NoRig:
            self.down()
            raise

    def down(self) -> None:
        """Take everything away. Links go explicitly: with live sockets they outlive their namespace."""
        for host in self.hosts:
            if host.power is not None:
                self.power_off(host)
        quiet = subprocess.DEVNULL
        for argv in (
            ["ip", "-n", self.head.namespace, "link", "del", "data0"],
            *(["ip", "link", "del", self._cable(host)] for host in self.hosts),
            *(["ip", "netns", "del", host.namespace] for host in self.hosts),
            ["ip", "link", "del", self.bridge],
        ):
            subprocess.run(argv, check=False, stdout=quiet, stderr=quiet)

    def leftovers(self) -> list[str]:
        """What of the rig is still there: namespaces, links, processes of a host that should be off."""
        found = [line for line in _said("ip", "netns", "list").splitlines() if line.startswith(f"snd{self.number}-")]
        links = _said("ip", "-o", "link", "show").splitlines()
        found += [line for line in links if self.bridge in line or f"snd{self.number}m" in line]
        for pid in session.processes():
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if str(self.folder).encode() in command and pid != os.getpid():
                    found.append(f"process {pid}: {command[:200]!r}")
        return found

    def power_on(self, host: Host) -> None:
        """Boot a host: it has its links and files, and no process of an earlier life."""
        host.power = subprocess.Popen(
            [*f"ip netns exec {host.namespace} {UNSHARE}".split(), str(host.folder / "init.sh")],
            stdin=subprocess.DEVNULL,
            stdout=(host.folder / "sshd.log").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + 10
        while True:
            with suppress(OSError), socket.create_connection((host.management_address, 22), 1) as answering:
                answering.settimeout(1)
                if answering.recv(8).startswith(b"SSH-"):
                    return
            if host.power.poll() is not None or time.monotonic() > deadline:
                raise NoRig(f"{host.name} did not boot: {(host.folder / 'sshd.log').read_text()[-500:]}")
            time.sleep(0.02)

    def power_off(self, host: Host) -> None:
        """Pull the plug: every process of the host ends at once, nothing is said to anybody."""
        assert host.power is not None
        with suppress(ProcessLookupError, IndexError, OSError):
            os.kill(host.first_process, signal.SIGKILL)
        host.power.kill()
        host.power.wait(10)
        host.power = None

    def cut(self, link: str, host: Host) -> None:
        """Pull a host's "data" or "management" cable."""
        self._set(link, host, "down")

    def mend(self, link: str, host: Host) -> None:
        """Plug it in again."""
        self._set(link, host, "up")

    def node(self, host: Host, **more: Any) -> dict[str, Any]:
        """The host as a `[[node]]` of a spec."""
        ssh = {
            "identity_file": str(self.folder / "key"),
            "config_file": str(self.folder / "ssh_config"),
            "known_hosts_file": str(self.folder / "known_hosts"),
            "connect_timeout_s": 3,
            "alive_interval_s": 1,
            "alive_count": 2,
        }
        where = {"host": f"root@{host.management_address}", "address": host.data_address, "interface": "data0"}
        return {"name": host.name, **where, "ssh": ssh, **more}

    def _cable(self, host: Host) -> str:
        return f"snd{self.number}m{host.rank}"

    def _set(self, link: str, host: Host, state: str) -> None:
        if link == "management":
            _do("ip", "link", "set", self._cable(host), state)
        else:
            _do("ip", "-n", host.namespace, "link", "set", "data0", state)

    def _links(self) -> None:
        _do("ip", "link", "add", self.bridge, "type", "bridge")
        _do("ip", "addr", "add", f"10.77.{2 * self.number + 1}.254/24", "dev", self.bridge)
        _do("ip", "link", "set", self.bridge, "up")
        for host in self.hosts:
            inside = ("ip", "-n", host.namespace)
            _do("ip", "netns", "add", host.namespace)
            _do(*inside, "link", "set", "lo", "up")
            _do("ip", "link", "add", self._cable(host), "type", "veth", "peer", "mgmt0", "netns", host.namespace)
            _do("ip", "link", "set", self._cable(host), "master", self.bridge, "up")
            _do(*inside, "addr", "add", f"{host.management_address}/24", "dev", "mgmt0")
            _do(*inside, "link", "set", "mgmt0", "up")
        first, second = (host.namespace for host in self.hosts)
        _do("ip", "-n", first, "link", "add", "data0", "type", "veth", "peer", "data0", "netns", second)
        for host in self.hosts:
            _do("ip", "-n", host.namespace, "addr", "add", f"{host.data_address}/24", "dev", "data0")
            _do("ip", "-n", host.namespace, "link", "set", "data0", "up")

    def _prepare(self, host: Host) -> None:
        folder, home = host.folder, host.folder / "home"
        (folder / "etc").mkdir(parents=True)
        (home / ".ssh").mkdir(parents=True)
        _keygen(folder / "host_key")
        (home / ".ssh" / "authorized_keys").write_text((self.folder / "key.pub").read_text())
        accounts = f"root:x:0:0:root:{home}:/bin/bash\nsshd:x:74:74:privsep:/run/sshd:/usr/sbin/nologin\n"
        (folder / "etc" / "passwd").write_text(accounts)
        (folder / "etc" / "shadow").write_text("root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n")
        names = "".join(f"{other.data_address} {other.name}\n" for other in self.hosts)
        (folder / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        (folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=folder))
        script = INIT.format(folder=folder, name=host.name, path=PATH, libraries=self.libraries, sshd=self.sshd)
        (folder / "init.sh").write_text(script)
        (folder / "init.sh").chmod(0o755)


def _keygen(path: Path) -> None:
    _do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))


def _public(key: Path) -> str:
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


def _do(*argv: str) -> None:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise NoRig(f"{' '.join(argv)}: {done.stderr.strip()}")


def _said(*argv: str) -> str:
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout
