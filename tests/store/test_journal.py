"""The journal: what was acknowledged is there, what was torn is told, what is corrupt is refused."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from backend.errors import StoreError
from backend.store import journal
from backend.store.journal import Journal
from backend.store.lines import to_line
from tests.store.store_samples import run, sweep


def test_appended_records_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "s" / "r.jsonl"
    with Journal(path) as writer:
        writer.append(sweep())
        writer.append(run("a", 1), run("b", 2))
        writer.append()
        assert journal.read(path).records == [sweep(), run("a", 1), run("b", 2)]  # while the writer has it open
    with Journal(path) as writer:
        assert writer.torn is None
        writer.append(run("c", 3))
    assert [type(row).__name__ for row in journal.read(path).records] == ["Sweep", "Run", "Run", "Run"]


@pytest.mark.parametrize("cut", [1, 2, 40, -1])
def test_a_torn_last_line_is_dropped_and_told(tmp_path: Path, cut: int) -> None:
    """cut: bytes of the last line that reached the disk; -1: all but its newline, which was not acknowledged either."""
    path = tmp_path / "r.jsonl"
    whole, tail = to_line(run("a", 1)), to_line(run("b", 2))[:cut]
    path.write_bytes(whole + tail)

    seen = journal.read(path)
    assert seen.records == [run("a", 1)]
    assert seen.torn is not None
    assert seen.torn.dropped == tail.decode()
    assert path.read_bytes() == whole + tail  # a reader changes nothing

    with Journal(path) as writer:
        assert writer.torn == seen.torn
        assert "torn last line dropped" in str(writer.torn)
        writer.append(run("c", 3))
    assert journal.read(path) == journal.Contents([run("a", 1), run("c", 3)], None)
    assert journal.recover(path) is None


def test_a_tail_of_zeros_is_a_torn_line(tmp_path: Path) -> None:
    """What some filesystems leave after a power cut: the length grew, the content did not get there."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(to_line(run("a", 1)) + b"\0" * 50)
    assert journal.recover(path) is not None
    assert path.read_bytes() == to_line(run("a", 1))


def test_an_empty_journal_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.touch()
    assert journal.recover(path) is None
    assert journal.read(path) == journal.Contents([], None)


def test_a_corrupt_line_in_the_middle_is_refused_by_number(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(to_line(run("a", 1)) + b'{"record": "Run", "k\n' + to_line(run("b", 2)))
    with pytest.raises(StoreError) as caught:
        journal.read(path)
    assert str(caught.value).startswith(f"{path}: line 2 is corrupt: ")
    assert "\n" not in str(caught.value)


def test_a_missing_journal_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone.jsonl: cannot be read: No such file or directory"):
        journal.read(tmp_path / "gone.jsonl")


def test_a_record_that_cannot_be_stored_leaves_the_whole_batch_out(tmp_path: Path) -> None:
    with Journal(tmp_path / "r.jsonl") as writer:
        with pytest.raises(StoreError, match="server_start_s is inf"):
            writer.append(run("a", 1), run("b", 2, server_start_s=float("inf")))
        writer.append(run("c", 3))
    assert journal.read(tmp_path / "r.jsonl").records == [run("c", 3)]


def test_a_full_disk_is_told_and_leaves_no_half_line(tmp_path: Path) -> None:
    """A file size limit takes a part of the batch, then fails, as a full disk does; afterwards there is room again."""
    path = tmp_path / "r.jsonl"
    limit = len(to_line(run("a", 1))) + 100
    program = f"""
import resource, signal, sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from tests.store.store_samples import run
from backend.errors import StoreError
from backend.store.journal import Journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Journal(Path({str(path)!r})) as writer:
    writer.append(run("a", 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {resource.RLIM_INFINITY}))
    try:
        writer.append(run("b", 2))
    except StoreError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, ({resource.RLIM_INFINITY}, {resource.RLIM_INFINITY}))
    writer.append(run("c", 3))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{path}: cannot be written: File too large")
    assert journal.read(path) == journal.Contents([run("a", 1), run("c", 3)], None)


def test_a_device_without_room_is_told() -> None:
    """/dev/full answers ENOSPC and cannot be cut back: the writer closes itself and says so from then on."""
    writer = Journal(Path("/dev/full"))
    with pytest.raises(StoreError, match=r"cannot be written: No space left on device .*--resume"):
        writer.append(run("a", 1))
    with pytest.raises(StoreError, match="is closed"):
        writer.append(run("a", 1))


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened: "):
        Journal(tmp_path / "file" / "s" / "r.jsonl")


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\\b", "a\0b", "a:b"])
def test_a_sweep_name_that_is_no_directory_is_refused(name: str) -> None:
    with pytest.raises(StoreError, match="cannot be a directory name"):
        journal.directory_name(name)


@pytest.mark.parametrize("run_id", ["s", "s:", "s:..", "s:a/b", "other:r0", "s:sweep"])
def test_a_run_id_that_is_no_file_of_its_sweep_is_refused(run_id: str) -> None:
    with pytest.raises(StoreError):
        journal.run_file("s", run_id)


def test_a_run_has_its_file() -> None:
    assert journal.run_file("s", "s:r0b0k3a1") == "r0b0k3a1.jsonl"


def test_an_append_waits_for_the_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order matters: everything written, then one fsync, then the acknowledgement."""
    calls: list[str] = []
    write, fsync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda *given: (calls.append("write"), write(*given))[1])
    monkeypatch.setattr(os, "fsync", lambda *given: (calls.append("fsync"), fsync(*given))[1])
    with Journal(tmp_path / "new" / "r.jsonl") as writer:
        assert calls == ["fsync", "fsync"]  # the directory of the file, and the directory of that directory
        calls.clear()
        writer.append(run("a", 1), run("b", 2), run("c", 3))
        assert calls == ["write", "fsync"]
