"""A number with its interval, or the reason it has none.

Every figure that is shown is an `Estimate`. An interval that is not defined (one observation, no degrees
of freedom, zero clusters) is None with the reason in words; it is never an infinite or an empty one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from backend.analysis.quantiles import chi_square_below, t_below

LEVEL = 0.95
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, its two-sided interval at `level`, the method, the number of independent units `n`, the unit.

    Missing is None: `value` None has no interval; no interval has a `reason`. NaN and infinities never get in.
    Units are written as "ms", "tok/s", "W", "tok/J", "tokens", "%", and "1" for a plain ratio.
    """

    value: float | None
    low: float | None
    high: float | None
    level: float | None
    method: str
    n: int | None
    unit: str
    reason: str | None

    def __post_init__(self) -> None:
        for name in ("value", "low", "high", "level"):
            number = getattr(self, name)
            if number is not None:
                number = float(number)
                object.__setattr__(self, name, number if math.isfinite(number) else None)
        if self.n is not None:
            object.__setattr__(self, "n", int(self.n))
        if self.value is None or self.low is None or self.high is None:
            for name in ("low", "high", "level"):
                object.__setattr__(self, name, None)
            if not self.reason:
                raise ValueError(f"an estimate without an interval needs a reason ({self.method})")

    @property
    def has_interval(self) -> bool:
        """Whether both bounds are there."""
        return self.low is not None

    def to_dict(self) -> dict[str, float | int | str | None]:
        """JSON-safe: plain numbers, missing is None."""
        return asdict(self)

    def times(self, factor: float, unit: str) -> Estimate:
        """The same estimate in another unit: every bound times a positive `factor`."""

        def scale(number: float | None) -> float | None:
            return None if number is None else number * factor

        return replace(self, value=scale(self.value), low=scale(self.low), high=scale(self.high), unit=unit)

    def text(self, digits: int = 2) -> str:
        """For a sentence: "24.05 tok/s [23.10, 25.00]", "24.05 tok/s (no interval: one run)"."""
        if self.value is None:
            return f"not known ({self.reason})"
        unit = "" if self.unit == "1" else self.unit if self.unit == "%" else f" {self.unit}"
        if self.low is None or self.high is None:
            return f"{self.value:.{digits}f}{unit} (no interval: {self.reason})"
        return f"{self.value:.{digits}f}{unit} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def missing(unit: str, reason: str, *, method: str = "none", n: int | None = 0) -> Estimate:
    """No value, and why."""
    return Estimate(None, None, None, None, method, n, unit, reason)


def point(value: float | None, unit: str, reason: str, *, method: str, n: int | None) -> Estimate:
    """A value without an interval, and why it has none."""
    return Estimate(value, None, None, None, method, n, unit, reason)


def finite(values: Iterable[float | None]) -> FloatArray:
    """The values that are there, as floats: None and NaN are left out."""
    array = np.asarray([np.nan if v is None else v for v in values], dtype=np.float64)
    return array[np.isfinite(array)]


def t_quantile(level: float, df: float) -> float:
    """Two-sided Student t quantile: t(1 - (1 - level)/2, df)."""
    return float(t_below(0.5 + level / 2, df))


def t_interval(
    value: float,
    standard_error: float,
    df: float,
    unit: str,
    *,
    method: str,
    n: int,
    level: float = LEVEL,
    no_df: str = "no residual degrees of freedom",
) -> Estimate:
    """value +/- t(df) x standard error; without degrees of freedom the value alone, with the reason `no_df`."""
    if df <= 0 or not math.isfinite(standard_error):
        return point(value, unit, no_df, method=method, n=n)
    half = t_quantile(level, df) * standard_error
    return Estimate(value, value - half, value + half, level, method, n, unit, None)


def student_t_mean(
    values: Iterable[float | None],
    unit: str,
    *,
    level: float = LEVEL,
    what: str = "run",
    method: str | None = None,
) -> Estimate:
    """Mean over independent units with Student t, n - 1 df: mean +/- t s/sqrt(n). `what` names the unit of n."""
    array = finite(values)
    method = method or f"Student t over {what}s"
    if array.size == 0:
        return missing(unit, "not measured", method=method)
    error = float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else math.nan
    return t_interval(
        float(array.mean()), error, array.size - 1, unit, method=method, n=array.size, level=level, no_df=f"one {what}"
    )


def student_t_log_mean(
    values: Iterable[float | None],
    unit: str,
    *,
    level: float = LEVEL,
    what: str = "run",
) -> Estimate:
    """Geometric mean with Student t on the log, n - 1 df: exp(mean log +/- t s_log/sqrt(n)). For positive rates.

    A value that is not positive makes the logarithm undefined: then there is no value, and the reason says so.
    """
    array = finite(values)
    method = f"Student t on the log over {what}s"
    if array.size and array.min() <= 0:
        return missing(unit, "a value is zero or negative, so its logarithm is undefined", method=method, n=array.size)
    logs = student_t_mean(np.log(array), unit, level=level, what=what, method=method)
    if logs.value is None:
        return logs
    if logs.low is None or logs.high is None:
        return replace(logs, value=math.exp(logs.value))
    return replace(logs, value=math.exp(logs.value), low=math.exp(logs.low), high=math.exp(logs.high))


def ratio_of_sums(
    numerator: Iterable[float | None],
    denominator: Iterable[float | None],
    unit: str,
    *,
    reason: str,
    scale: float = 1.0,
) -> Estimate:
    """sum(numerator) / sum(denominator) x scale over the rows that have both; the point alone, with `reason`."""
    top = np.asarray([np.nan if v is None else v for v in numerator], dtype=np.float64)
    bottom = np.asarray([np.nan if v is None else v for v in denominator], dtype=np.float64)
    both = np.isfinite(top) & np.isfinite(bottom)
    n = int(both.sum())
    total = float(bottom[both].sum())
    if n == 0:
        return missing(unit, "not measured", method="ratio of sums")
    if total == 0:
        return missing(unit, "the denominator is zero", method="ratio of sums", n=n)
    return point(float(top[both].sum()) / total * scale, unit, reason, method="ratio of sums", n=n)


def chi_square_sd(sd: float, df: int, unit: str, *, n: int, level: float = LEVEL) -> Estimate:
    """A residual standard deviation with its chi-square interval: s sqrt(df / chi2)."""
    method = "residual SD, chi-square interval"
    if df <= 0:
        return missing(unit, "no residual degrees of freedom", method=method, n=n)
    low = sd * math.sqrt(df / float(chi_square_below(0.5 + level / 2, df)))
    high = sd * math.sqrt(df / float(chi_square_below(0.5 - level / 2, df)))
    return Estimate(sd, low, high, level, method, n, unit, None)
