"""What goes wrong on either host or between them, with scripted ranks that fail as vLLM 0.32 was seen to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.errors import Refused
from tests.nodes.events import SLOWLY, codes, kill, nothing_is_left, once_measuring
from tests.nodes.rig import Rig
from tests.sweep.harness import failures, findings, runs, sweep

# Each waits for things to happen on two hosts: minutes in all, and a busy machine stretches them. `make test-nodes`.
pytestmark = pytest.mark.nodes
Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("rank", "fault", "settings", "kind", "says"),
    [
        (1, "die_start", {}, "died", "rank 1 on spark-b exit status 1"),
        (0, "die_start", {}, "died", "rank 0 on spark-a exit status 1"),
        (1, "freeze", {"server_stall_timeout_s": 4}, "stalled", "no new log line for 4 s"),
        (0, "freeze", {"server_stall_timeout_s": 4}, "stalled", "no new log line for 4 s"),
        (1, "waits", {"server_stall_timeout_s": 4}, "stalled", "no new log line for 4 s"),
    ],
)
def test_a_start_that_fails_on_either_host(
    scripted_spec: Write, hosts: Rig, tmp_path: Path, rank: int, fault: str, settings: dict[str, Any], kind: str,
    says: str,
) -> None:  # fmt: skip
    """One row with the last log lines of both nodes; lines that only wait for another rank are no progress."""
    data, env = tmp_path / "data", ({}, {"RANK_FAULT": fault}) if rank else ({"RANK_FAULT": fault}, {})
    outcome = sweep(scripted_spec(depths=(1,), rank_env=env, server_retries=0, **settings), data)
    (failure,) = failures(data)
    assert (outcome.exit_code, failure.kind) == (3, kind)
    assert says in failure.reason
    for number, host in enumerate(hosts.hosts):
        assert f"== rank {number} on {host.name}: " in failure.log_tail
        assert f"rank {number} of 2: loading" in failure.log_tail
    nothing_is_left(hosts, data)


@pytest.mark.parametrize("port", [18951, 29577])
def test_a_port_that_is_taken_on_the_head(scripted_spec: Write, hosts: Rig, tmp_path: Path, port: int) -> None:
    """The server's own and the one where the ranks meet; found on the node, before anything is launched there."""
    hold = f"import socket, time; s = socket.create_server(('', {port})); print('held', flush=True); time.sleep(60)"
    data = tmp_path / "data"
    with subprocess.Popen(
        hosts.head.inside([sys.executable, "-c", hold]), stdout=subprocess.PIPE, start_new_session=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        sweep(scripted_spec(depths=(1,), server_retries=0), data)
        for pid in hosts.head.named("create_server"):
            os.kill(pid, signal.SIGKILL)
    (failure,) = failures(data)
    assert (failure.kind, failure.reason.startswith("spark-a: ")) == ("launch", True)
    assert f"port {port} is in use before the launch" in failure.reason
    nothing_is_left(hosts, data)


@pytest.mark.parametrize(
    ("which", "word", "says"),
    [
        ("worker", "scripted_vllm", "rank 1 on spark-b"),  # it would idle away unseen: /health stays 200
        ("worker", "VLLM::Worker_TP1", "VLLM::Worker_TP1"),
        ("head", "scripted_vllm", "rank 0 on spark-a"),
        ("head", "VLLM::Worker_TP0", "VLLM::Worker_TP0"),
    ],
)
def test_a_killed_process_ends_the_run_at_once(
    scripted_spec: Write, hosts: Rig, tmp_path: Path, which: str, word: str, says: str
) -> None:
    data, host = tmp_path / "data", getattr(hosts, which)
    spec = scripted_spec(depths=(1,), **{**SLOWLY, "prompts": 200}, server_retries=0)
    killed: list[float] = []

    def strike() -> None:
        kill(host, word)
        killed.append(time.monotonic())

    with once_measuring(data, strike):
        outcome = sweep(spec, data)
    assert time.monotonic() - killed[0] < 10  # 200 requests take a minute
    (failure,) = failures(data)
    assert (outcome.exit_code, failure.kind) == (3, "died")
    assert says in failure.reason
    nothing_is_left(hosts, data)


def test_the_management_link_is_cut_while_it_measures(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    """The ranks talk by the data link, so the run goes on; it is flagged, and the node reached again for the stop."""
    data = tmp_path / "data"

    def flap() -> None:
        hosts.cut("management", hosts.worker)
        time.sleep(4)  # ssh gives up after 1 s x 2
        hosts.mend("management", hosts.worker)

    with once_measuring(data, flap):
        outcome = sweep(scripted_spec(depths=(1,), **{**SLOWLY, "prompts": 40}), data)
    (run,) = runs(data)
    assert (outcome.exit_code, run.status, run.valid) == (0, "done", True)
    (finding,) = findings(data, "node-out-of-reach")
    assert "spark-b" in finding.message
    assert (finding.figure or 0) > 0.5
    nothing_is_left(hosts, data)


def test_a_rank_that_ends_while_its_node_is_out_of_reach(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    """Nobody could see it end; it is seen as soon as the node is reached again."""
    data = tmp_path / "data"

    def unseen() -> None:
        hosts.cut("management", hosts.worker)
        time.sleep(4)
        kill(hosts.worker, "VLLM::Worker_TP1")
        hosts.mend("management", hosts.worker)

    with once_measuring(data, unseen):
        sweep(scripted_spec(depths=(1,), **{**SLOWLY, "prompts": 200}, server_retries=0), data)
    (failure,) = failures(data)
    assert failure.kind == "died"
    assert "VLLM::Worker_TP1" in failure.reason
    nothing_is_left(hosts, data)


@pytest.fixture
def mangling_shell(hosts: Rig) -> Iterator[None]:
    """The account's shell on the second host evaluates what it is given once more."""
    shell, accounts = hosts.worker.folder / "shell", hosts.worker.folder / "etc" / "passwd"
    shell.write_text("""#!/bin/bash\nexec bash -c "$(eval "printf '%s' \\"$2\\"")"\n""")
    shell.chmod(0o755)
    before = accounts.read_text()
    accounts.write_text(before.replace("/bin/bash", str(shell), 1))  # in place: it is mounted over /etc/passwd
    yield
    accounts.write_text(before)


@pytest.mark.usefixtures("mangling_shell")
def test_a_shell_that_mangles_arguments_is_one_clear_error(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    """Found before anything is launched: quotes eaten on the way would be a server with other options."""
    data = tmp_path / "data"
    assert sweep(scripted_spec(depths=(1,), server_retries=0), data).exit_code == 3
    (failure,) = failures(data)
    assert failure.kind == "launch"
    assert failure.reason.startswith("spark-b: its shell does not pass arguments on as given")
    nothing_is_left(hosts, data)


def test_a_flap_of_the_data_link_excludes_the_run(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    """Both links of a step waited for the cable, whatever the depth: the run is repeated in its block."""
    data = tmp_path / "data"

    def flap() -> None:
        hosts.cut("data", hosts.worker)
        time.sleep(0.3)
        hosts.mend("data", hosts.worker)

    with once_measuring(data, flap):
        outcome = sweep(scripted_spec(depths=(1,), **SLOWLY), data)
    first, second = runs(data)
    assert outcome.exit_code == 0
    assert (first.status, first.valid, second.valid) == ("done", False, True)
    assert (first.exclusion_reason or "").startswith("data-link-flap: ")
    assert codes(data).count("data-link-flap") == 1


def test_foreign_requests_in_a_measured_window(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    """Somebody else uses the served model: the counters know more tokens than we asked for, so the run is repeated."""
    data = tmp_path / "data"
    body = {"model": "standin", "prompt": "theirs", "max_tokens": 16}

    def ask() -> None:
        url = f"http://{hosts.head.management_address}:18951/v1/completions"
        assert httpx.post(url, json=body, trust_env=False, timeout=20).status_code == 200

    with once_measuring(data, ask):
        outcome = sweep(scripted_spec(depths=(1,), **SLOWLY), data)
    first, second = runs(data)
    assert outcome.exit_code == 0
    assert (first.valid, second.valid) == (False, True)
    assert "foreign-requests" in (first.exclusion_reason or "")


def test_power_off_in_mid_run_then_resume(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    """Nothing more is launched while a node cannot be seen; when it is back the sweep goes on where it was."""
    data = tmp_path / "data"
    spec = scripted_spec(
        **SLOWLY, server_request_timeout_s=3, server_stop_timeout_s=1, server_release_timeout_s=1, seed=1
    )
    with once_measuring(data, lambda: hosts.power_off(hosts.worker)):
        outcome = sweep(spec, data)
    assert outcome.exit_code == 3
    assert len(outcome.missing) == 3
    assert [failure.kind for failure in failures(data)] == ["wont_stop"]
    assert "rank 1 on spark-b cannot be seen to have ended" in failures(data)[0].reason
    assert "rank 1: joined" in failures(data)[0].log_tail  # its log was mirrored: the node took its own away
    with pytest.raises(Refused, match="a killed sweep had a server on spark-b, which cannot be looked at"):
        sweep(spec, data, resume=True)
    hosts.power_on(hosts.worker)
    assert sweep(spec, data, resume=True).exit_code == 0
    assert sorted(run.k for run in runs(data) if run.status == "done") == [0, 1, 3]
    nothing_is_left(hosts, data)
