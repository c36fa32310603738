"""An sshd for the rig's hosts: the system's, else one unpacked beside the project."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

UNPACKED = Path(__file__).parents[2] / "build" / "openssh"
PACKAGES = ("openssh-server", "libwrap0")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NoRig(Exception):
    """This machine cannot make the two hosts; the reason."""


def sshd() -> tuple[str, str]:
    """Path of an sshd and of libraries it may need: the system's, else unpacked beside, the system untouched."""
    if os.geteuid() != 0:
        raise NoRig("making hosts out of namespaces needs root")
    for tool in ("ip", "unshare", "nsenter", "ssh", "ssh-keygen"):
        if shutil.which(tool) is None:
            raise NoRig(f"{tool} is not installed")
    installed = shutil.which("sshd", path=PATH)
    if installed:
        return installed, ""
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with (UNPACKED / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers of pytest each make a rig
        if not (UNPACKED / ".done").exists():
            _unpack()
    libraries = ":".join(sorted({str(path.parent) for path in UNPACKED.rglob("*.so*")}))
    return str(UNPACKED / "usr" / "sbin" / "sshd"), libraries


def _unpack() -> None:
    try:
        subprocess.run(["apt-get", "-qq", "download", *PACKAGES], cwd=UNPACKED, check=True, capture_output=True)
        for package in UNPACKED.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(UNPACKED)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoRig(f"no sshd here, and it cannot be fetched: {error}") from None
    (UNPACKED / ".done").touch()
