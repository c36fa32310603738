"""What a person sees: tables of Estimates, and a sweep's progress (a bar on a terminal, plain lines elsewhere)."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from backend.analysis.estimate import Estimate
from backend.progress import Progress


def figure(estimate: Estimate, digits: int = 4) -> str:
    """An estimate as "436 [428, 444]" with the digits its interval supports; "-" where there is no value."""
    if estimate.value is None:
        return "-"
    decimals = _decimals(estimate, digits)
    text = f"{estimate.value:.{decimals}f}"
    if estimate.low is None and estimate.high is None:
        return text
    low = "-inf" if estimate.low is None else f"{estimate.low:.{decimals}f}"
    high = "inf" if estimate.high is None else f"{estimate.high:.{decimals}f}"
    return f"{text} [{low}, {high}]"


def _decimals(estimate: Estimate, digits: int) -> int:
    """Decimals that show the interval's width to two digits and the value to three; at most 4."""
    width = estimate.high - estimate.low if estimate.low is not None and estimate.high is not None else None
    if estimate.unit == "K" or not (estimate.value or width):
        return 0
    size = math.floor(math.log10(abs(estimate.value or width or 1)))
    if not width:
        return min(4, max(0, digits - 1 - size))
    return min(4, max(0, 2 - size, 1 - math.floor(math.log10(width))))


def show(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Print a table and the notes under it; never cut by a narrow terminal."""
    say(title)
    table = Table(*headers, box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    for note in notes:
        say(note)


def say(line: str) -> None:
    """Print a line as it is: no colours, no markup, broken by the terminal alone."""
    Console().print(line, highlight=False, markup=False, soft_wrap=True)


class SweepMonitor:
    """Shows a sweep's progress; use as a context manager and pass `listen` to the sweep."""

    def __init__(self, *, terminal: bool | None = None) -> None:
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs"),
            TextColumn("{task.fields[doing]}"),
            console=Console(stderr=True),
            disable=not self._terminal,
        )
        self._task = self._bar.add_task("sweep", total=None, doing="")
        self._last_line = ""

    def __enter__(self) -> SweepMonitor:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def listen(self, now: Progress) -> None:
        """Take one progress update."""
        doing = f"K={now.k} {now.phase}" if now.k is not None and now.phase else (now.phase or now.state)
        if self._terminal:
            requests = f" {now.requests_done}/{now.requests_total}" if now.requests_total else ""
            self._bar.update(
                self._task,
                description=now.sweep,
                total=now.runs_total,
                completed=now.runs_done,
                doing=f"{doing}{requests}{_eta(now)}",
            )
            return
        if now.state == "running" and now.phase is None:
            return  # between two runs: the next line says which
        line = f"{now.sweep}: run {min(now.runs_done + 1, now.runs_total)}/{now.runs_total} {doing}{_eta(now)}"
        if now.state != "running":
            line = f"{now.sweep}: {now.state}, {now.runs_done}/{now.runs_total} runs done, {now.runs_failed} failed"
        if now.message:
            line += f" ({now.message.splitlines()[0]})"
        if line != self._last_line:
            self._last_line = line
            self._bar.console.print(
                f"{time.strftime('%H:%M:%S')} {line}", highlight=False, markup=False, soft_wrap=True
            )


def _eta(now: Progress) -> str:
    if now.eta_s is None:
        return ""
    minutes, seconds = divmod(round(now.eta_s), 60)
    return f", {minutes} min {seconds:02d} s left"
