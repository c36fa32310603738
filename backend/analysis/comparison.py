"""What a comparison of depths says: frozen results that compare.py fills and pages, CLI and sentence.py read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.analysis.estimate import Estimate, missing

Verdict = Literal["within", "worse", "unresolved"]


@dataclass(frozen=True, slots=True)
class DepthLoss:
    """A depth against the best: loss in %, simultaneous over depths (Edwards and Hsu); P(best) by the t posterior."""

    k: int
    runs: int
    decode_tok_s: float  # geometric mean, averaged over blocks
    loss_percent: Estimate
    verdict: Verdict
    p_best: float | None

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "k": self.k,
            "runs": self.runs,
            "decode_tok_s": self.decode_tok_s,
            "loss_percent": self.loss_percent.to_dict(),
            "verdict": self.verdict,
            "p_best": self.p_best,
        }


@dataclass(frozen=True, slots=True)
class Pair:
    """Depth `k` against `against`: change of decode tok/s in %, Holm's p, and the interval that agrees with it."""

    k: int
    against: int
    change_percent: Estimate
    p_holm: float | None

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "k": self.k,
            "against": self.against,
            "change_percent": self.change_percent.to_dict(),
            "p_holm": self.p_holm,
        }


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The largest measured K that beats K=0. `k` None: none does (or there is no K=0; see the estimate's reason).

    `estimate`: the same as a number, with quantiles of the posterior (0: no depth beats K=0). `next_loss`: the
    smallest measured depth above it that loses. shown_better / shown_worse: depths whose sign against K=0 Holm shows.
    """

    k: int | None
    next_loss: int | None
    estimate: Estimate
    shown_better: tuple[int, ...]
    shown_worse: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "k": self.k,
            "next_loss": self.next_loss,
            "estimate": self.estimate.to_dict(),
            "shown_better": list(self.shown_better),
            "shown_worse": list(self.shown_worse),
        }


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The smallest `within` depth; if none, the best point estimate, unresolved, with the blocks it would take."""

    k: int
    resolved: bool
    blocks_needed: int | None
    reason: str | None  # why it is unresolved, or why the blocks are not known

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {"k": self.k, "resolved": self.resolved, "blocks_needed": self.blocks_needed, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Regret:
    """What a named reference depth loses against the best, in %."""

    name: str
    k: int
    loss_percent: Estimate

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {"name": self.name, "k": self.k, "loss_percent": self.loss_percent.to_dict()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One cell compared over depths; empty with a `reason` where no throughput was measured."""

    cell_id: str
    concurrency: int | None
    n_runs: int
    blocks: int
    df: int
    depths: tuple[DepthLoss, ...]
    pairs: tuple[Pair, ...]
    best_k: int | None  # by point estimate
    recommendation: Recommendation | None
    break_even: BreakEven | None
    regrets: tuple[Regret, ...]
    flags: tuple[str, ...]
    reason: str | None

    def to_dict(self) -> dict[str, object]:
        """As in `compare --json`."""
        return {
            "cell_id": self.cell_id,
            "concurrency": self.concurrency,
            "n_runs": self.n_runs,
            "blocks": self.blocks,
            "df": self.df,
            "best_k": self.best_k,
            "depths": [d.to_dict() for d in self.depths],
            "recommendation": self.recommendation.to_dict() if self.recommendation else None,
            "break_even": self.break_even.to_dict() if self.break_even else None,
            "regrets": [r.to_dict() for r in self.regrets],
            "pairs": [p.to_dict() for p in self.pairs],
            "flags": list(self.flags),
            "reason": self.reason,
        }

    def loss_of(self, k: int) -> Estimate:
        """The loss of depth k in %."""
        found = next((d.loss_percent for d in self.depths if d.k == k), None)
        return found or missing("%", f"K={k} has no measured throughput")
