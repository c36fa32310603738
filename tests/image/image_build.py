"""Build and run the viewer image without a daemon: mmdebstrap for a base, buildah for the Dockerfile.

Nothing about this machine's package sources is written down here: its apt sources and pip settings are handed through.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASE, IMAGE = "localhost/sounding-base", "localhost/sounding-viewer"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
APT_SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))


class Buildah:
    """buildah with a storage of its own under `directory`."""

    def __init__(self, directory: Path) -> None:
        if not (shutil.which("buildah") and shutil.which("mmdebstrap")):
            raise FileNotFoundError("the image test needs: apt-get install buildah mmdebstrap")
        self.directory = directory
        self.command = ["buildah", "--root", str(directory / "storage"), "--runroot", str(directory / "run"),
                        "--storage-driver", "vfs"]  # fmt: skip

    def __call__(self, *arguments: str) -> str:
        """Run a buildah command to its end. Raises RuntimeError with the end of what it printed."""
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            raise RuntimeError(f"buildah {arguments[0]}: {(done.stdout + done.stderr)[-3000:]}")
        return done.stdout.strip()

    def base(self) -> None:
        """The smallest Debian with Python, as an image, from this machine's own package sources."""
        release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.M))
        sources = [str(path) for path in APT_SOURCES if path.is_file() and path.stat().st_size][:1]
        tar = self.directory / "base.tar"
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv,ca-certificates",
             release["VERSION_CODENAME"], str(tar), *sources], check=True, capture_output=True,
        )  # fmt: skip
        container = self("from", "scratch")
        self("add", "--quiet", container, str(tar), "/")
        self("commit", "--quiet", "--format", "docker", "--rm", container, BASE)
        tar.unlink()

    def image(self) -> None:
        """The Dockerfile as it is, on that base, with this machine's pip settings and certificates mounted."""
        settings, mounts = pip_settings()
        config = self.directory / "pip.conf"
        config.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
        volumes = [f"--volume={path}:{path}:ro" for path in mounts] + [f"--volume={config}:/etc/pip.conf:ro"]
        self("bud", "--quiet", "--isolation=chroot", "--format=docker", f"--build-arg=BASE={BASE}", "--pull-never",
             *volumes, "--tag", IMAGE, ".")  # fmt: skip

    @contextmanager
    def running(self, results: Path, *command: str) -> Iterator[str]:
        """A container that runs `command` with `results` mounted read-only; yields its name."""
        container = self("from", "--pull-never", IMAGE)
        arguments = ["run", "--isolation=chroot", f"--volume={results}:/results:ro", container, "--", *command]
        with (self.directory / "container.log").open("wb") as log:
            process = subprocess.Popen([*self.command, *arguments], stdout=log, stderr=subprocess.STDOUT)
        try:
            yield container
        finally:
            process.terminate()
            process.wait(20)
            self("rm", container)

    def inside(self, container: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a container, whatever its exit status."""
        return subprocess.run([*self.command, "run", "--isolation=chroot", container, "--", *command],
                              capture_output=True, text=True)  # fmt: skip


def pip_settings() -> tuple[Mapping[str, str], list[str]]:
    """(this machine's pip settings, the local files and directories that they name)."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    settings: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        name, value = line.split("=", 1)
        if not name.endswith(("disable-pip-version-check", "no-index")):
            settings.setdefault(name.rsplit(".", 1)[-1], value.strip("'"))
    named = {path for value in settings.values() for path in re.findall(r"(?<![\w/])(?:file://)?(/[\w./-]+)", value)}
    local = {Path("/", *Path(path).parts[1:3]) if "/simple" in path else Path(path) for path in named}
    return settings, sorted(str(path) for path in {*local, CA_BUNDLE} if path.exists())
