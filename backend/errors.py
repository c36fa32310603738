"""What can go wrong, in the words a user reads: one line that says what, where and what to do.

Each kind carries the exit code of the command line. A failed *run* is not an exception that reaches
the user: the sweep catches `RunFailed`, stores it as a row with its reason, and goes on.
"""

from __future__ import annotations


class SoundingError(Exception):
    """Base of everything this project raises on purpose.

    `what` is the fault, `where` the file, arm or address it was found at, `fix` what to do about it.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(": ".join(part for part in (where, what) if part) + (f" ({fix})" if fix else ""))


class Refused(SoundingError):
    """Refused before anything was written: bad spec, missing model, busy port, unknown sweep, second writer."""

    exit_code = 2


class SpecError(Refused):
    """A sweep specification that cannot be run as written."""


class StoreError(SoundingError):
    """A journal or database that cannot be read or written (foreign schema, full disk)."""


class RunFailed(SoundingError):
    """One run (one launch of one depth) failed; `kind` is the stored code, `log_tail` the evidence.

    Kinds: `launch` (could not start), `not_ready` (no readiness in time), `stalled` (no log progress while
    loading), `died` (the server ended by itself), `wrong_depth` (it reports another K), `http` (answered an
    error), `short_output` (fewer tokens than it must), `wont_stop` (processes or port not released),
    `disk` (the journal could not be written), `transport` (RoCE was asked, NCCL uses TCP or does not say).
    """

    exit_code = 3

    def __init__(self, what: str, *, kind: str, where: str = "", fix: str = "", log_tail: str = "") -> None:
        super().__init__(what, where=where, fix=fix)
        self.kind, self.log_tail = kind, log_tail


class NodeError(SoundingError):
    """A node that cannot be reached, does not answer in time, or whose shell does not pass on what it is given."""

    exit_code = 2


class Interrupted(SoundingError):
    """Ended by a signal (SIGINT 130, SIGTERM 143); the run under way was marked."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(
            f"interrupted by signal {signal_number}; the run under way is marked interrupted",
            fix="go on with: python -m backend sweep SPEC --resume",
        )
        self.exit_code = 128 + signal_number
