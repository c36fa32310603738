"""The worker: takes specs from <data>/queue/*.toml in the order of their names and sweeps one after the other.

A spec is in one place at a time, moved by rename: queue/ -> queue/running/ -> queue/done/ or queue/failed/, there with
its reason beside it (NAME.reason). Whatever lies in running/ when a worker starts is resumed. Each sweep is a process
of its own (`sweep --resume`), so that nothing of it stays in a worker that runs for months.

Paths in a spec are relative to its folder, and specs move: `enqueue` writes that folder into the first line. A spec
that was put into queue/ by hand is relative to queue/.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

from backend.engines.process import tail
from backend.errors import Refused, SpecError
from backend.preflight import check
from backend.progress import PROGRESS_FILE, QUEUE, Progress, ProgressFile, waiting
from backend.schedule import plan
from backend.spec_file import BASE_HEADER, load, renamed
from backend.store.lock import WriterLock
from backend.store.paths import REPOSITORY

RUNNING, DONE, FAILED = "running", "done", "failed"
POLL_S, BEAT_S = 1.0, 30.0  # how often the queue is looked at; how often an idle worker says that it lives
CRASH_PAUSE_S, CRASHES = (
    60.0,
    3,
)  # a sweep that ends by itself (full disk, out of memory) is resumed; this often in vain
STALE_S = 3600.0
BLANK = Progress("idle", "", 0)


def enqueue(spec_path: Path, data_dir: Path, name: str | None = None) -> Path:
    """Put a spec into the queue, under a name that sorts by time. Raises SpecError for one that cannot run here."""
    spec = load(spec_path)
    check(spec)
    text = spec_path.read_text(encoding="utf-8")
    if not text.startswith(BASE_HEADER):
        text = f"{BASE_HEADER}{spec_path.resolve().parent}\n{text}"
    if name is not None:
        spec, text = renamed(spec, name), _with_name(text, name, spec_path)
    folder = data_dir / QUEUE
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target = _free(folder / f"{stamp}-{spec.name}.toml")
    temporary = target.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(target)
    return target


def _with_name(text: str, name: str, spec_path: Path) -> str:
    """The spec with another `name`, everything else as it was."""
    renamed = re.sub(r"(?m)^name\s*=.*$", f'name = "{name}"', text, count=1)
    if tomllib.loads(renamed) != {**tomllib.loads(text), "name": name}:
        raise SpecError("cannot be renamed", where=str(spec_path), fix="put its name on a line of its own")
    return renamed


def _free(path: Path) -> Path:
    """The path, or the first of its kind that nobody has: x.toml, x.2.toml, x.3.toml."""
    number, candidate = 1, path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.stem}.{number}{path.suffix}")
    return candidate


class Worker:
    """Works on the queue of a data directory until a signal ends it. One queue, one worker."""

    def __init__(self, data_dir: Path, *, say: Callable[[str], None], crash_pause_s: float = CRASH_PAUSE_S) -> None:
        self.data_dir, self.queue = data_dir.resolve(), data_dir.resolve() / QUEUE
        self._say, self._crash_pause_s = say, crash_pause_s
        self._ending = False
        self._idle = BLANK
        self._idle_written = float("-inf")

    def work(self) -> None:
        """Take and sweep until SIGTERM or SIGINT. Raises Refused where another worker is at work already."""
        for name in (RUNNING, DONE, FAILED):
            (self.queue / name).mkdir(parents=True, exist_ok=True)
        lock = WriterLock(self.queue)
        for path in self.queue.glob("*.tmp"):  # of an enqueue that was killed, not of one under way
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()
        before = {number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._say(f"worker: waiting for specs in {self.queue}")
            while not self._ending:
                taken = self._take()
                if taken is None:
                    self._rest("")
                else:
                    self._sweep(taken)
            self._say("worker: ended")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            lock.release()

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._ending = True  # all else happens where the loop is: nothing is interrupted in the middle

    def _take(self) -> Path | None:
        """The spec to work on: one that a stopped worker left in running/, else the first of the queue."""
        left = sorted((self.queue / RUNNING).glob("*.toml"))
        if left:
            return left[0]
        first = min(self.queue.glob("*.toml"), default=None)
        if first is None:
            return None
        target = self.queue / RUNNING / first.name
        text = first.read_text(encoding="utf-8", errors="replace")
        if not text.startswith(BASE_HEADER):
            temporary = first.with_suffix(".tmp")
            temporary.write_text(f"{BASE_HEADER}{self.queue}\n{text}", encoding="utf-8")
            temporary.replace(first)
        first.replace(target)
        return target

    def _sweep(self, spec_path: Path) -> None:
        """Sweep one spec to an end: done, failed, or left in running/ for the next worker."""
        try:
            runs_total = len(plan(load(spec_path)))
        except SpecError as error:
            self._finish(spec_path, FAILED, str(error))
            return None
        self._say(f"worker: {spec_path.stem} begins, {runs_total} runs")
        log = self.data_dir / "logs" / "worker" / f"{spec_path.stem}.log"
        crashes, runs_done = 0, -1
        while not self._ending:
            if self._busy():
                self._rest("another writer is at work in this data directory; waiting for it")
                continue
            code = self._run(spec_path, log)
            said = _last_words(log)
            if code == 0:
                return self._finish(spec_path, DONE, "")
            if code == 2 and self._busy():
                continue  # it came first by an instant
            if code in (2, 3):
                return self._finish(spec_path, FAILED, said)
            if self._ending:
                break
            if code > 128:
                return self._finish(spec_path, FAILED, f"ended by hand: {said}")
            now_done = self._runs_done()
            crashes = 1 if now_done > runs_done else crashes + 1
            runs_done = now_done
            if crashes >= CRASHES:
                return self._finish(spec_path, FAILED, f"ended {crashes} times without a new run: {said}")
            self._say(f"worker: {spec_path.stem} ended with {code} ({said}); it is resumed")
            self._wait(self._crash_pause_s)
        self._say(f"worker: {spec_path.stem} stays in {RUNNING}/, to be resumed")
        return None

    def _run(self, spec_path: Path, log: Path) -> int:
        """One process of the sweep, from its start to its end; a signal to us is handed on. Its exit code."""
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "backend", "sweep", str(spec_path), "--resume", "--data", str(self.data_dir)]
        with log.open("ab") as output:
            sweep = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        told = False
        while (code := sweep.poll()) is None:
            if self._ending and not told:
                sweep.terminate()
                told = True
            time.sleep(0.1)
        return code

    def _finish(self, spec_path: Path, folder: str, reason: str) -> None:
        target = _free(self.queue / folder / spec_path.name)
        if reason:
            target.with_suffix(".reason").write_text(reason + "\n", encoding="utf-8")
        spec_path.replace(target)
        self._say(f"worker: {spec_path.stem} {folder}{f': {reason}' if reason else ''}")

    def _busy(self) -> bool:
        """Whether somebody else writes into the data directory: a sweep by hand, or one whose worker was killed."""
        try:
            WriterLock(self.data_dir).release()
        except Refused:
            return True
        return False

    def _runs_done(self) -> int:
        """How many runs the sweep had finished when it ended, by its progress file; -1 where that says nothing."""
        try:
            return int(json.loads((self.data_dir / PROGRESS_FILE).read_text())["runs_done"])
        except (OSError, ValueError, KeyError):
            return -1

    def _rest(self, message: str) -> None:
        """Nothing to do for a moment; progress.json says so when that is news, and now and then that we live."""
        now = (message, waiting(self.data_dir))
        if now != (self._idle.message, self._idle.queue) or time.monotonic() - self._idle_written > BEAT_S:
            self._idle, self._idle_written = replace(BLANK, message=message, queue=now[1]), time.monotonic()
            if not self._busy():  # while somebody sweeps, progress.json is theirs
                ProgressFile(self.data_dir, lambda _now: None, self._idle).update()
        self._wait(POLL_S)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._ending and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(0.1, left))


def _last_words(log: Path) -> str:
    """Why a sweep ended, in one line: what it lacks, else its last line."""
    lines = [line for line in tail(log).splitlines() if line.strip()]
    lacking = [line.split()[3] for line in lines if line.startswith("no valid result: ")]
    if lacking:
        return f"finished, but without a valid result: {', '.join(dict.fromkeys(lacking))}"
    return lines[-1].strip() if lines else "it said nothing"
