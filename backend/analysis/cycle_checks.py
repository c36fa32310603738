"""Is the cycle a line in K? Quadratic term, lack of fit, AICc, and the words that these tests allow.

Blocks enter the tests as they enter the estimates: as an additive term, or, from 3 complete blocks on, with a
line of their own per block, so that a block that multiplies the cycle does not count as scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing, t_interval
from backend.analysis.linear import FTest, LeastSquares, aicc, least_squares, nested_f, sum_to_zero


def design(k: FloatArray, block: FloatArray | None) -> FloatArray:
    """Columns 1, 1[K>=1] (only where K=0 is there), K, and sum-to-zero block contrasts; shape (n, p)."""
    columns = [np.ones(len(k)), k]
    if (k == 0).any():
        columns.insert(1, (k > 0).astype(np.float64))
    X = np.column_stack(columns)
    return X if block is None else np.column_stack([X, sum_to_zero(list(block))])


@dataclass(frozen=True, slots=True)
class CycleTests:
    """Tests of the line over the whole curve. AICc values are None where n <= p + 1."""

    quadratic_ms: Estimate  # coefficient of K^2, ms per K^2
    quadratic: FTest
    lack_of_fit: FTest
    aicc_linear: float | None
    aicc_quadratic: float | None
    aicc_hinge: float | None
    hinge_knot: int | None

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "quadratic_ms": self.quadratic_ms.to_dict(),
            "quadratic": self.quadratic.to_dict(),
            "lack_of_fit": self.lack_of_fit.to_dict(),
            "aicc": {
                "linear": self.aicc_linear,
                "quadratic": self.aicc_quadratic,
                "hinge": self.aicc_hinge,
                "hinge_knot": self.hinge_knot,
            },
        }


def run_tests(
    k: FloatArray,
    y: FloatArray,
    block: FloatArray | None,
    *,
    own_lines: FloatArray | None,
    level: float = LEVEL,
) -> CycleTests:
    """All tests on cycle times `y` (n,) in ms. `own_lines`: the complete blocks that get a line each, else None."""
    if own_lines is not None and block is not None:
        inside = np.isin(block, own_lines)
        k, y, block = k[inside], y[inside], block[inside]
        X = np.column_stack([design(k, None) * (block == b)[:, None] for b in own_lines])
    else:
        X = design(k, block)
    depths = np.unique(k)
    linear = least_squares(X, y)
    quadratic = least_squares(np.column_stack([X, k**2]), y)
    saturated = least_squares(np.column_stack([X, *((k == d).astype(np.float64) for d in depths)]), y)
    f_lack = nested_f(linear, saturated)
    if f_lack.p is None and len(depths) == len(k):
        f_lack = FTest(None, None, None, None, "no replicates: one run per depth")
    hinges: list[tuple[float, int, LeastSquares]] = []
    for knot in np.unique(k[k > 0])[1:-1]:
        fit = least_squares(np.column_stack([X, np.maximum(0.0, k - knot)]), y)
        if fit.full_rank:
            hinges.append((fit.rss, int(knot), fit))
    hinge = min(hinges, key=lambda h: h[:2]) if hinges else None
    return CycleTests(
        _quadratic_term(quadratic, level),
        nested_f(linear, quadratic),
        f_lack,
        aicc(linear),
        aicc(quadratic) if quadratic.full_rank else None,
        aicc(hinge[2], extra=1) if hinge else None,
        hinge[1] if hinge else None,
    )


def _quadratic_term(fit: LeastSquares, level: float) -> Estimate:
    if not fit.full_rank:
        return missing("ms", "curvature needs three depths above 0", n=fit.n)
    unit = np.zeros(len(fit.beta))
    unit[-1] = 1.0
    value, error = fit.contrast(unit)
    return t_interval(value, error, fit.df, "ms", method="least squares with K^2, Student t", n=fit.n, level=level)


def diagnose(
    tests: CycleTests,
    windows: Sequence[tuple[tuple[int, ...], Estimate, Estimate]],
    level: float = LEVEL,
) -> tuple[str, ...]:
    """Sentences about the line. `windows`: (depths, t_draft_ms, t_marginal_ms). "Convex" only when the test says so."""
    alpha = 1 - level
    words: list[str] = []
    curve, curvature = tests.quadratic, tests.quadratic_ms.value
    if curve.p is None or curvature is None:
        words.append(f"Curvature cannot be tested: {curve.reason or tests.quadratic_ms.reason}.")
    elif curve.p < alpha:
        shape = "convex" if curvature > 0 else "concave"
        words.append(
            f"The cycle is {shape} in K (quadratic term {curvature:+.2f} ms, p = {curve.p:.2g}): the line's "
            "t_draft is a projection, not the proposer's time."
        )
    else:
        words.append(f"Curvature is not shown (p = {curve.p:.2g}).")
    lack = tests.lack_of_fit
    if lack.p is None:
        words.append(f"Lack of fit cannot be tested: {lack.reason}.")
    elif lack.p < alpha:
        words.append(
            f"A line does not fit the depths (lack of fit, p = {lack.p:.2g}); more repeats will not change that."
        )
    else:
        words.append(f"Lack of fit is not shown (p = {lack.p:.2g}).")
    scores = {
        name: score
        for name, score in (
            ("linear", tests.aicc_linear),
            ("quadratic", tests.aicc_quadratic),
            ("hinge", tests.aicc_hinge),
        )
        if score is not None
    }
    if len(scores) > 1 and "linear" in scores:
        best = min(scores, key=lambda name: scores[name])
        if best != "linear" and scores["linear"] - scores[best] > 2:
            knot = f" at K={tests.hinge_knot}" if best == "hinge" else ""
            words.append(f"AICc prefers a {best} curve{knot} to the line by {scores['linear'] - scores[best]:.1f}.")
    for depths, _, marginal in windows:
        if marginal.value is not None and marginal.value < 0:
            words.append(
                f"Over K={_span(depths)} the slope is negative ({marginal.value:.2f} ms): a verify position "
                "cannot cost less than nothing, so this window's t_draft is not to be used."
            )
    (first, early, _), (last, late, _) = windows[0], windows[-1]
    if len(windows) > 1 and early.value is not None and late.value is not None:
        words.append(
            f"t_draft from the fit is {early.value:.1f} ms over K={_span(first)} and {late.value:.1f} ms over "
            f"K={_span(last)}."
        )
    if late.low is not None and late.high is not None and late.low <= 0 <= late.high:
        words.append("The interval of t_draft over all depths includes 0.")
    elif late.value is not None and late.low is None:
        words.append(f"t_draft has no interval: {late.reason}.")
    return tuple(words)


def _span(depths: tuple[int, ...]) -> str:
    contiguous = depths == tuple(range(depths[0], depths[-1] + 1))
    return f"{depths[0]}-{depths[-1]}" if contiguous and len(depths) > 2 else ",".join(map(str, depths))
