"""The words and units that every page uses for a quantity, and how a number is written.

Keys are columns of `run_cell`. Digits are fixed per quantity, so that a figure reads the same on every page.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

import pandas as pd

from backend.analysis.comparison import Comparison
from backend.analysis.estimate import Estimate
from backend.charts import Axis

ZERO_WIDTH_SPACE = "\N{ZERO WIDTH SPACE}"
_FETCHED = re.compile(r"!\[|\]\((?!runs\?)|\]\[|\]:")  # images and links of Markdown; `link.to_runs` writes our own
QUANTITIES: dict[str, Axis] = {
    "decode_tok_s": Axis("Decode throughput", "tok/s", 2),
    "tokens_per_step": Axis("Tokens per step", "tokens", 3),
    "cycle_ms": Axis("Cycle time", "ms", 2),
    "acceptance_length": Axis("Acceptance length", "tokens", 3),
    "acceptance": Axis("Acceptance", "1", 3),
    "ttft_s": Axis("Time to first token", "s", 3),
    "power_w": Axis("Power", "W", 1),
    "tokens_per_joule": Axis("Energy efficiency", "tok/J", 3),
}
MEANING: dict[str, str] = {
    "decode_tok_s": "Tokens after the first, over the time from first to last token; sums over a run's requests.",
    "tokens_per_step": "Tokens emitted per decode step, steps without a draft included.",
    "cycle_ms": "Decode time per step at concurrency 1: one draft plus one verify step.",
    "acceptance_length": "1 + accepted drafts per drafted step.",
    "acceptance": "Accepted drafts over drafted tokens.",
    "ttft_s": "Queue plus prefill, mean over requests.",
    "power_w": "Mean power while measuring, summed over all nodes.",
    "tokens_per_joule": "Decode throughput over power.",
}
IN_PARALLEL = (
    "Above concurrency 1: tokens generated while all clients were busy, over that time, by the server's counters."
)
WORDS: dict[str, str] = {
    "K, draft depth": "tokens that the drafter proposes a step; 0 is no speculation",
    "cycle": "one decode step: draft, verify, sample, and what lies between",
    "run": "one server started at one K, measured, stopped",
    "block": "one run of every K, in random order; what changes from block to block is taken out",
    "cell": "one set of measuring conditions: concurrency, context length, workload",
    "anchor": "a run of K=0 before and after all blocks: shows drift, in no figure",
    "canary": "a fixed small computation before and after a run: is the node as fast as it was?",
    "survival": "the share of drafted steps whose first i drafts were all accepted",
    "composition": "deeper drafts start at other places of the text, of other difficulty",
    "Holm": "p-values and intervals made wider, since many pairs are compared",
}
GLOSSARY = "\n".join(f"- **{word}**: {meaning}" for word, meaning in WORDS.items())
SOURCES: dict[str, tuple[str, str]] = {  # source -> (badge colour, what it means)
    "measured": ("green", "Measured here by Sounding."),
    "published": (
        "violet",
        "Figures that a publication printed. What was not printed is missing, and single figures have no interval.",
    ),
    "simulated": ("orange", "Simulated from a known truth. Not a measurement."),
    "imported": ("blue", "Taken over from another tool's result files."),
}


def explained(concurrency: int | None) -> str:
    """What explains throughput by depth in a cell."""
    if concurrency is not None and concurrency > 1:
        return (
            f"{IN_PARALLEL} A step then serves several requests, so there is no cycle of one: tokens per step is half "
            "of the explanation."
        )
    return "Throughput is tokens per step over cycle time: depth raises both."


def figure(estimate: Estimate, axis: Axis) -> str:
    """A figure for a column whose header has the unit: "24.05 [23.10, 25.00]"."""
    return axis.figure(estimate.value, estimate.low, estimate.high)


def percent(estimate: Estimate, *, signed: bool = False) -> str:
    """A share or change to one decimal, its column names the %: "11.2 [9.8, 12.6]"; signed: "+11.2"."""
    if estimate.value is None:
        return "not known"
    form = "{:+.1f}" if signed else "{:.1f}"
    text = form.format(estimate.value)
    if estimate.low is not None and estimate.high is not None:
        text += f" [{form.format(estimate.low)},\N{NO-BREAK SPACE}{form.format(estimate.high)}]"
    return text


def verdict(comparison: Comparison) -> str:
    """The answer in a few words; `backend.analysis.sentence` says the rest."""
    advice = comparison.recommendation
    if advice is None:
        return "No answer yet"
    if len(comparison.depths) == 1:
        return f"Only K={advice.k} was measured"
    if not advice.resolved:
        return f"Best so far: K={advice.k}, not resolved"
    return f"Speculate K={advice.k}" if advice.k else "Do not speculate"


def estimate_row(estimate: Estimate, **key: object) -> dict[str, object]:
    """An estimate as a row of the tables that `backend.charts` draws."""
    return {
        **key,
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
        "reason": estimate.reason,
    }


def outside(text: object) -> str:
    """A text from a file, a result or a link, for where Streamlit reads Markdown: it makes no image and no link.

    An image would be fetched from wherever the text says, with whatever it has put into the address.
    """
    return _FETCHED.sub(lambda found: found[0][:-1] + ZERO_WIDTH_SPACE + found[0][-1], str(text))


def when(unix_s: float | None) -> str:
    """A moment as UTC, to the minute."""
    if unix_s is None or pd.isna(unix_s):
        return "not recorded"
    return dt.datetime.fromtimestamp(unix_s, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def lasting(seconds: float | None) -> str:
    """A duration in the two largest units that matter: "42 s", "7 min 05 s", "3 h 20 min", "4 d 2 h"."""
    if seconds is None or pd.isna(seconds):
        return "not known"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def sentences(*parts: str) -> str:
    """Findings and advice as sentences: each with a capital and a full stop."""
    whole = [part.strip() for part in parts if part.strip()]
    return " ".join(part[0].upper() + part[1:] + ("" if part[-1] in ".!?" else ".") for part in whole)


def known(value: object) -> str:
    """A stored text; "" where there is none, which pandas calls None, nan or NA."""
    return value if isinstance(value, str) else ""


def plural(count: int, noun: str) -> str:
    """ "1 run", "3 runs"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def cell_names(cells: pd.DataFrame, *, whole: bool = True) -> dict[str, str]:
    """Measuring conditions in words: "concurrency 1, prompts as written, mixed"; not `whole`: only what differs."""
    if cells.empty:
        return {}
    parts = pd.DataFrame(
        {
            "concurrency": [f"concurrency {int(c)}" for c in cells["concurrency"]],
            "context": [
                "prompts as written" if pd.isna(c) else f"context {int(c)} tokens" for c in cells["context_tokens"]
            ],
            "workload": list(cells["workload"]),
        }
    )
    shown = [column for column in parts if whole or parts[column].nunique() > 1]
    words = parts[shown].agg(", ".join, axis="columns") if shown else [""] * len(parts)
    return {str(cell_id): text for cell_id, text in zip(cells["cell_id"], words, strict=True)}


def turned(change: Estimate) -> Estimate:
    """A change in % of a against b, read as b against a: 100 (1 / (1 + c/100) - 1), bounds swapped."""

    def turn(value: float | None) -> float | None:
        return None if value is None else 100 * (1 / (1 + value / 100) - 1)

    return replace(change, value=turn(change.value), low=turn(change.high), high=turn(change.low))
