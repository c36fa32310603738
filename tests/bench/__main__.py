"""`make bench`: our performance and honesty figures, printed as ratios to their targets where they have one.

`python -m tests.bench [PART ...]`; parts: sweep (where a sweep's wall time goes), viewer (the explorer on
1e6 and 1e7 steps), timing (residual and overhead of the bundled demo), analysis (time, coverage; long),
depth-effect (coverage of the depth effect on acceptance; long).
"""

from __future__ import annotations

import argparse
import runpy
import sys

PARTS = {
    "sweep": "tests.bench.bench_sweep",
    "viewer": "tests.bench.bench_viewer",
    "timing": "tests.bench.bench_timing",
    "analysis": "tests.bench.bench_analysis",
    "depth-effect": "tests.bench.bench_depth_effect",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    missed = []
    for part in parser.parse_args().parts:
        sys.argv = [PARTS[part]]  # each part has options of its own, here its defaults
        try:
            runpy.run_module(PARTS[part], run_name="__main__")
        except SystemExit as end:  # a part ends so; the next one is still to run
            missed += [part] if end.code else []
    sys.exit(f"missed their targets: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
