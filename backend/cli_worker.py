"""The commands `enqueue` and `worker`: sweeps one after the other, without anybody watching."""

from __future__ import annotations

from pathlib import Path

import click

from backend import worker
from backend.store import paths

DATA_OPTION = click.option(
    "--data",
    "data_dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory (default: SOUNDING_DATA, else data/local).",
)


@click.command()
@click.argument("spec_path", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--as", "name", metavar="NAME", help="Sweep under this name instead of the spec's.")
@DATA_OPTION
def enqueue(spec_path: Path, name: str | None, data_dir: Path | None) -> None:
    """Put SPEC into the queue of the worker; the copy keeps the folder that its paths are relative to."""
    queued = worker.enqueue(spec_path, paths.data_directory(data_dir), name)
    click.echo(f"queued: {queued}")


@click.command("worker")
@DATA_OPTION
def work(data_dir: Path | None) -> None:
    """Sweep what is queued, one spec after the other, until SIGTERM or ctrl-c; then the run under way is marked."""
    worker.Worker(paths.data_directory(data_dir), say=lambda line: click.echo(line, err=True)).work()


COMMANDS = (enqueue, work)
