"""What an importer found in a file: records without ids, until they are put under a sweep's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backend.errors import Refused
from backend.records import Cell, Environment, Finding, Record, ReportedValue, Request, Run


@dataclass(frozen=True, slots=True)
class Found:
    """One run as another tool tells it. Ids inside `requests`, `figures` and `findings` are empty.

    identity: the same for the same run, however its file is named. models: names of the target, the one to show first.
    k_by: what in the file says K ("" where only the user did). facts: name -> value, for table environment.
    """

    place: str
    format: str
    identity: str
    k: int
    k_by: str
    models: tuple[str, ...]
    concurrency: int
    workload: str
    speculator: tuple[str | None, str | None] = (None, None)  # method, model
    requests: tuple[Request, ...] = ()
    figures: tuple[ReportedValue, ...] = ()
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def run_id(self, sweep: str) -> str:
        """ "<sweep>:k<K>-<identity>"."""
        return f"{sweep}:k{self.k}-{self.identity}"

    def cell(self, sweep: str) -> Cell:
        """The cell it was measured in; what the file does not tell is None."""
        cell_id = f"{sweep}:c{self.concurrency}-text-{self.workload}"
        return Cell(cell_id, sweep, self.concurrency, None, self.workload, None, None, None, None)

    def run(self, sweep: str) -> Run:
        """The run: no block and no order, because a file tells neither."""
        return Run(
            run_id=self.run_id(sweep),
            sweep=sweep,
            k=self.k,
            block=None,
            order_index=None,
            attempt=1,
            role="arm",
            status="done",
            reason=None,
            valid=True,
            exclusion_reason=None,
            started_unix_s=None,
            ended_unix_s=None,
            server_start_s=None,
            server_stop_s=None,
            reported_k=self.k if self.k_by else None,
            command=None,
            env=None,
            log_path=None,
        )

    def details(self, sweep: str) -> list[Record]:
        """Requests, figures, findings and facts under the run's ids."""
        run_id, cell_id = self.run_id(sweep), self.cell(sweep).cell_id
        suffix = cell_id.split(":", 1)[1]
        facts = {"format": self.format, "file": self.place, **self.facts}
        return [
            *(Environment(run_id, "", name, value) for name, value in facts.items()),
            *(
                replace(
                    request,
                    request_id=f"{run_id}:{suffix}:{request.phase}:{request.request_index}",
                    run_id=run_id,
                    cell_id=cell_id,
                )
                for request in self.requests
            ),
            *(replace(figure, run_id=run_id, cell_id=cell_id) for figure in self.figures),
            *(replace(finding, sweep=sweep, run_id=run_id, cell_id=cell_id) for finding in self.findings),
        ]


def figure(quantity: str, value: float, unit: str, note: str) -> ReportedValue:
    """A reported value without ids."""
    return ReportedValue("", "", quantity, float(value), unit, note)


def settle_depth(told: Mapping[str, int], given: int | None, place: str, why_unknown: str) -> tuple[int, str]:
    """(K, what in the file says so). told: what says K -> that K; given: the user's --k.

    Raises Refused where the file contradicts itself or the user, and where nobody says K.
    """
    if len(set(told.values())) > 1:
        listed = ", ".join(f"K={k} by {by}" for by, k in told.items())
        raise Refused(f"tells several depths: {listed}", where=place, fix="import a file of one launch at one depth")
    if not told:
        if given is None:
            raise Refused(f"does not tell K: {why_unknown}", where=place, fix="say it with --k N")
        return given, ""
    by, k = next(iter(told.items()))
    if given is not None and given != k:
        raise Refused(
            f"was measured at K={k} by {by}, and --k says {given}",
            where=place,
            fix="leave --k out; it is for files that do not tell K",
        )
    return k, by
