"""The worker and its queue: order, restarts, bad specs, crashes, signals."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend import worker as worker_module
from backend.errors import Refused, SpecError
from backend.progress import waiting
from backend.spec_file import BASE_HEADER, load, renamed
from backend.store.lock import WriterLock
from backend.worker import Worker, enqueue
from tests.standin.specs import write_spec
from tests.sweep.harness import left_over, running, runs, wait_for

Write = Callable[..., Path]


class Scripted(Worker):
    """A worker whose sweeps end with these codes, in turn; it ends itself when they are used up."""

    def __init__(self, data_dir: Path, *codes: int, words: str = "last words") -> None:
        self.said: list[str] = []
        self.taken: list[str] = []
        self.codes, self.words = list(codes), words
        super().__init__(data_dir, say=self.said.append, crash_pause_s=0.01)

    def _run(self, spec_path: Path, log: Path) -> int:
        self.taken.append(load(spec_path).name)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"12:00:00 something\n{self.words}\n\n")
        code = self.codes.pop(0)
        self._ending = not self.codes
        return code


def places(data: Path) -> dict[str, list[str]]:
    """Names of the specs, by where they lie (enqueue writes TIMEZ-NAME.toml)."""
    queue = data / "queue"
    return {
        name: sorted(path.stem.split("Z-")[-1] for path in folder.glob("*.toml"))
        for name, folder in {"queue": queue, **{n: queue / n for n in ("running", "done", "failed")}}.items()
        if any(folder.glob("*.toml"))
    }


def test_enqueue_keeps_the_folder_of_the_paths(standin_spec: Write, tmp_path: Path) -> None:
    spec = standin_spec(name="one")
    queued = enqueue(spec, tmp_path / "data")
    again = enqueue(spec, tmp_path / "data", "another")
    assert queued.name.endswith("Z-one.toml")
    assert queued.read_text() == f"{BASE_HEADER}{spec.parent}\n{spec.read_text()}"
    assert load(queued) == load(spec)
    assert load(again) == renamed(load(spec), "another")
    assert waiting(tmp_path / "data") == tuple(sorted((again.stem, queued.stem)))
    assert enqueue(queued, tmp_path / "data").read_text() == queued.read_text()  # a queued spec, once more


def test_two_of_one_name_in_one_second(standin_spec: Write, tmp_path: Path) -> None:
    queued = {enqueue(standin_spec(), tmp_path / "data") for _ in range(3)}
    assert len(queued) == 3


def test_enqueue_refuses_what_cannot_run(standin_spec: Write, tmp_path: Path) -> None:
    spec = standin_spec(server_argv=["no-such-program"])
    with pytest.raises(SpecError, match="no-such-program"):
        enqueue(spec, tmp_path / "data")
    assert waiting(tmp_path / "data") == ()


def test_specs_are_taken_in_the_order_of_their_names(tmp_path: Path) -> None:
    queue = tmp_path / "data" / "queue"
    for name in ("c", "a", "b"):
        write_spec(queue, name=name)  # by hand: relative to queue/
    working = Scripted(tmp_path / "data", 0, 0, 0)
    working.work()
    assert working.taken == ["a", "b", "c"]
    assert places(tmp_path / "data") == {"done": ["a", "b", "c"]}
    assert load(queue / "done" / "a.toml").workload.prompts == queue / "prompts.jsonl"


def test_a_bad_spec_fails_with_its_reason_and_the_worker_goes_on(tmp_path: Path) -> None:
    queue = tmp_path / "data" / "queue"
    write_spec(queue, name="b-good")
    (queue / "a-bad.toml").write_text("name = 'bad'\ndepth = [1]\n")
    (queue / "a-worse.toml").write_bytes(b"\xff\xfe")
    working = Scripted(tmp_path / "data", 0)
    working.work()
    assert places(tmp_path / "data") == {"done": ["b-good"], "failed": ["a-bad", "a-worse"]}
    assert "did you mean 'depths'?" in (queue / "failed" / "a-bad.reason").read_text()
    assert len((queue / "failed" / "a-bad.reason").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("codes", "words", "reason"),
    [
        ((2, 0), "refused: port 1 is in use", "refused: port 1 is in use"),
        (
            (3, 0),
            "no valid result: s:r001b0k3a2 (its reason ...)",
            "finished, but without a valid result: s:r001b0k3a2",
        ),
        ((143, 0), "error: interrupted by signal 15", "ended by hand: error: interrupted by signal 15"),
        ((1, -9, 1, 0), "error: No space left", "ended 3 times without a new run: error: No space left"),
    ],
)
def test_how_a_sweep_fails(tmp_path: Path, codes: tuple[int, ...], words: str, reason: str) -> None:
    queue = tmp_path / "data" / "queue"
    write_spec(queue, name="a")
    write_spec(queue, name="b")
    working = Scripted(tmp_path / "data", *codes, words=words)
    working.work()
    assert places(tmp_path / "data") == {"failed": ["a"], "done": ["b"]}
    assert (queue / "failed" / "a.reason").read_text() == reason + "\n"


def test_a_sweep_that_crashes_but_gets_on_is_resumed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_spec(data / "queue", name="a")
    done = iter(range(100))

    class GetsOn(Scripted):
        def _run(self, spec_path: Path, log: Path) -> int:
            (data / "progress.json").write_text(json.dumps({"runs_done": next(done)}))
            return super()._run(spec_path, log)

    working = GetsOn(data, *([-9] * 7), 0)
    working.work()
    assert places(data) == {"done": ["a"]}
    assert len(working.taken) == 8


def test_what_lies_in_running_is_resumed_first(tmp_path: Path) -> None:
    write_spec(tmp_path / "data" / "queue", name="a")
    write_spec(tmp_path / "data" / "queue" / "running", name="z")
    working = Scripted(tmp_path / "data", 0, 0)
    working.work()
    assert working.taken == ["z", "a"]


def test_an_ending_worker_leaves_its_spec_in_running(tmp_path: Path) -> None:
    write_spec(tmp_path / "data" / "queue", name="a")
    Scripted(tmp_path / "data", 143).work()
    assert places(tmp_path / "data") == {"running": ["a"]}


def test_one_queue_one_worker(tmp_path: Path) -> None:
    (tmp_path / "data" / "queue").mkdir(parents=True)
    lock = WriterLock(tmp_path / "data" / "queue")
    with pytest.raises(Refused, match="another writer"):
        Worker(tmp_path / "data", say=print).work()
    lock.release()


def test_it_waits_for_another_writer_and_then_says_that_it_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep by hand in the same directory: its progress file is left alone, and the spec waits its turn."""
    data = tmp_path / "data"
    write_spec(data / "queue", name="a")
    write_spec(data / "queue", name="b")
    lock, rests = WriterLock(data), []
    (data / "progress.json").write_text('{"state": "running"}')
    monkeypatch.setattr(worker_module, "POLL_S", 0.01)

    class Waits(Scripted):
        def _wait(self, seconds: float) -> None:
            rests.append((data / "progress.json").read_text())
            if len(rests) == 3:
                lock.release()

    working = Waits(data, 0)
    working.work()
    assert set(rests) == {'{"state": "running"}'}
    assert working.taken == ["a"]
    Waits(data, 0).work()
    working = Waits(data)
    monkeypatch.setattr(working, "_wait", lambda _seconds: setattr(working, "_ending", True))
    working.work()
    assert json.loads((data / "progress.json").read_text())["state"] == "idle"


