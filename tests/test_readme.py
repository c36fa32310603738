"""The README's tour is what the commands print: every block is run on the bundled snapshot and compared.

After a change: `python -m tests.test_readme` writes the present output into the README.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from backend.cli import cli
from backend.store.paths import BUNDLED_SNAPSHOT

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"```console\n\$ python -m backend (?P<line>[^\n]*)\n(?P<output>.*?)```\n", re.DOTALL)


def output_of(line: str) -> str:
    ran = CliRunner().invoke(cli, shlex.split(line), env={"SOUNDING_DB": str(BUNDLED_SNAPSHOT)}, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return "\n".join(row.rstrip() for row in ran.stdout.splitlines()) + "\n"


def lines_of_the_tour() -> list[str]:
    return [block["line"] for block in BLOCK.finditer(README.read_text())]


def test_the_tour_shows_both_bundled_sweeps() -> None:
    shown = " ".join(lines_of_the_tour())
    for command in ("summary", "fit", "compare", "acceptance"):
        assert f"{command} " in shown
    assert "demo-vllm-cpu" in shown
    assert "published-glm52-gb10" in shown


@pytest.mark.parametrize("line", lines_of_the_tour())
def test_the_tour_is_true(line: str) -> None:
    shown = next(block["output"] for block in BLOCK.finditer(README.read_text()) if block["line"] == line)
    assert output_of(line) == shown


def refresh() -> None:
    """Put the present output into the README."""
    text = README.read_text()
    README.write_text(
        BLOCK.sub(
            lambda block: f"```console\n$ python -m backend {block['line']}\n{output_of(block['line'])}```\n", text
        )
    )


if __name__ == "__main__":
    refresh()
    sys.exit(0)
