"""The canary: a matrix-vector product and a copy, timed. It runs as a program of its own on the node and prints JSON.

Standard library only; torch with CUDA where the Python has it (every GPU, the slowest counts), else numpy, else plain
Python; the kind says which, so that unlike canaries are never compared. The time is the fastest of many repetitions: a
slow state of the machine slows that one too, other work beside it does not. On a GPU sizes are beyond the caches, so
that memory is what is timed: GB10's known power fault slowed the product 3.3 times and left the copy as it was.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

GPU_SIDE, CPU_SIDE, PLAIN_SIDE = 8192, 2048, 256
GPU_REPEATS, CPU_REPEATS = 60, 60
COPY_BYTES = 16 << 20  # shorter than a time slice, so that a busy machine leaves some repetitions whole


def fastest(work: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest repetition, after two that do not count."""
    times = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times[2:])


def on_gpus(torch: Any) -> list[dict[str, Any]]:
    """float16 on every CUDA device."""
    slowest = {"gemv": 0.0, "copy": 0.0}
    for index in range(torch.cuda.device_count()):
        device = f"cuda:{index}"
        matrix = torch.full((GPU_SIDE, GPU_SIDE), 0.5, dtype=torch.float16, device=device)
        vector = torch.ones(GPU_SIDE, dtype=torch.float16, device=device)
        target = torch.empty_like(matrix)

        def timed(work: Callable[[], Any], device: str = device) -> float:
            def step() -> None:
                work()
                torch.cuda.synchronize(device)

            return fastest(step, GPU_REPEATS)

        gemv = timed(partial(torch.mv, matrix, vector))
        copy = timed(partial(target.copy_, matrix))
        slowest = {"gemv": max(slowest["gemv"], gemv), "copy": max(slowest["copy"], copy)}
    size = GPU_SIDE * GPU_SIDE * 2 >> 20
    return [
        {"kind": f"gemv {GPU_SIDE} float16 torch cuda", "duration_s": slowest["gemv"]},
        {"kind": f"copy {size} MiB torch cuda", "duration_s": slowest["copy"]},
    ]


def on_cpu() -> list[dict[str, Any]]:
    """float32 by numpy on one core (the caller sets the thread counts), else lists and bytes."""
    source, copied = bytearray(COPY_BYTES), bytearray(COPY_BYTES)
    try:
        import numpy as np
    except ImportError:
        row = [0.5] * PLAIN_SIDE
        rows = [row[:] for _ in range(PLAIN_SIDE)]
        gemv = fastest(lambda: [sum(a * b for a, b in zip(each, row, strict=True)) for each in rows], CPU_REPEATS)
        name = f"gemv {PLAIN_SIDE} float64 plain python"
    else:
        matrix, vector = np.full((CPU_SIDE, CPU_SIDE), 0.5, np.float32), np.ones(CPU_SIDE, np.float32)
        gemv = fastest(lambda: matrix @ vector, CPU_REPEATS)
        name = f"gemv {CPU_SIDE} float32 numpy cpu"

    def copy() -> None:
        copied[:] = source

    return [
        {"kind": name, "duration_s": gemv},
        {"kind": f"copy {COPY_BYTES >> 20} MiB cpu", "duration_s": fastest(copy, CPU_REPEATS)},
    ]


def run() -> list[dict[str, Any]]:
    """Both canaries of this node: [{"kind", "duration_s"}, ...]."""
    try:
        import torch
    except ImportError:
        return on_cpu()
    return on_gpus(torch) if torch.cuda.is_available() else on_cpu()


if __name__ == "__main__":
    json.dump(run(), sys.stdout)
