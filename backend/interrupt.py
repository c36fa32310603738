"""Signals that end a sweep: kept until the code is at a place where it can be interrupted, then raised there.

An exception out of a signal handler can strike between any two instructions: between a server's launch and the
variable that holds it, or in the middle of a journal line. So a signal raises only inside `interruptible`, and anywhere
else waits for the next one. Signals after the first change nothing: the clean-up goes on to its end.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from backend.errors import Interrupted


class Signals:
    """Catches SIGINT and SIGTERM while it is entered, and SIGHUP unless it was ignored (nohup).

    Use in the main thread. `pending` is the first signal that came, None before.
    """

    def __init__(self) -> None:
        self.pending: int | None = None
        self.raising = False
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        if self.pending is None:
            self.pending = number
        if self.raising:
            self.raising = False
            raise Interrupted(self.pending)

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.pending is not None:
            self.raising = False
            raise Interrupted(self.pending)

    def interruptible(self) -> _Section:
        """Inside, a signal raises Interrupted at once; one that came before raises on entry."""
        return _Section(self, True)

    def held(self) -> _Section:
        """Inside, a signal waits; it is raised at the end if that lies in an interruptible section."""
        return _Section(self, False)


class _Section:
    """A stretch of code in which signals raise or wait. In other threads than the main one it does nothing."""

    def __init__(self, signals: Signals, raising: bool) -> None:
        self._signals, self._raising = signals, raising
        self._outer = False
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        if self._active:
            self._outer = self._signals.raising
            self._signals.raising = self._raising
            if self._raising:
                self._signals.check()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active:
            self._signals.raising = self._outer and kind is None
            if self._signals.raising:
                self._signals.check()
