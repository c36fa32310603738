"""The distributions against scipy.stats, which is too slow to import for what readers wait for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from backend.analysis import quantiles


@pytest.mark.parametrize("df", [1, 2, 7.5, 63, 5000])
def test_student_and_chi_square(df: float) -> None:
    p = np.array([0.025, 0.5, 0.95, 0.9999])
    assert quantiles.t_below(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9)
    assert quantiles.chi_square_below(p, df) == pytest.approx(stats.chi2.ppf(p, df), rel=1e-9)
    statistic = np.array([-30.0, -2.0, 0.0, 0.7, 12.0])
    assert quantiles.t_test_p(statistic, df) == pytest.approx(2 * stats.t.sf(np.abs(statistic), df), rel=1e-9)
    assert quantiles.f_test_p(3.3, 4, df) == pytest.approx(stats.f.sf(3.3, 4, df), rel=1e-9)


def test_bartlett() -> None:
    rng = np.random.default_rng(5)
    groups = [rng.normal(0, sd, n) for sd, n in ((1, 3), (2, 9), (0.3, 30))]
    assert quantiles.bartlett_p(groups) == pytest.approx(stats.bartlett(*groups).pvalue, rel=1e-9)


@pytest.mark.parametrize("modules", ["pages.parts.frame, backend.charts", "backend.cli"])
def test_neither_first_page_nor_command_line_import_scipy_stats(modules: str) -> None:
    code = f"import sys, {modules}; print('scipy.stats' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "False"
