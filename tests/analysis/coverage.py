"""How often the intervals hold what is true, over simulated sweeps. Used by test_coverage.py and bench_analysis.py."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from backend.analysis.compare import depth_losses
from backend.analysis.cycle_checks import run_tests
from backend.analysis.cycle_window import complete_blocks, fit_window
from backend.analysis.estimate import Estimate, student_t_log_mean, student_t_mean
from backend.analysis.layout import layout_of
from backend.analysis.resample import cluster_ratio
from backend.truth import FastSweeps, Truth

BLOCK_EFFECTS = {
    "none": Truth(run_sd_ms=3.0),
    "additive": Truth(run_sd_ms=3.0, block_sd_ms=4.0),
    "multiplicative 5%": Truth(run_sd_ms=3.0, block_sd=0.05),
}


@dataclass(frozen=True)
class Share:
    """Hits of n, with the binomial standard error."""

    hits: int
    n: int

    @property
    def value(self) -> float:
        return self.hits / self.n if self.n else float("nan")

    @property
    def error(self) -> float:
        return (max(self.value * (1 - self.value), 1e-4) / self.n) ** 0.5 if self.n else float("nan")

    def __str__(self) -> str:
        return f"{100 * self.value:5.1f}% +/- {100 * self.error:.1f} (n={self.n})"


def holds(estimate: Estimate, true: float) -> bool:
    """Whether the interval is there and holds the true value."""
    return estimate.low is not None and estimate.high is not None and bool(estimate.low <= true <= estimate.high)


def log_means(truth: Truth, size: int = 200_000) -> np.ndarray:
    """True mean of log decode tok/s per depth over runs and blocks, by a large simulation."""
    rng = np.random.default_rng(99)
    k = np.tile(np.asarray(truth.depths), (size, 1))
    cycles = replace(truth, drift=0.0).run_cycles(k, np.tile(np.arange(len(truth.depths)), (size, 1)), rng)
    rates = np.array([truth.tokens_per_step(d) for d in truth.depths])
    return np.log(1000 * rates / cycles).mean(axis=0)


def coverage(truth: Truth, sweeps: int) -> dict[str, Share]:
    """Shares of sweeps whose interval holds the population value, per quantity; loss: all depths at once."""
    fast, hits = FastSweeps(truth, sweeps), Counter()
    means = log_means(truth)
    loss = 100 * -np.expm1(means - means.max())
    slope = truth.t_marginal_ms
    for i in range(sweeps):
        k, block = fast.k[i].astype(float), fast.block[i].astype(float)
        y, rate = fast.cycle_ms[i], fast.decode_tok_s[i]
        window = fit_window(k, y, block, study=True)
        layout = layout_of(k, np.log(rate), block)
        bounds = [d.loss_percent for d in depth_losses(layout, None, 0.95, 1.0)]
        hits.update(
            {
                "decode_tok_s K=2": holds(student_t_log_mean(rate[k == truth.depths[2]], "tok/s"), np.exp(means[2])),
                "decode_tok_s deepest": holds(
                    student_t_log_mean(rate[k == truth.depths[-1]], "tok/s"), np.exp(means[-1])
                ),
                "t_verify_base": holds(student_t_mean(y[k == 0], "ms"), truth.t_verify_base_ms),
                "t_marginal": holds(window.t_marginal_ms, slope),
                "t_draft": holds(window.t_draft_ms, truth.t_draft_ms),
                "t_marginal pooled": holds(window.pooled_t_marginal_ms, slope),
                "t_draft pooled": holds(window.pooled_t_draft_ms, truth.t_draft_ms),
                "t_draft study +/- 2 SE": holds(window.study_t_draft_ms, truth.t_draft_ms),
                "loss, all depths": all(holds(b, t) for b, t in zip(bounds, loss, strict=True)),
            }
        )
    return {name: Share(int(hits[name]), sweeps) for name in hits}


@dataclass(frozen=True)
class Convex:
    """A convex truth read with a line: what the line's projection is, how it is covered, what the checks notice."""

    bias_ms: float  # projection's t_draft minus the true one
    projection: Share  # t_draft's interval holds the projection
    truth: Share  # and the true t_draft
    quadratic_power: Share
    lack_of_fit_power: Share