def test_a_worker_for_real(standin_spec: Write, tmp_path: Path) -> None:
    """SIGTERM in the middle of a run; a second worker resumes it, goes on with the queue, and is idle in the end."""
    data, output = tmp_path / "data", tmp_path / "output.txt"
    enqueue(standin_spec(name="a", depths=(0, 2), fault="slow ms=10", prompts=16), data)
    enqueue(standin_spec(name="b", depths=(1,)), data)
    with running(["worker", "--data", str(data)], output) as process:
        wait_for(lambda: (data / "progress.json").exists() and '"measure"' in (data / "progress.json").read_text(), 60)
        os.kill(process.pid or 0, signal.SIGTERM)
        process.join(30)
        assert process.exitcode == 0
    assert [run.status for run in runs(data)][-1] == "interrupted"
    assert left_over(data) == []
    assert "stays in running/" in output.read_text()
    with running(["worker", "--data", str(data)], output) as process:
        wait_for(lambda: json.loads((data / "progress.json").read_text())["state"] == "idle", 90)
        os.kill(process.pid or 0, signal.SIGTERM)
        process.join(10)
    assert places(data) == {"done": ["a", "b"]}, output.read_text()
    assert sorted((run.sweep, run.k) for run in runs(data) if run.valid) == [("a", 0), ("a", 2), ("b", 1)]


def test_a_killed_worker_leaves_its_sweep_to_end(standin_spec: Write, tmp_path: Path) -> None:
    """kill -9 of the worker alone: its sweep goes on, the next worker waits for it and repeats nothing."""
    data, output = tmp_path / "data", tmp_path / "output.txt"
    enqueue(standin_spec(name="a", depths=(0, 1), fault="slow ms=10", prompts=16), data)
    with running(["worker", "--data", str(data)], output) as process:
        wait_for(lambda: (data / "progress.json").exists() and '"measure"' in (data / "progress.json").read_text(), 60)
        process.kill()
    with running(["worker", "--data", str(data)], output):
        wait_for(lambda: places(data) == {"done": ["a"]}, 90)
    exits = [run.attempt for run in runs(data) if run.status == "done" and run.valid]
    assert len(exits) == 2
    assert {run.status for run in runs(data)} == {"done"}
    assert left_over(data) == []


def test_what_a_killed_enqueue_left_is_swept(tmp_path: Path) -> None:
    queue = tmp_path / "data" / "queue"
    write_spec(queue, name="a")
    for name, age_s in (("old.tmp", 7200), ("new.tmp", 0)):
        (queue / name).write_text("half a spec")
        os.utime(queue / name, (time.time() - age_s,) * 2)
    Scripted(tmp_path / "data", 0).work()
    assert [path.name for path in queue.glob("*.tmp")] == ["new.tmp"]
