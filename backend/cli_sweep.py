"""One way to run a sweep from the command line, for `sweep` and `time-proposer`: opens the store, shows progress, says
what has no result.
"""

from __future__ import annotations

from pathlib import Path

import click

from backend import publish
from backend.spec import SweepSpec
from backend.store import paths
from backend.store.database import Store
from backend.sweep import run_sweep
from backend.terminal import SweepMonitor


def run_and_report(spec: SweepSpec, spec_text: str, data_dir: Path | None, *, resume: bool) -> int:
    """Run `spec`, keep `spec_text` with it, print every run without a valid result; the exit code (see `cli`)."""
    directory = paths.data_directory(data_dir or spec.data_dir)
    with Store(directory, code_version=publish.code_version()) as store, SweepMonitor() as monitor:
        outcome = run_sweep(
            spec,
            spec_text,
            store,
            resume=resume,
            listener=monitor.listen,
            say=lambda note: click.echo(f"note: {note}", err=True),
        )
    for run_id in outcome.missing:
        click.echo(f"no valid result: {run_id} (its reason is in table failure and on page Runs)", err=True)
    return outcome.exit_code
