"""The command `import`: other tools' result files into a sweep of source "imported"."""

from __future__ import annotations

from pathlib import Path

import click

from backend import publish
from backend.importers.take_in import import_files
from backend.store import paths
from backend.store.database import Store


@click.command("import")
@click.argument("files", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--as", "name", metavar="NAME", help="Sweep to import into (default: named after the files).")
@click.option("--k", type=click.IntRange(min=0), help="Draft depth K, for files that do not tell it.")
@click.option(
    "--data",
    "data_dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory (default: SOUNDING_DATA, else data/local).",
)
def import_command(files: tuple[Path, ...], name: str | None, k: int | None, data_dir: Path | None) -> None:
    """Import results of other tools: vLLM `bench serve` JSON and vLLM server logs, told apart by their content."""
    with Store(paths.data_directory(data_dir), code_version=publish.code_version()) as store:
        imported = import_files(store, files, name=name, k=k)
    for one in imported.runs:
        told = f"{one.requests} requests" if one.requests else "totals only"
        state = "" if one.new else ", was there already"
        excluded = "" if one.run.valid else ", excluded"
        click.echo(f"{imported.sweep}: K={one.run.k} from {one.place} ({told}{state}{excluded})")
        for note in one.notes:
            click.echo(f"  {note}")
    click.echo(f"read it with: python -m backend summary {imported.sweep}")