def convex(truth: Truth, sweeps: int) -> Convex:
    """Coverage of the projection and power of the misspecification checks, for a truth with t_convex_ms."""
    fast = FastSweeps(truth, sweeps)
    depths = np.asarray(truth.depths, dtype=float)
    projected = fit_window(depths, truth.cycle_ms(depths), None).t_draft_ms.value
    hits: Counter[str] = Counter()
    for i in range(sweeps):
        k, block = fast.k[i].astype(float), fast.block[i].astype(float)
        window = fit_window(k, fast.cycle_ms[i], block)
        lines = complete_blocks(k, block) if window.block_betas is not None else None
        tests = run_tests(k, fast.cycle_ms[i], block, own_lines=lines)
        hits.update(
            {
                "projection": holds(window.t_draft_ms, projected),
                "truth": holds(window.t_draft_ms, truth.t_draft_ms),
                "quadratic": bool(tests.quadratic.p < 0.05),
                "lack": bool(tests.lack_of_fit.p < 0.05),
            }
        )
    share = {name: Share(int(hits[name]), sweeps) for name in ("projection", "truth", "quadratic", "lack")}
    return Convex(projected - truth.t_draft_ms, share["projection"], share["truth"], share["quadratic"], share["lack"])


def best_k_right(spread: float, blocks: int, sweeps: int, *, depths: int = 8, seed: int = 1) -> tuple[Share, Share]:
    """True log means drawn per sweep from a normal of `spread` run SDs: (right when P(best) >= .95, how often said)."""
    rng = np.random.default_rng([seed, blocks])
    run_sd, said, right = 0.03, 0, 0
    k, block = np.tile(np.arange(depths), blocks).astype(float), np.repeat(np.arange(blocks), depths).astype(float)
    for i in range(sweeps):
        true = spread * run_sd * rng.standard_normal(depths)
        y = np.tile(true, blocks) + run_sd * rng.standard_normal(depths * blocks)
        layout = layout_of(k, y, block)
        share = np.bincount(layout.posterior(2000, i).argmax(axis=1), minlength=depths) / 2000
        if share.max() >= 0.95:
            said += 1
            right += int(share.argmax() == true.argmax())
    return Share(right, said), Share(said, sweeps)


def prompt_clusters(prompts: int, repeats: int, sweeps: int, *, seed: int = 3) -> tuple[Share, Share]:
    """Coverage of an acceptance rate with prompts as clusters, and with every greedy repeat as a unit of its own."""
    rng = np.random.default_rng([seed, prompts])
    population = 1 / (1 + np.exp(-rng.normal(0.5, 0.6, 400_000)))
    true = float(population.mean())
    right = wrong = 0
    for i in range(sweeps):
        rate = rng.choice(population, prompts)
        steps = rng.integers(30, 60, prompts).astype(float)
        accepted = rng.binomial(steps.astype(int), rate).astype(float)
        by_prompt = cluster_ratio(repeats * accepted[:, None], repeats * steps[:, None], "1", draws=1000, seed=i)[0]
        copies = (np.tile(x, repeats)[:, None] for x in (accepted, steps))
        right += holds(by_prompt, true)
        wrong += holds(cluster_ratio(*copies, "1", draws=1000, seed=i)[0], true)
    return Share(right, sweeps), Share(wrong, sweeps)


def drift_bias(truth: Truth, sweeps: int) -> np.ndarray:
    """Error in % of the K=deepest against K=0 effect in every sweep of a drifting truth, from the layout."""
    fast = FastSweeps(truth, sweeps)
    expected = np.log(truth.cycle_ms(np.array([0.0])) / truth.cycle_ms(np.array([float(truth.depths[-1])])))[0]
    expected += np.log(truth.tokens_per_step(truth.depths[-1]))
    errors = []
    for i in range(sweeps):
        layout = layout_of(fast.k[i].astype(float), np.log(fast.decode_tok_s[i]), fast.block[i].astype(float))
        errors.append(100 * np.expm1(layout.log_means[-1] - layout.log_means[0] - expected))
    return np.asarray(errors)
