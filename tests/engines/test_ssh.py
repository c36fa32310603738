"""Reaching a node: words arrive as given, a shell that mangles them is one clear error, a lost link too.

`ssh` is here a script that does what sshd does with a command: hands it to the account's shell. The real thing is in
tests/nodes.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path

import pytest

from backend.engines.ssh import Channel, Piped, command_on, reach
from backend.errors import NodeError
from backend.spec_nodes import Node, Ssh

AWKWARD = ("", "a b", "it's", '"q"', "$HOME `id` $(id)", "back\\slash \\n", "two\nlines", "*;&|<>#~!", "é ✓", "%s -n")
TELL = "import json, sys\nprint(json.dumps(sys.argv[1:]), flush=True)\n"
ECHO_BACK = "import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n    sys.stdout.flush()\n"
HOME = Node(name="home")
THERE = Node(name="spark-b", host="spark-b.lab")
SHELLS = {
    "plain": 'exec sh -c "$1"',
    "noisy": 'echo "Welcome to DGX OS"; echo; exec sh -c "$1"',
    "evaluates twice": 'exec sh -c "$(eval "printf %s \\"$1\\"")"',
    "splits words": 'exec $1',
    "eats quotes": """exec sh -c "$(printf %s "$1" | tr -d \\'\\")" """,
    "silent": "exit 0",
    "unreachable": "echo 'ssh: connect to host spark-b.lab port 22: No route to host' >&2; exit 255",
    "no python": 'echo "sh: 1: python3: not found" >&2; exit 127',
}  # fmt: skip


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts an `ssh` first on PATH that runs the command by the shell written into the returned file."""
    shell, script = tmp_path / "shell", tmp_path / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text(f'#!/bin/bash\nexec sh {shell} "${{@: -1}}"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    return shell


@pytest.mark.parametrize("shell", ["plain", "noisy"])
@pytest.mark.parametrize("node", [HOME, THERE], ids=lambda node: node.name)
def test_awkward_words_arrive_as_given(ssh: Path, node: Node, shell: str) -> None:
    ssh.write_text(SHELLS[shell])
    program = Piped(node, TELL, *AWKWARD)
    try:
        assert program.line(20) == json.dumps(list(AWKWARD)).encode()
    finally:
        program.close()


@pytest.mark.parametrize(
    ("shell", "says"),
    [
        ("evaluates twice", "does not pass arguments on as given"),
        ("splits words", "does not pass arguments on as given"),
        ("eats quotes", "does not pass arguments on as given"),
        ("silent", "nothing came back"),
        ("unreachable", "cannot be reached by ssh: ssh: connect to host spark-b.lab port 22: No route to host"),
        ("no python", "has no python3"),
    ],
)
def test_what_stands_between_is_one_clear_error(ssh: Path, shell: str, says: str) -> None:
    ssh.write_text(SHELLS[shell])
    with pytest.raises(NodeError) as caught:
        Piped(THERE, TELL)
    assert says in str(caught.value)
    assert str(caught.value).startswith("spark-b: ")
    assert caught.value.fix
    assert "\n" not in str(caught.value)


def test_a_command_is_quoted_once() -> None:
    assert command_on(HOME, ["echo", "a b"]) == ["echo", "a b"]
    *there, command = command_on(THERE, ["echo", "a b", "it's"])
    assert tuple(there) == reach(THERE)
    assert shlex.split(command) == ["echo", "a b", "it's"]


def test_every_ssh_setting_reaches_ssh() -> None:
    ssh = Ssh(
        port=2222,
        identity_file=Path("key"),
        config_file=Path("conf"),
        known_hosts_file=Path("known"),
        connect_timeout_s=3,
        alive_interval_s=1,
        alive_count=2,
    )
    argv = " ".join(reach(Node(name="b", host="lab@b", ssh=ssh)))
    for part in (
        "-p 2222", "-i key -o IdentitiesOnly=yes", "-F conf", "UserKnownHostsFile=known", "ConnectTimeout=3",
        "ServerAliveInterval=1", "ServerAliveCountMax=2", "BatchMode=yes",
    ):  # fmt: skip
        assert part in argv
    assert argv.endswith(" lab@b")


def test_requests_and_answers() -> None:
    channel = Channel(HOME, ECHO_BACK)
    try:
        assert channel.ask(20, op="x", text="two\nlines é") == {"op": "x", "text": "two\nlines é"}
        assert channel.ask(20, big="x" * 300_000)["big"] == "x" * 300_000
    finally:
        channel.close()
    with pytest.raises(NodeError, match="does not answer any more"):
        channel.ask(1, op="x")


def test_a_request_right_behind_the_program_is_not_swallowed() -> None:
    """The bootstrap reads its program and not one byte more, however early the first request comes."""
    slow = "import time; time.sleep(0.2)\nimport os\nos.write(1, os.read(0, 100))\n"
    program = Piped(HOME, slow)
    program.write(b"first\n")
    assert program.line(20) == b"first"
    program.close()


def test_a_late_answer_ends_the_channel() -> None:
    """It would be taken for the answer to the next request."""
    channel = Channel(HOME, "import time\ntime.sleep(60)\n")
    began = time.monotonic()
    with pytest.raises(NodeError, match="does not answer any more"):
        channel.ask(0.3, op="look")
    assert time.monotonic() - began < 5
    with pytest.raises(NodeError):
        channel.ask(0.3, op="look")


def test_the_last_words_of_a_program_are_told() -> None:
    channel = Channel(HOME, "import sys\nsys.stdin.readline()\nraise ValueError('this node is odd')\n")
    with pytest.raises(NodeError, match="ValueError: this node is odd"):
        channel.ask(20, op="look")
