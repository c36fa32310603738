"""vLLM server logs: K, drafts and acceptance, pooled over all windows by their drafts.

A log holds all that its server did (warm-up too) and no decode times, so tok/s and cycle stay unknown: the logger's
"generation throughput" is a mean over wall time, idle time too. Both wordings of the SpecDecoding line are read.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from backend.errors import Refused
from backend.importers.counts import draft_figures, impossible_counts
from backend.importers.found import Found, figure, settle_depth
from backend.records import Finding, ReportedValue

FORMAT = "vLLM server log"
LOOKS_LIKE = re.compile(r"SpecDecoding metrics:|LLM engine \(v|Avg generation throughput:|non-default args:")
WORKLOAD = "server-log"  # a cell of its own: never pooled with runs whose requests are known

ENGINE = re.compile(
    r"LLM engine \(v(?P<version>[^)]*)\) with config: model='(?P<model>[^']*)', "
    r"speculative_config=(?P<spec>None|SpeculativeConfig\((?P<inside>.*?)num_spec_tokens=(?P<k>\d+)\))"
)
SERVED = re.compile(r"served_model_name=([^,\s]+)")
SPEC_PART = {name: re.compile(rf"\b{name}='([^']*)'") for name in ("method", "model", "draft_model")}
ARGUMENT = re.compile(r"""['"]num_speculative_tokens['"]:\s*(\d+)""")
RUNNING = re.compile(r"Avg generation throughput: .*?Running: (\d+) reqs")
WINDOW = re.compile(r"SpecDecoding metrics: (.*)")
COUNTS = re.compile(r"Accepted: (\d+) tokens, Drafted: (\d+) tokens")
LENGTH = re.compile(r"Mean acceptance length: (\d+(?:\.\d+)?)")
RATES = re.compile(r"Per-position acceptance rate: (\d+\.\d+(?:, \d+\.\d+)*)")
LENGTH_ROUNDING = 0.0051  # the line prints two decimals


@dataclass(frozen=True, slots=True)
class Window:
    """One SpecDecoding line: what was drafted since the line before. rates: survival by position, 3 decimals."""

    accepted: int
    drafted: int
    length: float | None
    rates: tuple[float, ...]

    def drafts(self, k: int) -> tuple[int, bool]:
        """(steps that carried a draft, whether some were cut short of K).

        drafted / K, unless the printed acceptance length says otherwise: then accepted / sum of rates.
        """
        full = math.ceil(self.drafted / k)
        trimmed = bool(self.drafted % k)
        agrees = self.length is None or abs(1 + self.accepted / full - self.length) <= LENGTH_ROUNDING
        total = sum(self.rates)
        if agrees or not total:
            return full, trimmed
        return round(self.accepted / total), True


def parse(text: str, place: str, given_k: int | None) -> Found:
    """The run that a log tells. Raises Refused: K unknown or contradictory, a broken line, nothing drafted at K > 0."""
    lines = text.split("\n")
    windows = _windows(lines, place)
    engine = next((found for line in lines if (found := ENGINE.search(line))), None)
    k, by = settle_depth(
        _told(lines, windows), given_k, place, "it has neither the engine's config line nor SpecDecoding lines"
    )
    if k and not windows:
        raise Refused(
            f"K={k} but no SpecDecoding line, so it tells nothing about drafts",
            where=place,
            fix="import the log of a server that has served requests (with its log statistics on)",
        )
    figures, findings, notes = _pooled(windows, k) if k else (_undrafted(), [], [])
    first = next(line for line in lines if LOOKS_LIKE.search(line))
    busiest = max((int(found[1]) for line in lines if (found := RUNNING.search(line))), default=1)
    notes.append(
        f"concurrency {max(busiest, 1)} is the most that a log line shows running; "
        "a server log tells no decode times, so tok/s and cycle stay empty"
    )
    return Found(
        place=place,
        format=FORMAT,
        identity=hashlib.sha256(first.strip().encode()).hexdigest()[:10],  # so that a log that grew is the same run
        k=k,
        k_by=by,
        models=_models(engine),
        concurrency=max(busiest, 1),
        workload=WORKLOAD,
        speculator=_speculator(engine),
        figures=tuple(figures),
        findings=tuple(findings),
        facts={"vllm_version": engine["version"]} if engine else {},
        notes=tuple(notes),
    )


def _windows(lines: Sequence[str], place: str) -> list[Window]:
    """All windows in which something was drafted. Raises Refused for a line without counts, unless it is a torn end."""
    windows = []
    for number, line in enumerate(lines, start=1):
        said = WINDOW.search(line)
        if said is None:
            continue
        counts = COUNTS.search(said[1])
        if counts is None:
            if number == len(lines):
                continue  # the log was copied while this line was being written
            raise Refused(f"line {number}: SpecDecoding line without accepted and drafted tokens", where=place)
        accepted, drafted = map(int, counts.groups())
        length, rates = LENGTH.search(said[1]), RATES.search(said[1])
        if drafted or accepted:
            windows.append(
                Window(
                    accepted,
                    drafted,
                    float(length[1]) if length else None,
                    tuple(map(float, rates[1].split(", "))) if rates else (),
                )
            )
    return windows


def _told(lines: Sequence[str], windows: Sequence[Window]) -> dict[str, int]:
    """What says K -> that K, of everything in the log that does."""
    told: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        engine = ENGINE.search(line)
        if engine is not None:
            told[f"the engine's config (line {number})"] = int(engine["k"] or 0)
        elif "non-default args:" in line and (argument := ARGUMENT.search(line)):
            told[f"the server's arguments (line {number})"] = int(argument[1])
    lengths = sorted({len(window.rates) for window in windows if window.rates})
    return told | {f"the {length} per-position rates of a SpecDecoding line": length for length in lengths}


def _pooled(windows: Sequence[Window], k: int) -> tuple[list[ReportedValue], list[Finding], list[str]]:
    """Sums over windows; survival weighted by the windows' drafts. Never a mean of window means."""
    drafts, trimmed = zip(*(window.drafts(k) for window in windows), strict=True)
    drafted = sum(window.drafted for window in windows)
    accepted = sum(window.accepted for window in windows)
    survival = []
    if all(window.rates for window in windows):
        survival = [
            sum(window.rates[position] * n for window, n in zip(windows, drafts, strict=True)) / sum(drafts)
            for position in range(k)
        ]
    note = f"pooled over {len(windows)} windows of the server log by their drafts"
    notes = []
    if any(trimmed):
        notes.append("some drafts were shorter than K: drafted steps follow from the rates, printed to 3 decimals")
    figures = draft_figures(sum(drafts), drafted, accepted, survival, "; ".join([note, *notes]))
    return figures, impossible_counts(k, sum(drafts), drafted, accepted), notes


def _undrafted() -> list[ReportedValue]:
    return [figure("acceptance_length", 1.0, "tokens", "exact: K=0 emits one token a step")]


def _models(engine: re.Match[str] | None) -> tuple[str, ...]:
    if engine is None:
        return ()
    served = SERVED.search(engine.string)
    return tuple(dict.fromkeys(name for name in (engine["model"], served[1] if served else "") if name))


def _speculator(engine: re.Match[str] | None) -> tuple[str | None, str | None]:
    inside = engine["inside"] if engine and engine["inside"] else ""
    method, model, draft_model = (part.search(inside) for part in SPEC_PART.values())
    model = model or draft_model
    return method[1] if method else None, model[1] if model else None
