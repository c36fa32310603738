"""For every test: quick whole sweeps with the stand-in engine; long tests stay out unless asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from backend import sweep
from backend.errors import Refused
from backend.progress import Progress
from backend.spec_file import load
from backend.store.database import Store
from tests.standin.specs import write_spec

# On CI the same examples every time: a run there judges the change, not the luck of the draw. No deadline anywhere,
# because the machines are shared. Elsewhere Hypothesis goes on looking for new examples.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

SLOW = (
    "nodes/",
    "sweep/",
    "pages/",
    "importers/",
    "engines/",
    "test_cli.py",
    "test_worker.py",
    "analysis/test_coverage.py",
)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what takes whole sweeps, pages or simulations as slow: `make test` runs it, `make check` does not.

    Tests marked long run only when -m asks for them; here, because any -m replaces one in the settings.
    """
    for item in items:
        if item.path.relative_to(Path(__file__).parent).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    if "long" in str(config.getoption("markexpr")):
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
    items[:] = [item for item in items if not item.get_closest_marker("long")]


def _quiet(_now: Progress) -> None:
    """A listener that says nothing."""


@pytest.fixture
def standin_spec(tmp_path: Path) -> Callable[..., Path]:
    """Writes a spec for the stand-in below this test's folder; takes the keywords of `write_spec`."""

    def write(**changes: object) -> Path:
        return write_spec(tmp_path / "specs", **changes)  # type: ignore[arg-type]

    return write


@pytest.fixture(scope="session")
def quick_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with one finished sweep "quick" of the stand-in: K = 0, 1, 3 in two blocks. Read only."""
    folder = tmp_path_factory.mktemp("quick")
    path = write_spec(folder / "specs", blocks=2)
    with Store(folder / "data", bundled={}, code_version="test") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "exclusions", lambda _found: {})  # a busy test machine starves the client
        outcome = sweep.run_sweep(load(path), path.read_text(), store, resume=False, listener=_quiet)
    if outcome.exit_code:
        raise Refused(f"the quick sweep lacks {outcome.missing}")
    return folder / "data"
