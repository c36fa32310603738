"""What a training run of the tiny pair is asked to do: steps, sizes, seed, folder. Needs the standard library only."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BUNDLED = Path(__file__).resolve().parent
DEFAULT_OUT = BUNDLED.parents[1] / "build" / "models"
STAGES = ("tokenizer", "target", "draft", "distil")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Schedule:
    """One stage's optimiser settings: linear warm-up, then a cosine from `peak` to `peak * floor` over `steps`."""

    steps: int
    peak: float
    warmup: int
    floor: float
    weight_decay: float

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.peak * min(1.0, (step + 1) / self.warmup) * (cosine * (1 - self.floor) + self.floor)


@dataclass(frozen=True)
class Sizes:
    """How much of everything; `--quick` takes the small set."""

    max_files: int | None = None
    batch: int = 16
    length: int = 192
    validation_tokens: int = 60_000
    validation_rows: int = 64
    distil_batches: int = 24  # of target's text, made once
    distil_rows: int = 96  # prompts in one such batch
    distil_prompt: int = 64
    distil_new: int = 128
    distil_batch: int = 24  # rows of one training step


FULL_SIZES = Sizes()
QUICK_SIZES = Sizes(
    max_files=24,
    batch=2,
    length=48,
    validation_tokens=4_000,
    validation_rows=4,
    distil_batches=1,
    distil_rows=4,
    distil_prompt=16,
    distil_new=16,
    distil_batch=4,
)
FULL_STEPS = {"target": 1135, "draft": 2000, "distil": 400}
QUICK_STEPS = {"target": 2, "draft": 4, "distil": 4}


@dataclass(frozen=True)
class Job:
    """What the command line asked for."""

    out: Path
    seed: int
    threads: int
    precision: str
    quick: bool
    sizes: Sizes
    stages: tuple[str, ...]
    steps: dict[str, int]

    def stage_seed(self, stage: str) -> int:
        """A seed of each stage's own, so that a stage run alone repeats what it did among the others."""
        return self.seed * len(STAGES) + STAGES.index(stage)


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def parse(argv: Sequence[str] | None) -> Job:
    """Read the command line. Exits with 2, before anything is written, if it asks for what must not be."""
    parser = argparse.ArgumentParser(description="Remake the demo's tiny target and drafter on a CPU.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for the models (default: build/models)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=positive, default=2, help="other counts give other bits (default: 2)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="bfloat16 pays on AVX512-BF16 or AMX"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; the models are useless")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    for stage, steps in FULL_STEPS.items():
        parser.add_argument(f"--steps-{stage}", type=positive, help=f"(default: {steps})")
    parser.add_argument("--overwrite-bundled", action="store_true", help="allow --out to be the bundled pair's folder")
    options = parser.parse_args(argv)
    out = options.out.resolve()
    if out == BUNDLED and not options.overwrite_bundled:
        parser.error(f"{out} holds the bundled pair; give --overwrite-bundled to replace it")
    defaults = QUICK_STEPS if options.quick else FULL_STEPS
    return Job(
        out=out,
        seed=options.seed,
        threads=options.threads,
        precision=options.precision,
        quick=options.quick,
        sizes=QUICK_SIZES if options.quick else FULL_SIZES,
        stages=tuple(stage for stage in STAGES if stage in options.stages),
        steps={stage: getattr(options, f"steps_{stage}") or defaults[stage] for stage in FULL_STEPS},
    )
