"""The command line. Exit codes: 0 done; 1 unexpected error; 2 refused before anything was written; 3 finished with
failed runs (each a row with its reason); 130/143 interrupted (the run under way is marked).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from backend import (
    cli_acceptance,
    cli_energy,
    cli_import,
    cli_nodes,
    cli_plan,
    cli_read,
    cli_timing,
    cli_worker,
    preflight,
    publish,
)
from backend.cli_sweep import run_and_report
from backend.engines import engine_for
from backend.engines.base import Engine
from backend.engines.nnodes import NnodesEngine
from backend.errors import Refused, SoundingError
from backend.schedule import plan
from backend.spec import SweepSpec
from backend.spec_file import load, renamed
from backend.store import paths
from backend.store.database import Store

DATA_OPTION = click.option(
    "--data",
    "data_dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory (default: the spec's, else SOUNDING_DATA, else data/local).",
)
SPEC_ARGUMENT = click.argument("spec_path", metavar="SPEC", type=click.Path(path_type=Path))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def cli() -> None:
    """Sounding: how deep should you speculate? Sweep draft depth K, keep it all, explain it."""


@cli.command()
@SPEC_ARGUMENT
@click.option("--nodes", is_flag=True, help="Look at every [[node]] too: memory, models, links, what runs there.")
@DATA_OPTION
def check(spec_path: Path, nodes: bool, data_dir: Path | None) -> None:
    """Validate SPEC without running anything; print its runs and the predicted hours."""
    spec = load(spec_path)
    if nodes and (code := cli_nodes.report(spec, _data_dir(data_dir, spec))):
        sys.exit(code)
    preflight.check(spec)
    runs = plan(spec)
    hours = preflight.predicted_hours(spec)
    arms, anchors, eager = (sum(run.role == role for run in runs) for role in ("arm", "anchor", "diagnostic"))
    click.echo(
        f"{spec_path}: ok. {spec.name}: K = {', '.join(map(str, spec.depths))}; {arms} runs in {spec.blocks} block(s)"
        f"{f' and {anchors} K=0 anchors' if anchors else ''}{f' and {eager} diagnostic runs' if eager else ''}; "
        f"{len(spec.cells())} cell(s) a run; "
        f"about {hours:.1f} h ({hours * 60:.0f} min) by the spec's [expect]"
    )
    for note in preflight.notes(spec):
        click.echo(f"note: {note}")


@cli.command()
@SPEC_ARGUMENT
@click.option("--as", "name", metavar="NAME", help="Store under this name instead of the spec's.")
@click.option("--resume", is_flag=True, help="Go on with the sweep of this name; finished runs are kept.")
@click.option("--dry-run", is_flag=True, help="Print the ordered runs and the exact commands; run nothing.")
@DATA_OPTION
def sweep(spec_path: Path, name: str | None, resume: bool, dry_run: bool, data_dir: Path | None) -> None:
    """Run the depth sweep that SPEC describes."""
    spec = load(spec_path)
    if name:
        spec = renamed(spec, name)
    if dry_run:
        _print_plan(spec)
        return
    sys.exit(run_and_report(spec, spec_path.read_text(encoding="utf-8"), data_dir, resume=resume))


def _print_plan(spec: SweepSpec) -> None:
    engine = engine_for(spec)
    for run in plan(spec):
        cells = ", ".join(cell.cell_id.split(":", 1)[1] for cell in run.cells)
        click.echo(f"{run.order_index:3d}  block {run.block}  K={run.k}  {run.role:6s}  {cells}")
        for node, (argv, env) in _commands(engine, spec, run.k).items():
            command = shlex.join(["env", *(f"{key}={value}" for key, value in env.items()), *argv]) if argv else ""
            click.echo(f"     {node}{command or f'measures {spec.server.base_url}'}")


def _commands(engine: Engine, spec: SweepSpec, k: int) -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
    """What is launched for depth k: "" -> argv and environment, or "node: " -> a rank's."""
    if isinstance(engine, NnodesEngine):
        return {f"{node.name}: ": engine.rank_command(k, number) for number, node in enumerate(spec.node)}
    return {"": engine.command(k)}


@cli.command()
@DATA_OPTION
@click.option("--bundle", is_flag=True, help="Rebuild the bundled snapshot data/demo/results.duckdb instead.")
@click.option("--adopt", type=click.Path(path_type=Path), help="First take this journal folder into the bundle.")
def rebuild(data_dir: Path | None, bundle: bool, adopt: Path | None) -> None:
    """Make the databases anew from the journals, which are the truth."""
    if adopt is not None:
        publish.adopt(adopt)
    if bundle or adopt is not None:
        sweeps = publish.bundle()
    else:
        with Store(_data_dir(data_dir), code_version=publish.code_version(), fresh=True) as store:
            for torn in store.torn:
                click.echo(f"note: {torn}", err=True)
            sweeps = publish.publish(store)
    click.echo(f"rebuilt: {len(sweeps)} sweeps ({', '.join(sweeps)})")


def _data_dir(given: Path | None, spec: SweepSpec | None = None) -> Path:
    return paths.data_directory(given or (spec.data_dir if spec is not None else None))


for command in (
    *cli_read.COMMANDS,
    *cli_acceptance.COMMANDS,
    *cli_plan.COMMANDS,
    *cli_energy.COMMANDS,
    *cli_timing.COMMANDS,
    cli_import.import_command,
    *cli_worker.COMMANDS,
):
    cli.add_command(command)


def main() -> None:
    """Entry point: every fault of ours is one line on standard error and an exit code."""
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except SoundingError as error:
        click.echo(f"{'refused' if isinstance(error, Refused) else 'error'}: {error}", err=True)
        sys.exit(error.exit_code)
