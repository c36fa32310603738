"""The one list of pages, in the order of the menu: explorer.py, the sidebar, links and tests are all made from it.

To add a page: write pages/<stem>.py (its first call is `frame.open_page(<title>)`) and add a line here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its file's stem, which is its address too; its title; what its link can say; what tests may expect."""

    stem: str
    title: str
    keys: tuple[str, ...] = ()  # the link's names besides the sweep and those of every page
    more: tuple[str, ...] = ()  # the link's names of the parts that readers open
    chart: bool = True  # whether it draws a chart where a sweep has figures

    @property
    def path(self) -> str:
        """Its file, from the repository's root."""
        return f"pages/{self.stem}.py"

    @property
    def address(self) -> str:
        """Its path in the browser; the first page is the root."""
        return "" if self is MENU[0] else self.stem


MENU = (
    Page("overview", "Overview", ("cell",)),
    Page("compare", "Compare K", ("metric", "with", "k", "cells", "cell", "base")),
    Page("acceptance", "Acceptance", ("cell", "rate", "k", "length", "against", "position"), more=("rates", "effect")),
    Page(
        "cycle",
        "Cycle fit",
        ("cell", "window", "plan", "to_t_draft", "to_tok_s", "to_loss", "scatter"),
        more=("intervals", "planner"),
    ),
    # charts only where it was timed, and where a sensor was read or reported
    Page("proposer", "Proposer timing", ("cell", "stage", "part"), more=("stages",), chart=False),
    Page("power", "Power and energy", ("cell", "run"), chart=False),
    Page(
        "whatif",
        "What if",
        ("cell", "drafter", "freed", "t_draft", "hop", "verify", "scale", "tokens"),
        more=("heldout",),
    ),
    Page("runs", "Runs", ("run", "depth", "ended", "cell"), more=("environment", "log")),
    Page("sql", "SQL", ("sql", "table", "x", "y", "as"), more=("columns",)),
    Page("data", "Data", ("table",), more=("columns",), chart=False),
    Page("live", "Live"),
)
BY_PATH = {page.path: page for page in MENU}
