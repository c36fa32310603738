"""Direct times of a cycle from INSTRUMENT (t_draft, t_verify, t_sample, t_host of K), and whether the books close.

A run's figure is a ratio of sums: time in the stages over the decode steps of its timed requests, on the lowest rank's
timeline (maxima over ranks are never added). Over runs: Student t, as for every figure of one K. Source: design.md,
"Direct times" and "Books".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from backend.analysis.estimate import Estimate, missing, student_t_mean
from backend.analysis.selection import numbers
from backend.analysis.stages import BY_POSITION, PARTS, Part, contains, part_of
from backend.records import STEP_TOTALS

NO_DRAFT = "K=0 drafts nothing"
GAP_PCT = 5.0  # a gap above this share of the cycle wants timers of its own


@dataclass(frozen=True, slots=True)
class DepthTimes:
    """Direct times of one depth, ms a decode step. `residual_pct`: share of the engine clock's cycle in no stage.

    `overhead_pct`: how much longer a cycle is with the probe on than off, same prompt and server, see `overhead_pct`. n
    counts runs, for overhead pairs of a run and a prompt.
    """

    k: int
    n_runs: int
    t_draft_ms: Estimate
    t_verify_ms: Estimate
    t_sample_ms: Estimate
    t_host_ms: Estimate
    cycle_ms: Estimate
    residual_pct: Estimate
    overhead_pct: Estimate

    def part(self, part: Part) -> Estimate:
        """The time of a part."""
        found = {"draft": self.t_draft_ms, "verify": self.t_verify_ms, "sample": self.t_sample_ms}
        return found.get(part, self.t_host_ms)

    def to_dict(self) -> dict[str, object]:
        """As in `timing --json`."""
        names = ("t_draft_ms", "t_verify_ms", "t_sample_ms", "t_host_ms", "cycle_ms", "residual_pct", "overhead_pct")
        return {"k": self.k, "n_runs": self.n_runs} | {name: getattr(self, name).to_dict() for name in names}


@dataclass(frozen=True, slots=True)
class StageShare:
    """One stage at one depth: its time and its share of the cycle; `position` -1 where the stage has none."""

    k: int
    stage: str
    position: int
    part: Part
    contains: str
    time_ms: Estimate
    share_pct: Estimate

    @property
    def large_gap(self) -> bool:
        """Whether this is a gap (host) above GAP_PCT of the cycle."""
        return self.part == "host" and (self.share_pct.value or 0.0) > GAP_PCT

    def to_dict(self) -> dict[str, object]:
        """As in `timing --json`."""
        return {
            "k": self.k,
            "stage": self.stage,
            "position": None if self.position < 0 else self.position,
            "part": self.part,
            "contains": self.contains,
            "time_ms": self.time_ms.to_dict(),
            "share_pct": self.share_pct.to_dict(),
            "large_gap": self.large_gap,
        }


@dataclass(frozen=True, slots=True)
class RankTimes:
    """One rank of a sweep with several, at one depth: ms a decode step. `wait_ms`: in collectives, for slower ranks."""

    k: int
    rank: int
    t_draft_ms: Estimate
    t_verify_ms: Estimate
    wait_ms: Estimate

    def to_dict(self) -> dict[str, object]:
        """As in `timing --json`."""
        names = ("t_draft_ms", "t_verify_ms", "wait_ms")
        return {"k": self.k, "rank": self.rank} | {name: getattr(self, name).to_dict() for name in names}


def run_parts(requests: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """A row a run of one cell: k, block, run_id, steps, cycle_ms, and a column a part (ms a step, NaN: no such stage).

    `requests`: `queries_timing.timed_requests` of the cell; `stages`: `stage_totals` of one rank.
    """
    whole = _whole(requests, stages)
    if whole.empty:
        return pd.DataFrame(columns=["k", "block", "run_id", "steps", "cycle_ms", *PARTS])
    totals = stages[stages["request_id"].isin(whole["request_id"])]
    parts = totals.assign(part=[part_of(stage) for stage in totals["stage"]])
    sums = parts.pivot_table(index="run_id", columns="part", values="total_s", aggfunc="sum")
    runs = whole.groupby("run_id", as_index=False).agg(
        k=("k", "first"), block=("block", "first"), steps=("steps", "sum"), decode_s=("decode_s", "sum")
    )
    runs = runs.merge(sums, left_on="run_id", right_index=True, how="left").sort_values(["k", "run_id"])
    for part in PARTS:
        runs[part] = 1e3 * numbers(runs, part) / runs["steps"]
    runs["cycle_ms"] = 1e3 * runs["decode_s"] / runs["steps"]
    return runs.reset_index(drop=True)


def depth_times(requests: pd.DataFrame, stages: pd.DataFrame) -> list[DepthTimes]:
    """One cell by depth, on the lowest rank's timeline; empty where nothing was timed."""
    if stages.empty:
        return []
    runs = run_parts(requests, lowest_rank(stages))
    if runs.empty:
        return []
    runs["residual_pct"] = 100 * (1 - runs[list(PARTS)].sum(axis=1, min_count=1) / runs["cycle_ms"])
    ratios, compared = overhead_pct(requests, lowest_rank(stages))
    found = []
    for k, rows in _groups(runs, "k"):
        times = {part: student_t_mean(rows[part], "ms") for part in PARTS}
        if k == 0:
            times["draft"] = missing("ms", NO_DRAFT)
        found.append(
            DepthTimes(
                int(k),
                len(rows),
                times["draft"],
                times["verify"],
                times["sample"],
                times["host"],
                student_t_mean(rows["cycle_ms"], "ms"),
                student_t_mean(rows["residual_pct"], "%"),
                student_t_mean(
                    ratios.loc[ratios["k"] == k, "overhead_pct"],
                    "%",
                    what="pair",
                    method=f"paired on/off ratio of {compared}, Student t over pairs of a run and a prompt",
                ),
            )
        )
    return found


