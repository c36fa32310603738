"""One window of the cycle fit: the line over K=0 and some depths, with its standard errors and intervals.

See `cycle_model` for the model. Units: ms. Source: design.md, "Terms and formulas".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from backend.analysis.cycle_checks import design
from backend.analysis.estimate import (
    LEVEL,
    Estimate,
    FloatArray,
    chi_square_sd,
    missing,
    point,
    t_interval,
)
from backend.analysis.linear import LeastSquares, least_squares

MIN_BLOCKS = 3  # complete blocks from which on every block gets a line of its own


@dataclass(frozen=True, slots=True)
class Contrast:
    """A combination of (t_verify_base, t_draft, t_marginal) with its standard error in ms and degrees of freedom."""

    value: float
    standard_error: float
    df: int
    n: int
    method: str

    def estimate(self, level: float, no_df: str) -> Estimate:
        """As an Estimate in ms."""
        return t_interval(
            self.value, self.standard_error, self.df, "ms", method=self.method, n=self.n, level=level, no_df=no_df
        )


@dataclass(frozen=True, slots=True)
class Window:
    """The fit over K=0 and the depths `k` (K=1..m as far as measured); n: runs in it, K=0 runs too."""

    k: tuple[int, ...]
    n: int
    n_k0: int
    t_draft_ms: Estimate
    t_marginal_ms: Estimate
    residual_ms: Estimate
    pooled_t_draft_ms: Estimate
    pooled_t_marginal_ms: Estimate
    study_t_draft_ms: Estimate | None
    flags: tuple[str, ...]
    level: float
    pooled: LeastSquares = field(repr=False)
    block_betas: FloatArray | None = field(repr=False)  # (complete blocks, 3)
    pilot: FloatArray | None = field(repr=False, default=None)  # (complete blocks,): 1 for the pilot of [stop]

    def contrast(self, c: tuple[float, float, float], *, pooled: bool = False) -> Contrast:
        """c . (t_verify_base, t_draft, t_marginal): over blocks where every block has a line, else from the pool."""
        return _contrast(np.asarray(c), self.pooled, None if pooled else self.block_betas, self.n_k0 > 0, self.pilot)

    def cycle_at(self, k: float) -> Estimate:
        """The line at depth k (mean over blocks) with its interval, in ms: the band of the chart."""
        return self.contrast((1.0, float(k > 0), float(k))).estimate(self.level, "no residual degrees of freedom")

    def to_dict(self) -> dict[str, object]:
        """As in `fit --json`."""
        out: dict[str, object] = {
            "k": list(self.k),
            "n": self.n,
            "n_k0": self.n_k0,
            "t_draft_ms": self.t_draft_ms.to_dict(),
            "t_marginal_ms": self.t_marginal_ms.to_dict(),
            "residual_ms": self.residual_ms.to_dict(),
            "pooled": {
                "t_draft_ms": self.pooled_t_draft_ms.to_dict(),
                "t_marginal_ms": self.pooled_t_marginal_ms.to_dict(),
            },
            "flags": list(self.flags),
        }
        if self.study_t_draft_ms is not None:
            out["study_t_draft_ms"] = self.study_t_draft_ms.to_dict()
        return out


def _contrast(
    c: FloatArray, pooled: LeastSquares, betas: FloatArray | None, has_k0: bool, pilot: FloatArray | None
) -> Contrast:
    if betas is not None:
        values = betas @ c
        blocks = len(values)
        if pilot is not None:  # Stein's two stages: see stopping.py
            first = values[pilot > 0]
            error = float(first.std(ddof=1) / np.sqrt(blocks)) if len(first) > 1 else np.nan
            method = f"a fit per block, Stein's two stages: variance and df of the pilot of {len(first)}"
            return Contrast(float(values.mean()), error, len(first) - 1, blocks, method)
        error = float(values.std(ddof=1) / np.sqrt(blocks))
        return Contrast(float(values.mean()), error, blocks - 1, blocks, "a fit per block, Student t over blocks")
    full = np.zeros(len(pooled.beta))
    if has_k0:
        full[:3] = c
    else:
        full[:2] = c[[0, 2]]
    value, error = pooled.contrast(full)
    return Contrast(value, error, pooled.df, pooled.n, "joint least squares, Student t")


def blocks_that_count(k: FloatArray, block: FloatArray | None) -> FloatArray | None:
    """Blocks for the model: None without blocks, with a single block, or with one run per K."""
    if block is None or len(np.unique(block)) < 2 or len(np.unique(k)) == len(k):
        return None
    return block


def complete_blocks(k: FloatArray, block: FloatArray | None) -> FloatArray:
    """The blocks that hold every depth of `k` (K=0 included where it was measured at all)."""
    if block is None:
        return np.array([])
    wanted = set(np.unique(k))
    return np.array([b for b in np.unique(block) if wanted <= set(k[block == b])])


def fit_window(
    k: FloatArray,
    y: FloatArray,
    block: FloatArray | None,
    *,
    level: float = LEVEL,
    study: bool = False,
    pilot: FloatArray | None = None,
) -> Window:
    """The joint fit of cycle times `y` (n,) in ms at depths `k` (n,), with or without `block` (n,) codes.

    pilot: codes of the blocks of the pilot, where [stop] decided how many blocks follow.
    """
    has_k0 = bool((k == 0).any())
    depths = tuple(int(d) for d in np.unique(k[k > 0]))
    flags: list[str] = []
    block = blocks_that_count(k, block)
    pooled = least_squares(design(k, block), y)
    if block is not None and not pooled.full_rank:
        flags.append("blocks-confounded-with-depth")
        block = None
        pooled = least_squares(design(k, None), y)
    whole = complete_blocks(k, block)
    betas = None
    if len(whole) >= MIN_BLOCKS and has_k0 and block is not None:
        betas = np.array([least_squares(design(k[block == b], None), y[block == b]).beta for b in whole])
    first = None if pilot is None or betas is None else np.isin(whole, pilot).astype(np.float64)
    no_df = f"no residual degrees of freedom: {len(y)} runs for {pooled.rank} coefficients"
    no_k0 = missing("ms", "no K=0 run: t_draft and t_verify_base cannot be told apart", n=len(y))

    def pair(use: FloatArray | None) -> tuple[Estimate, Estimate]:
        draft, marginal = (
            _contrast(np.array(c), pooled, use, has_k0, first) for c in ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
        )
        return draft.estimate(level, no_df) if has_k0 else no_k0, marginal.estimate(level, no_df)

    (draft, marginal), (pooled_draft, pooled_marginal) = pair(betas), pair(None)
    if marginal.value is not None and marginal.value < 0:
        flags.append("negative-slope")
    if draft.value is not None and draft.value < 0:
        flags.append("negative-t-draft")
    residual = chi_square_sd(float(np.sqrt(pooled.variance)), pooled.df, "ms", n=len(y), level=level)
    return Window(
        depths,
        len(y),
        int((k == 0).sum()),
        draft,
        marginal,
        residual,
        pooled_draft,
        pooled_marginal,
        study_interval(k, y) if study else None,
        tuple(flags),
        level,
        pooled,
        betas,
        first,
    )


def study_interval(k: FloatArray, y: FloatArray) -> Estimate:
    """The study's interval of t_draft: intercept of the K>=1 line minus the mean K=0 cycle, +/- 2 SE of the intercept.

    It takes the K=0 cycle as exact and ignores the few degrees of freedom: by simulation it covers about 80%.
    """
    method = "intercept of the K>=1 line +/- 2 SE (the study's; covers about 80%)"
    deep = k > 0
    if deep.all():
        return missing("ms", "no K=0 run", method=method, n=len(y))
    fit = least_squares(np.column_stack([np.ones(int(deep.sum())), k[deep]]), y[deep])
    intercept, error = fit.contrast(np.array([1.0, 0.0]))
    value = intercept - float(y[~deep].mean())
    if fit.df <= 0:
        return point(value, "ms", "no residual degrees of freedom", method=method, n=len(y))
    return Estimate(value, value - 2 * error, value + 2 * error, 0.9545, method, len(y), "ms", None)
