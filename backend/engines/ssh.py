"""How a command or a program of ours reaches a node: a subprocess at home, OpenSSH elsewhere.

A command is a list; it is quoted once, by shlex.join, for the one shell that sshd starts. A program is piped to a
node's Python (nothing is installed there) and then speaks JSON lines. Before its first line counts, the node must have
echoed words that a shell loves to mangle: quotes eaten on the way would otherwise show as a server with other options.
"""

from __future__ import annotations

import json
import selectors
import shlex
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

from backend.errors import NodeError
from backend.spec_nodes import Node

ECHO = '{"k": 3} it\'s $HOME `id` \\\\ \\n *;&|<>#~!  two\nlines\t%s é'
ECHO_MARK = "sounding-echo "
# Reads the program from the first bytes of its input, and not one byte more: what follows are the program's requests.
# One line, because some shells end a quoted word with it.
BOOTSTRAP = (
    "import json, os, sys; print({mark!r} + json.dumps(sys.argv[2:]), flush=True); "
    "n, source = int(sys.argv[1]), b''; del sys.argv[1:3]; "
    "[source := source + (os.read(0, n - len(source)) or sys.exit(1)) for _ in iter(lambda: len(source) < n, False)]; "
    "exec(compile(source, {name!r}, 'exec'))"
)
NOISE_LINES = 200  # what a login shell's start-up files may print before us
STDERR_LINES = 3
SSH_FAILED, NOT_FOUND = 255, 127  # exit status: of ssh itself, and of a shell that knows no such command


def reach(node: Node) -> tuple[str, ...]:
    """What stands before a quoted command to run it on this node; empty at home. Never asks for a password."""
    if node.local:
        return ()
    ssh = node.ssh
    argv = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]
    argv += ["-o", f"ConnectTimeout={ssh.connect_timeout_s}"]
    argv += ["-o", f"ServerAliveInterval={ssh.alive_interval_s}", "-o", f"ServerAliveCountMax={ssh.alive_count}"]
    if ssh.config_file is not None:
        argv += ["-F", str(ssh.config_file)]
    if ssh.port is not None:
        argv += ["-p", str(ssh.port)]
    if ssh.identity_file is not None:
        argv += ["-i", str(ssh.identity_file), "-o", "IdentitiesOnly=yes"]
    if ssh.known_hosts_file is not None:
        argv += ["-o", f"UserKnownHostsFile={ssh.known_hosts_file}"]
    return (*argv, node.host)


def command_on(node: Node, argv: list[str]) -> list[str]:
    """argv that runs `argv` on this node."""
    there = reach(node)
    return [*there, shlex.join(argv)] if there else argv


class Piped:
    """A Python program piped to a node's interpreter, its echo verified; then its stdin and stdout are its own.

    It gets a session of its own, so that a ctrl-c for us does not cut the connection that the clean-up needs.
    Raises NodeError: not reachable, no such interpreter, a shell that mangles arguments.
    """

    def __init__(self, node: Node, source: str, *arguments: str, name: str = "program.py") -> None:
        self.node, self._held = node, b""
        text = source.encode()
        words = [ECHO, *arguments]
        command = [node.python, "-u", "-c", BOOTSTRAP.format(mark=ECHO_MARK, name=name), str(len(text)), *words]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the program; a pipe could fill up)
        try:
            self._process = subprocess.Popen(
                command_on(node, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            self._errors.close()
            program = node.python if node.local else "ssh"
            raise NodeError(f"cannot start {program}: {error.strerror}", where=node.name) from None
        assert self._process.stdin is not None  # opened as pipes just above
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        try:
            with suppress(BrokenPipeError):  # it ended at once: its own words say why
                self.write(text)
            _verify_echo(self, words)
        except NodeError:
            self.close()
            raise

    def write(self, content: bytes) -> None:
        """All of it. Raises OSError where nobody reads any more."""
        left = memoryview(content)
        while left:
            left = left[self._stdin.write(left) or 0 :]

    def line(self, timeout_s: float) -> bytes | None:
        """The next whole line without its end; None when the stream ends or the time is up first."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while b"\n" not in self._held:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = self._stdout.read(1 << 16)
                if not chunk:
                    return None
                self._held += chunk
        line, _, self._held = self._held.partition(b"\n")
        return line

    def ended(self, patience_s: float) -> tuple[int | None, str]:
        """Close its input; exit status (None: it had to be killed) and the last lines of its stderr."""
        with suppress(OSError):
            self._stdin.close()
        try:
            status: int | None = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            status = None
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").splitlines()
        return status, "; ".join(line.strip() for line in said[-STDERR_LINES:] if line.strip())

    def close(self) -> str:
        """End it: by the end of its input, after two seconds by SIGKILL of the local end. Its last words on stderr."""
        if self._errors.closed:
            return ""
        _, said = self.ended(2)
        self._stdout.close()
        self._errors.close()
        return said


class Channel:
    """Requests and answers, as JSON lines, with a program of ours on a node. One request at a time, from any thread."""

    def __init__(self, node: Node, source: str, *arguments: str, name: str = "program.py") -> None:
        self.node, self._lock = node, threading.Lock()
        self._program = Piped(node, source, *arguments, name=name)

    def ask(self, timeout_s: float, **request: Any) -> dict[str, Any]:
        """One request, one answer. Raises NodeError when the link or the program is lost, or the answer is late."""
        with self._lock:
            try:
                self._program.write(json.dumps(request).encode() + b"\n")
                line = self._program.line(timeout_s)
            except (OSError, ValueError):  # a broken pipe, or one that close() has closed
                line = None
            if line is None:
                said = self._program.close()  # a late answer would be taken for the next one's
                raise NodeError(
                    f"{self.node.name} ({self.node.host}) does not answer any more{f': {said}' if said else ''}",
                    fix="check the machine and its management link",
                )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the program; what it launched lives on."""
        with self._lock:
            self._program.close()


def _verify_echo(program: Piped, words: list[str]) -> None:
    node = program.node
    deadline = time.monotonic() + node.ssh.connect_timeout_s + 10
    for _ in range(NOISE_LINES):
        line = program.line(max(0.0, deadline - time.monotonic()))
        if line is None:
            break
        text = line.decode(errors="replace")
        if text.startswith(ECHO_MARK):
            with suppress(ValueError):
                if json.loads(text.removeprefix(ECHO_MARK)) == words:
                    return
            raise _mangled(node, "arguments came back changed")
    status, said = program.ended(2)
    said = said or "it said nothing"
    if status == SSH_FAILED and not node.local:
        fix = f"try it by hand: {shlex.join(reach(node))} true"
        raise NodeError(f"cannot be reached by ssh: {said}", where=node.name, fix=fix)
    if status == NOT_FOUND:
        raise NodeError(f"has no {node.python}: {said}", where=node.name, fix="name its Python in [[node]] python")
    raise _mangled(node, f"nothing came back ({said})")


def _mangled(node: Node, what: str) -> NodeError:
    return NodeError(
        f"its shell does not pass arguments on as given: {what}",
        where=node.name,
        fix="give the account a plain shell (bash, sh), without a forced command that evaluates its arguments again",
    )
