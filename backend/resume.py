"""What a sweep has done so far, by its journals, and whether this spec may go on with it."""

from __future__ import annotations

import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from backend.errors import Refused
from backend.measure.environment import code_version
from backend.records import Cell, Run, Sweep
from backend.schedule import PlannedRun
from backend.spec import SweepSpec
from backend.store import journal
from backend.store.database import Store

KILLED = "the sweep was killed during this run (kill -9, out of memory or power cut); it is redone from its launch"

# What may differ between a sweep and its resumption: names and patience, nothing that changes what is measured, and
# more blocks than before (see `changed_keys`): that is how a sweep gets the replication that its checks ask for.
FREE_KEYS = frozenset({"name", "description", "data_dir", "expect", "reference_depths"})
FREE_SERVER_KEYS = frozenset(
    {
        "port",
        "ready_timeout_s",
        "stall_timeout_s",
        "request_timeout_s",
        "stop_timeout_s",
        "release_timeout_s",
        "retries",
    }
)


@dataclass(frozen=True, slots=True)
class History:
    """A sweep's own records. `head`: Sweep and Cell records still to be written (all of them for a new sweep)."""

    head: tuple[Sweep | Cell, ...]
    runs: dict[int, tuple[Run, ...]]  # by order index

    def finished(self, planned: PlannedRun) -> bool:
        """Whether this planned run has a valid result."""
        return any(run.status == "done" and run.valid for run in self._of(planned))

    def attempts(self, planned: PlannedRun) -> int:
        """How often it was launched so far."""
        return max((run.attempt for run in self._of(planned)), default=0)

    def _of(self, planned: PlannedRun) -> list[Run]:
        """Its launches so far. More blocks move the last anchor to a later place, so the place alone does not tell."""
        place = (planned.block, planned.k, planned.role)
        return [run for run in self.runs.get(planned.order_index, ()) if (run.block, run.k, run.role) == place]

    def killed(self) -> list[Run]:
        """Runs that a killed sweep left without an end."""
        return [run for runs in self.runs.values() for run in runs if run.status == "running"]


def read_history(spec: SweepSpec, spec_toml: str, store: Store, *, resume: bool) -> History:
    """What is there of this sweep. Raises Refused where it is not ours to go on with; writes nothing."""
    if any((root / spec.name).is_dir() for name, root in store.roots.items() if name != "own"):
        raise Refused(
            f"'{spec.name}' is a bundled sweep", fix="give yours another name: --as NAME, or change name in the spec"
        )
    files = sorted((store.roots["own"] / spec.name).glob("*.jsonl"))
    records = [record for path in files for record in journal.read(path).records]
    stored = next((record for record in reversed(records) if isinstance(record, Sweep)), None)
    if stored is None:
        return History((sweep_record(spec, spec_toml), *spec.cells()), {})
    if not resume:
        raise Refused(
            f"a sweep named '{spec.name}' exists in {store.data_dir}",
            fix="go on with it by --resume, or give this one another name by --as NAME",
        )
    changed = changed_keys(stored.spec_toml or "", spec_toml)
    if changed:
        raise Refused(
            f"'{spec.name}' was started with another spec: {', '.join(changed)} differ",
            fix="restore the spec, or start a sweep of another name by --as NAME",
        )
    known = {record.cell_id for record in records if isinstance(record, Cell)}  # a torn sweep.jsonl may lack some
    latest = {record.run_id: record for record in records if isinstance(record, Run)}
    runs: dict[int, tuple[Run, ...]] = {}
    for run in latest.values():
        if run.order_index is not None:
            runs[run.order_index] = (*runs.get(run.order_index, ()), run)
    head: list[Sweep | Cell] = [cell for cell in spec.cells() if cell.cell_id not in known]
    if stored.blocks != spec.blocks and spec.stop is None:
        head.append(replace(stored, blocks=spec.blocks, spec_toml=spec_toml))
    return History(tuple(head), runs)


def write_head(spec: SweepSpec, store: Store, history: History) -> None:
    """Bring the journals of a sweep into order before it goes on: its head, and an end for runs that were killed."""
    if history.head:
        with store.sweep_journal(spec.name) as sweep_journal:
            sweep_journal.append(*history.head)
    for run in history.killed():
        with store.run_journal(spec.name, run.run_id) as run_journal:
            run_journal.append(replace(run, status="interrupted", valid=False, reason=KILLED))


def changed_keys(old_toml: str, new_toml: str) -> list[str]:
    """Keys whose change would make another experiment of it; more blocks do not."""
    old, new = tomllib.loads(old_toml), tomllib.loads(new_toml)
    grows = "stop" not in old and new.get("blocks", 0) >= old.get("blocks", 0)  # with [stop], blocks is the pilot
    free = FREE_KEYS | ({"blocks"} if grows else set())
    changed = [key for key in sorted({*old, *new} - free - {"server"}) if old.get(key) != new.get(key)]
    old_server, new_server = old.get("server", {}), new.get("server", {})
    keys = sorted({*old_server, *new_server} - FREE_SERVER_KEYS)
    return changed + [f"server.{key}" for key in keys if old_server.get(key) != new_server.get(key)]


def sweep_record(spec: SweepSpec, spec_toml: str) -> Sweep:
    """The Sweep record of a new sweep."""
    speculator = spec.speculator
    return Sweep(
        sweep=spec.name,
        source="measured",
        created_unix_s=time.time(),
        description=spec.description,
        target_model=spec.target.model,
        target_revision=spec.target.revision,
        speculator_method=speculator.method,
        speculator_model=speculator.model,
        speculator_revision=speculator.revision,
        max_depth=speculator.max_depth,
        seed=spec.seed,
        blocks=spec.blocks,
        reference_depths=dict(spec.reference_depths),
        spec_toml=spec_toml,
        code_version=code_version(Path(__file__).parent),
    )
