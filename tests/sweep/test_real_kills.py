"""kill -9 against real vLLM: five times, at a moment of its own in each; about eight minutes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.engines import session
from backend.engines.process import port_in_use
from tests.sweep.harness import ROOT, left_over, records, runs, start, wait_for
from tests.sweep.kills import Reader, warm_ups_are_whole

PORT = 18947
NAME = "killed-vllm"  # the reader looks at sweeps of this kind


@pytest.mark.vllm
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_five_kills_of_real_vllm(tmp_path: Path) -> None:
    """While loading, while measuring, in the next start, with the API server killed as well, and while stopping."""
    data, output, spec = tmp_path / "data", tmp_path / "output.txt", tmp_path / "spec.toml"
    text = (ROOT / "data" / "specs" / "smoke.toml").read_text().replace("port = 18941", f"port = {PORT}")
    # exclusions are off here (see harness), so that a busy machine does not lengthen the test
    spec.write_text(f"# paths are relative to: {ROOT / 'data' / 'specs'}\n{text}")
    command = ["sweep", str(spec), "--as", NAME, "--resume", "--data", str(data)]
    finished: set[str] = set()
    lost = 0

    def done() -> set[str]:
        return {run.run_id for run in runs(data) if run.status == "done" and run.valid}

    def loading(seconds: float) -> Callable[[], bool]:
        def wait() -> bool:
            wait_for(lambda: left_over(data), 60)
            time.sleep(seconds)
            return True

        return wait

    def measured() -> bool:
        before = len(records(data))
        return bool(wait_for(lambda: len(records(data)) > before + 4, 240))

    def in_the_next_start() -> bool:
        wait_for(done, 240)
        return loading(3)()

    def stopping() -> bool:
        return bool(wait_for(lambda: '"stop"' in (data / "progress.json").read_text(), 240))

    def api_server_killed_too() -> bool:
        """The engine and its worker live on without their leader: only their session and their log tell them."""
        measured()
        lease = session.read_lease(data / "server.json")
        assert lease is not None
        os.kill(lease.pid, signal.SIGKILL)
        return True

    moments = (loading(8), measured, in_the_next_start, api_server_killed_too, stopping)
    with Reader(data / "results.duckdb") as reader:
        for kill_now in moments:
            process = start(command, output)
            assert kill_now()
            process.kill()
            process.join()
            assert process.exitcode == -signal.SIGKILL, output.read_text()[-3000:]
            assert left_over(data) or kill_now is stopping  # it did leave its server behind
            now = done()
            lost += len(finished - now)
            finished |= now
        process = start(command, output)
        process.join()
        assert process.exitcode == 0, output.read_text()[-3000:]
        time.sleep(0.5)
    kept = runs(data)
    attempts = [(run.k, run.attempt, run.status) for run in kept]
    print(f"{lost} of {len(finished)} finished runs lost in kills, {reader.reads} reads, launches {attempts}")
    assert lost == 0
    assert finished <= done()
    assert sorted(run.k for run in kept if run.status == "done") == [0, 1, 3]  # each once, none repeated
    assert reader.faults == []
    assert reader.finished == 3
    assert warm_ups_are_whole(data)
    assert left_over(data) == []
    assert not port_in_use("127.0.0.1", PORT)
    assert output.read_text().count("ended the server (process") >= len(moments) - 1
