"""Whose process is it? Only what we launched is signalled, and an end is verified."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.engines import process as process_module
from backend.engines import session
from backend.engines.process import ManagedProcess, end_leftover, tail
from backend.engines.session import MARK, Lease
from backend.errors import RunFailed, StoreError
from tests.standin.specs import free_port

# A leader that forks a member and, asked to, ends before it; both write to the log they inherited
LEADER = """
import os, sys, time
if os.fork() == 0:
    time.sleep(60)
time.sleep(0.2 if sys.argv[1] == "ends" else 60)
"""

Launch = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a session with a leader and a member, as a sweep would; all of it is gone after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(how: str = "stays", *, log: str = "log", mark: Path | None = None) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **({MARK: str(mark)} if mark else {})}
        with (tmp_path / log).open("wb") as output:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-S", "-E", "-c", LEADER, how],
                    env=environment,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )
        leader = started[-1]
        deadline = time.monotonic() + 20
        while len(session.members(leader.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        if how == "ends":
            leader.wait()
        return leader

    yield start
    for leader in started:
        for pid in session.members(leader.pid):
            os.kill(pid, signal.SIGKILL)
        leader.wait()


def lease_of(pid: int, log: Path, **changes: object) -> Lease:
    stat = session.stat_of(pid)
    lease = Lease(pid, stat.start_ticks if stat else 1, session.boot_id(), "127.0.0.1", 0, str(log))
    return dataclasses.replace(lease, **changes)


def reaped(leader: subprocess.Popen[bytes]) -> bool:
    return leader.poll() is not None


def test_a_leftover_session_is_ended_whole(launch: Launch, tmp_path: Path) -> None:
    leader, path = launch(), tmp_path / "server.json"
    session.write_lease(path, lease_of(leader.pid, tmp_path / "log"))
    assert end_leftover(path, 2, 2) == [leader.pid]
    assert session.members(leader.pid) == []
    assert not path.exists()


def test_the_leader_is_dead_and_its_member_lives(launch: Launch, tmp_path: Path) -> None:
    """kill -9 of an API server: its engine lives on, and is known by the log that it writes to."""
    leader, path = launch("ends"), tmp_path / "server.json"
    session.write_lease(path, lease_of(leader.pid, tmp_path / "log"))
    assert len(session.members(leader.pid)) == 1
    assert end_leftover(path, 2, 2) == [leader.pid]
    assert session.members(leader.pid) == []


def test_a_strangers_session_of_the_same_number_is_left_alone(launch: Launch, tmp_path: Path) -> None:
    leader, path = launch("ends", log="strangers-log"), tmp_path / "server.json"
    session.write_lease(path, lease_of(leader.pid, tmp_path / "log"))
    assert end_leftover(path, 1, 1) == []
    assert len(session.members(leader.pid)) == 1


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another boot"}])
def test_a_reused_process_number_is_never_signalled(launch: Launch, tmp_path: Path, change: dict[str, object]) -> None:
    leader, path = launch(), tmp_path / "server.json"
    session.write_lease(path, lease_of(leader.pid, tmp_path / "log", **change))
    assert end_leftover(path, 1, 1) == []
    assert not reaped(leader)
    assert len(session.members(leader.pid)) == 2


@pytest.mark.parametrize("lease", [None, "", '{"pid": 1}', '{"pid": '])
def test_without_a_whole_lease_the_mark_finds_the_server(launch: Launch, tmp_path: Path, lease: str | None) -> None:
    path = tmp_path / "server.json"
    leader = launch(mark=path)
    if lease is not None:
        path.write_text(lease)
    assert end_leftover(path, 2, 2) == [leader.pid]
    assert session.members(leader.pid) == []


def test_the_mark_of_another_data_directory_is_not_ours(launch: Launch, tmp_path: Path) -> None:
    leader = launch(mark=tmp_path / "elsewhere" / "server.json")
    assert end_leftover(tmp_path / "server.json", 1, 1) == []
    assert not reaped(leader)


def test_our_own_session_is_never_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that has the mark exported, by whatever accident, starts a sweep."""
    monkeypatch.setattr(session, "marked", lambda _path: [os.getpid(), os.getppid()])
    assert os.getsid(0) not in session.sessions_of(tmp_path / "server.json", None)


def test_a_signal_needs_the_session_to_be_right(launch: Launch) -> None:
    leader = launch()
    session._send(leader.pid, leader.pid + 1, signal.SIGKILL)
    time.sleep(0.05)
    assert not reaped(leader)
    session._send(leader.pid, leader.pid, signal.SIGKILL)
    assert leader.wait(5) == -signal.SIGKILL


def test_a_lease_is_written_whole_and_read_back(tmp_path: Path) -> None:
    lease = lease_of(os.getpid(), tmp_path / "log")
    session.write_lease(tmp_path / "server.json", lease)
    assert session.read_lease(tmp_path / "server.json") == lease
    assert [path.name for path in tmp_path.iterdir()] == ["server.json"]


def test_a_lease_that_cannot_be_written_leaves_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(process_module, "write_lease", full)
    path = (tmp_path / "server.json").resolve()
    with pytest.raises(StoreError, match="No space left"):
        ManagedProcess(["sleep", "60"], {}, tmp_path / "log", path, host="127.0.0.1", port=free_port())
    assert session.marked(path) == []


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="cannot start no-such-program") as caught:
        ManagedProcess(["no-such-program"], {}, tmp_path / "log", tmp_path / "l", host="127.0.0.1", port=free_port())
    assert caught.value.kind == "launch"


def test_what_survives_sigkill_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that no signal ends (stuck in the kernel), here by not sending any."""
    managed = ManagedProcess(
        ["sleep", "60"], {}, tmp_path / "log", tmp_path / "server.json", host="127.0.0.1", port=free_port()
    )
    with monkeypatch.context() as patched:
        patched.setattr(session, "_send", lambda *_: None)
        with pytest.raises(
            RunFailed, match=f"after SIGTERM and SIGKILL processes {managed.lease.pid} live on"
        ) as failed:
            managed.stop(0.1, 0.1)
    assert failed.value.kind == "wont_stop"
    assert (tmp_path / "server.json").exists()  # the next sweep tries again
    assert managed.stop(2, 2) < 2
    assert not (tmp_path / "server.json").exists()


def test_ports() -> None:
    """A listener counts, also one that does not accept; a connection in TIME_WAIT and a foreign address do not."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.listen()
        assert session.port_in_use("127.0.0.1", port)
        client = socket.create_connection(("127.0.0.1", port))
        server, _ = listener.accept()
        server.close()  # closes first: this end is the one that waits out TIME_WAIT
        client.close()
    assert not session.port_in_use("127.0.0.1", port)
    assert not session.port_in_use("192.0.2.1", port)


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("\n".join(f"line {number}" for number in range(50_000)))
    assert tail(log, lines=2) == "line 49998\nline 49999"
