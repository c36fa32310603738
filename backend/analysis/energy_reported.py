"""Tokens per joule from published figures: what follows from them, and where the printed ones do not fit together.

tokens_per_joule = decode_tok_s / power_w (design.md, "Energy"). The scope of a published power is what the
publication says; the study did not say whether its watts are of one node or of the pair, so its scope is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.estimate import Estimate, missing, point
from backend.analysis.selection import arms, numbers

SCOPE_UNKNOWN = "unknown"
ONE_FIGURE = "one published figure"


@dataclass(frozen=True, slots=True)
class ReportedEnergy:
    """One depth's energy as reported and as it follows from the other reported figures."""

    k: int
    scope: str
    tokens_per_joule: Estimate  # as printed
    follows: Estimate  # decode_tok_s / power_w
    difference_percent: float | None  # follows against printed
    implied_power_w: Estimate  # decode_tok_s / tokens_per_joule, where no power was printed

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "k": self.k,
            "scope": self.scope,
            "tokens_per_joule": self.tokens_per_joule.to_dict(),
            "follows": self.follows.to_dict(),
            "difference_percent": self.difference_percent,
            "implied_power_w": self.implied_power_w.to_dict(),
        }


def reported_energy(run_cell: pd.DataFrame) -> list[ReportedEnergy]:
    """A row a depth of one cell whose power or tokens per joule were reported, from rows of `run_cell`.

    Raises nothing; a depth with neither figure has no row. Means over runs where a depth has several.
    """
    rows = arms(run_cell)
    out = []
    for k in sorted({int(k) for k in rows["k"].dropna()}):
        mine = rows[rows["k"] == k]
        rate, power, printed = (_mean(mine, c) for c in ("decode_tok_s", "power_w", "tokens_per_joule"))
        if power is None and printed is None:
            continue
        scopes = set(mine["power_scope"].dropna()) - {"reported"} if "power_scope" in mine else set()
        follows = rate / power if rate is not None and power else None
        apart = 100 * (follows / printed - 1) if follows is not None and printed else None
        implied = rate / printed if rate is not None and printed and power is None else None
        out.append(
            ReportedEnergy(
                k,
                ", ".join(sorted(scopes)) or SCOPE_UNKNOWN,
                _figure(printed, "tok/J", "as printed", "not printed"),
                _figure(follows, "tok/J", "decode_tok_s / power_w", "no power was printed"),
                apart,
                _figure(implied, "W", "decode_tok_s / tokens_per_joule", "the power itself was printed"),
            )
        )
    return out


def _mean(rows: pd.DataFrame, column: str) -> float | None:
    values = numbers(rows, column)
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def _figure(value: float | None, unit: str, method: str, otherwise: str) -> Estimate:
    return missing(unit, otherwise) if value is None else point(value, unit, ONE_FIGURE, method=method, n=1)
