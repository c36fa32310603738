"""All direct times of one cell in one answer, for the command and the page: depths, stages, ranks, lines."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from backend.analysis.stages import BY_POSITION
from backend.analysis.timing import (
    DepthTimes,
    RankTimes,
    StageShare,
    depth_times,
    lowest_rank,
    rank_times,
    run_parts,
    stage_shares,
)
from backend.analysis.timing_lines import TimingLines, timing_lines

NOTHING = "nothing was timed: the cell has no INSTRUMENT phase, or the probe recorded nothing whole"

HIDDEN = (
    "the drafter runs inside a captured CUDA graph, so only the proposer's total is visible; "
    "timing.diagnostic = true adds eager runs that show its stages"
)


@dataclass(frozen=True, slots=True)
class TimingReport:
    """Direct times of one cell. `runs`: a row a run (k, block, run_id, ms a step by part), the points behind means."""

    times: tuple[DepthTimes, ...]
    shares: tuple[StageShare, ...]
    ranks: tuple[RankTimes, ...]
    lines: TimingLines | None
    runs: pd.DataFrame
    source: str | None  # "cuda_event" | "perf_counter"

    @property
    def hidden(self) -> str | None:
        """Why the proposer's inside is not known although its total is; None where it is, or nothing drafts."""
        drafts = any(row.t_draft_ms.value for row in self.times)
        inside = {"draft_forward", "draft_lookup"} & {row.stage for row in self.shares}
        return HIDDEN if drafts and not inside else None

    @property
    def positions(self) -> tuple[StageShare, ...]:
        """The stages that have a draft position."""
        return tuple(row for row in self.shares if row.stage in BY_POSITION)

    @property
    def stages(self) -> tuple[StageShare, ...]:
        """The stages that have none."""
        return tuple(row for row in self.shares if row.stage not in BY_POSITION)

    @property
    def large_gaps(self) -> tuple[StageShare, ...]:
        """Gaps above 5% of the cycle."""
        return tuple(row for row in self.shares if row.large_gap)

    def to_dict(self) -> dict[str, object]:
        """As in `timing --json`."""
        return {
            "reason": None if self.times else NOTHING,
            "source": self.source,
            "hidden": self.hidden,
            "by_k": [row.to_dict() for row in self.times],
            "regressions": self.lines.to_dict() if self.lines else None,
            "positions": [row.to_dict() for row in self.positions],
            "stages": [row.to_dict() for row in self.stages],
            "ranks": [row.to_dict() for row in self.ranks],
        }


def timing_report(requests: pd.DataFrame, stages: pd.DataFrame, waits: pd.DataFrame) -> TimingReport:
    """From the frames of `store.queries_timing`, of one cell each."""
    times = tuple(depth_times(requests, stages))
    if not times:
        return TimingReport((), (), (), None, pd.DataFrame(), None)
    runs = run_parts(requests, lowest_rank(stages))
    return TimingReport(
        times,
        tuple(stage_shares(requests, stages)),
        tuple(rank_times(requests, stages, waits)),
        timing_lines(runs),
        runs,
        str(stages["source"].iloc[0]),
    )