def overhead_pct(requests: pd.DataFrame, stages: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """A row a run and prompt: k, overhead_pct = 100 (cycle with the probe on / off - 1); and what was compared.

    `stages`: of one rank.

    Steps where the probe was on in every other one: on, off, off, on within 100 ms, so that what the machine does to
    one kind it does to the other. Of a request the Hodges-Lehmann shift on the log, the median of all ratios of an on
    to an off step: one pause of the machine outweighs what all spans cost. In both kinds four of some sixty spans are
    recorded, and a function that is not recorded is called through its wrapper (.36 us where it was timed, .1% of the
    demo's cycle in all), so the ratio leaves that out. Else (sweeps of earlier versions) whole requests on, off, off,
    on: a drift that is linear in time cancels, and nothing is left out, but requests lie seconds apart. Geometric means
    of repeats.
    """
    keys = ["k", "run_id", "prompt_id"]
    steps = stages[stages["stage"].isin(STEP_TOTALS)]
    if not steps.empty:
        arms = steps.pivot(index="request_id", columns="stage", values="steps_s").dropna()
        shifts = [_shift(row[STEP_TOTALS[1]], row[STEP_TOTALS[0]]) for _, row in arms.iterrows()]
        by_request = pd.DataFrame({"request_id": arms.index, "log_ratio": shifts})
        ratio = by_request.merge(requests, on="request_id").groupby(keys)["log_ratio"].mean()
    else:
        cycle_s = requests["decode_s"].astype(float) / requests["steps"].astype(float)
        timed = requests.assign(log_cycle=np.log(cycle_s)).dropna(subset=["probe_on"])
        means = timed.pivot_table(index=keys, columns="probe_on", values="log_cycle")
        both = True in means and False in means
        ratio = (means[True] - means[False] if both else pd.Series(dtype=float)).dropna()
    compared = "requests" if steps.empty else "steps"
    if ratio.empty:
        return pd.DataFrame({"k": [], "overhead_pct": []}), compared
    return pd.DataFrame((100 * np.expm1(ratio)).rename("overhead_pct").reset_index()[["k", "overhead_pct"]]), compared


def _shift(later: Sequence[float], earlier: Sequence[float]) -> float:
    """Hodges-Lehmann estimate of how much larger log(later) is than log(earlier)."""
    return float(np.median(np.subtract.outer(np.log(later), np.log(earlier))))


def stage_shares(requests: pd.DataFrame, stages: pd.DataFrame) -> list[StageShare]:
    """Every stage and draft position of one cell by depth, on the lowest rank's timeline."""
    if stages.empty:
        return []
    stages = lowest_rank(stages)
    whole = _whole(requests, stages)
    if whole.empty:
        return []
    steps = whole.groupby("run_id").agg(steps=("steps", "sum"), decode_s=("decode_s", "sum"))
    kept = stages[stages["request_id"].isin(whole["request_id"])]
    kept = kept.assign(position=kept["position"].where(kept["stage"].isin(BY_POSITION), -1))
    sums = kept.groupby(["k", "stage", "position", "run_id"], as_index=False)["total_s"].sum()
    sums = sums.join(steps, on="run_id")
    sums["time_ms"], sums["share_pct"] = 1e3 * sums["total_s"] / sums["steps"], 100 * sums["total_s"] / sums["decode_s"]
    return [
        StageShare(
            int(k),
            str(stage),
            int(position),
            part_of(str(stage)),
            contains(str(stage)),
            student_t_mean(rows["time_ms"], "ms"),
            student_t_mean(rows["share_pct"], "%"),
        )
        for (k, stage, position), rows in _groups(sums, ["k", "stage", "position"])
    ]


def rank_times(requests: pd.DataFrame, stages: pd.DataFrame, waits: pd.DataFrame) -> list[RankTimes]:
    """Every rank of one cell by depth; empty with a single rank. `waits`: `queries_timing.rank_waits` of the cell."""
    if stages.empty or stages["rank"].nunique() < 2:
        return []
    found = []
    for rank, of_rank in _groups(stages, "rank"):
        runs = run_parts(requests, of_rank)
        waited = waits[waits["rank"] == rank]
        for k, rows in _groups(runs, "k"):
            draft = missing("ms", NO_DRAFT) if k == 0 else student_t_mean(rows["draft"], "ms")
            wait = student_t_mean(1e3 * waited.loc[waited["k"] == k, "wait_s"], "ms")
            found.append(RankTimes(int(k), int(rank), draft, student_t_mean(rows["verify"], "ms"), wait))
    return sorted(found, key=lambda row: (row.k, row.rank))


def _groups(frame: pd.DataFrame, keys: str | list[str]) -> list[tuple[Any, pd.DataFrame]]:
    """Groups by key, the key as plain numbers and texts (pandas types it as anything)."""
    return list(frame.groupby(keys))


def lowest_rank(stages: pd.DataFrame) -> pd.DataFrame:
    """Stages of the lowest rank alone: one timeline."""
    return pd.DataFrame(stages[stages["rank"] == stages["rank"].min()])


def _whole(requests: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """Timed requests whose every decode step was recorded: the others would make their cycle look shorter."""
    seen = stages[stages["stage"] == "verify_forward"].groupby("request_id")["ran_steps"].max()
    timed = requests[requests["request_id"].isin(seen.index) & requests["steps"].notna() & requests["decode_s"].notna()]
    return pd.DataFrame(timed[timed["steps"].astype(int).to_numpy() == seen.reindex(timed["request_id"]).to_numpy()])
