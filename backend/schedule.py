"""Run order: randomised complete blocks with a stored seed, K=0 anchors first and last, diagnostic runs after them.

Every block holds every depth once, in its own random order, so that slow drift is not confused with depth.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from backend.records import Cell, Role
from backend.spec import SweepSpec


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One launch to make. `cells` are in the order in which they are measured inside it."""

    order_index: int
    block: int
    k: int
    role: Role
    cells: tuple[Cell, ...]
    seed: int  # of the prompt order inside this run

    def run_id(self, sweep: str, attempt: int) -> str:
        """Key of the run that carries this plan out, by attempt (1 is the first)."""
        return f"{sweep}:r{self.order_index:03d}b{self.block}k{self.k}a{attempt}"


def plan(spec: SweepSpec) -> tuple[PlannedRun, ...]:
    """The runs of a sweep in order. The same spec gives the same plan on every machine and Python."""
    order: list[tuple[int, int, Role]] = []
    for block in range(spec.blocks):
        depths = list(spec.depths)
        random.Random(f"{spec.seed}/block/{block}").shuffle(depths)
        order += [(block, k, "arm") for k in depths]
    if spec.anchors and 0 in spec.depths:
        order = [(0, 0, "anchor"), *order, (spec.blocks - 1, 0, "anchor")]
    if spec.timing.diagnostic:
        order += [(0, k, "diagnostic") for k in spec.depths if k]
    runs = []
    for index, (block, k, role) in enumerate(order):
        cells = list(spec.cells())
        dice = random.Random(f"{spec.seed}/run/{index}")
        dice.shuffle(cells)
        runs.append(PlannedRun(index, block, k, role, tuple(cells), dice.getrandbits(32)))
    return tuple(runs)
