"""Sweeps of the stand-in, in this process or in one that can be killed, and what their journals say afterwards."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from backend import sweep as sweep_module
from backend.engines import session
from backend.progress import Progress
from backend.records import Failure, Finding, Record, Run
from backend.spec_file import load
from backend.store import journal
from backend.store.database import Store
from backend.sweep import Outcome, run_sweep

ROOT = Path(__file__).parents[2]
# A fork server with the program imported: a sweep then starts in 50 ms instead of 3 s, and can be killed like any other
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["backend.cli", "tests.sweep.harness"])


def sweep(
    spec_path: Path, data_dir: Path, *, resume: bool = False, listener: Callable[[Progress], None] = lambda now: None
) -> Outcome:
    """Run a sweep in this process."""
    with Store(data_dir, bundled={}, code_version="test") as store:
        return run_sweep(load(spec_path), spec_path.read_text(), store, resume=resume, listener=listener)


def trust_the_clocks() -> None:
    """No exclusions: on a busy test machine the client is starved, and its runs would rightly be repeated."""
    sweep_module.exclusions = lambda _found: {}


def records(data_dir: Path) -> list[Record]:
    """Everything in the journals, files in order of their names."""
    return [record for path in sorted(data_dir.glob("journal/*/*.jsonl")) for record in journal.read(path).records]


def runs(data_dir: Path, sweep_name: str | None = None) -> list[Run]:
    """The last state of every run, in order of launch."""
    latest = {record.run_id: record for record in records(data_dir) if isinstance(record, Run)}
    wanted = [run for run in latest.values() if sweep_name in (None, run.sweep)]
    return sorted(wanted, key=lambda run: (run.sweep, run.order_index or 0, run.attempt))


def failures(data_dir: Path) -> list[Failure]:
    """All stored failures."""
    return [record for record in records(data_dir) if isinstance(record, Failure)]


def findings(data_dir: Path, code: str) -> list[Finding]:
    """Stored findings of one code."""
    return [record for record in records(data_dir) if isinstance(record, Finding) and record.code == code]


def left_over(data_dir: Path) -> list[int]:
    """Processes of this data directory's servers that still run, by mark and by log."""
    logs = str(data_dir.resolve() / "logs")
    found = set(session.marked((data_dir / "server.json").resolve()))
    for pid in session.processes():
        with contextlib.suppress(OSError):
            if str(Path(f"/proc/{pid}/fd/1").readlink()).startswith(logs):
                found.add(pid)
    return [pid for pid in found if (stat := session.stat_of(pid)) is not None and stat.state not in "ZX"]


def start(arguments: list[str], output: Path, *, die_at: str = "") -> BaseProcess:
    """`python -m backend ARGUMENTS` in a process of its own, its output in a file. `die_at`: see DEATHS."""
    process = FORKS.Process(target=_main, args=(arguments, str(output), die_at))
    process.start()
    return process


def wait_for(condition: Callable[[], Any], timeout_s: float = 30) -> Any:
    """The condition's value once it is true. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("waited in vain")
        time.sleep(0.01)
    return value


def _main(arguments: list[str], output: str, die_at: str) -> None:
    from backend import cli

    os.chdir(ROOT)
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests themselves were started with nohup
    trust_the_clocks()
    if die_at:
        DEATHS[die_at]()
    sys.argv = ["python -m backend", *arguments]
    cli.main()


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before_the_lease() -> None:
    from backend.engines import process

    process.write_lease = _die


def _in_a_journal_line() -> None:
    """Half of a line reaches the file: the sixth write of this process, a measured request, is torn."""
    write, count = os.write, iter(range(1_000_000))

    def torn(handle: int, content: Any) -> int:
        if next(count) < 5:
            return write(handle, content)
        write(handle, bytes(content)[: len(content) // 2])
        _die()
        return 0

    journal.os = _Patched(os, write=torn)  # type: ignore[attr-defined]


def _before_the_snapshot_is_in_place() -> None:
    copy = Store._copy

    def copied(self: Store, temporary: Path) -> None:
        copy(self, temporary)
        if list(self.data_dir.glob("journal/*/r*.jsonl")):
            _die()

    Store._copy = copied  # type: ignore[method-assign]


class _Patched:
    """A module with some names replaced, for one importer alone."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


DEATHS = {
    "before the lease": _before_the_lease,
    "in a journal line": _in_a_journal_line,
    "before the snapshot is in place": _before_the_snapshot_is_in_place,
}


@contextlib.contextmanager
def running(arguments: list[str], output: Path) -> Iterator[BaseProcess]:
    """A started command that does not outlive the block."""
    process = start(arguments, output)
    try:
        yield process
    finally:
        process.kill()
        process.join()
