"""`check SPEC --nodes`: what the pre-flight of the nodes found, a line each."""

from __future__ import annotations

from pathlib import Path

import click

from backend.preflight_nodes import check_nodes
from backend.spec import SweepSpec

MARK = {"error": "ERROR  ", "warning": "warning", "info": "info   "}


def report(spec: SweepSpec, data_dir: Path) -> int:
    """Print every finding; the exit code: 2 where one of them forbids the sweep, else 0."""
    found = check_nodes(spec, data_dir)
    for check in found.checks:
        place = f"{check.node or 'spec'}: {check.code}: {check.message}"
        click.echo(f"{MARK[check.severity]} {place}" + (f"\n          -> {check.action}" if check.action else ""))
    warnings = sum(check.severity == "warning" for check in found.checks)
    verdict = "the sweep cannot run as written" if found.errors else "the sweep can run"
    click.echo(f"{spec.name}: {found.nodes} node(s), {found.errors} error(s), {warnings} warning(s): {verdict}")
    return 2 if found.errors else 0
