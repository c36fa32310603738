"""The tape and its wrappers on a worker made of plain objects, with a clock that the test turns: exact answers."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from backend.probe.sounding_probe import hooks, stages
from backend.probe.sounding_probe.stages import StageProbe
from backend.records import STEP_TOTALS


class Clock:
    """time.perf_counter that moves only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def spend(self, milliseconds: float) -> None:
        self.now += milliseconds / 1e3


class Model:
    def __init__(self, clock: Clock, forward_ms: float, logits_ms: float) -> None:
        self.clock, self.forward_ms, self.logits_ms = clock, forward_ms, logits_ms

    def forward(self) -> None:
        self.clock.spend(self.forward_ms)

    def compute_logits(self) -> None:
        self.clock.spend(self.logits_ms)


class Drafter:
    """Autoregressive: a forward, logits and a choice for each of K positions."""

    def __init__(self, clock: Clock, depth: int) -> None:
        self.clock, self.depth, self.model = clock, depth, Model(clock, 2.0, 0.5)

    def propose(self) -> None:
        self.clock.spend(0.25)
        for _ in range(self.depth):
            self.model.forward()
            self._sample_draft_tokens()

    def _sample_draft_tokens(self) -> None:
        self.model.compute_logits()
        self.clock.spend(0.125)


class Runner:
    """The functions of vLLM's V1 runner that are timed, each with a cost of its own."""

    def __init__(self, clock: Clock, depth: int) -> None:
        self.clock, self.model, self.drafter = clock, Model(clock, 8.0, 1.0), Drafter(clock, depth)

    def get_model(self) -> Model:
        return self.model

    def execute_model(self) -> None:
        self.clock.spend(0.5)
        self._prepare_inputs()
        self._model_forward()
        self.model.compute_logits()

    def _prepare_inputs(self) -> None:
        self.clock.spend(0.75)

    def _model_forward(self) -> None:
        self.model.forward()

    def sample_tokens(self) -> None:
        self._sample()
        self.propose_draft_token_ids()
        self.clock.spend(0.0625)

    def _sample(self) -> None:
        self.clock.spend(0.375)

    def propose_draft_token_ids(self) -> None:
        self.clock.spend(0.03125)
        self.drafter.propose()


class Worker(StageProbe):
    def __init__(self, clock: Clock, depth: int = 3) -> None:
        self.clock, self.model_runner = clock, Runner(clock, depth)
        self.rank, self.device = 0, SimpleNamespace(type="cpu")

    def step(self) -> None:
        """What the engine does for one step, with 4 ms of its own between them."""
        self.clock.spend(4.0)
        self.model_runner.execute_model()
        self.model_runner.sample_tokens()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stages.time, "perf_counter", lambda: clock.now)
    return clock


def recorded(worker: Worker) -> list[dict[tuple[str, int], float]]:
    """The steps of a worker as {(stage, position): ms}."""
    end = worker.probe_end()
    rows: list[list[float | None]] = []
    while len(rows) < end["steps"]:
        rows += worker.probe_page(len(rows))["rows"]
    columns = [tuple(column) for column in end["columns"]]
    return [
        {column: round(value / 1e3, 6) for column, value in zip(columns, row, strict=True) if value is not None}
        for row in rows
    ]


def test_stages_are_exclusive_leaves_with_their_positions(clock: Clock) -> None:
    worker = Worker(clock)
    worker.probe_begin("on")
    worker.step()
    worker.step()
    first, second = recorded(worker)
    per_position = {
        **{("draft_forward", position): 2.0 for position in range(3)},
        **{("draft_logits", position): 0.5 for position in range(3)},
        **{("draft_sampling", position): 0.125 for position in range(3)},
    }
    shared = {("verify_forward", -1): 8.0, ("target_logits", -1): 1.0, ("target_sampling", -1): 0.375}
    loops = {("prepare_inputs", -1): 0.75, ("runner_loop", -1): 0.5 + 0.0625}
    draft = {("draft_prepare", -1): 0.031, ("draft_inputs", -1): 0.25}
    assert first == pytest.approx({**per_position, **shared, **loops, **draft}, abs=1e-3)
    assert second == first


def test_time_in_no_hook_is_in_no_stage(clock: Clock) -> None:
    """The engine's own 4 ms a step are outside this worker: only a clock that runs outside can show them."""
    worker = Worker(clock)
    worker.probe_begin("on")
    begin = clock.now
    for _ in range(5):
        worker.step()
    elapsed_ms = (clock.now - begin) * 1e3
    inside = sum(sum(row.values()) for row in recorded(worker))
    assert elapsed_ms - inside == pytest.approx(5 * 4.0, abs=0.01)


def test_it_leaves_no_trace(clock: Clock) -> None:
    """Instance attributes are gone, and one that was an instance's own is what it was."""
    worker = Worker(clock)
    own: Any = worker.model_runner._sample
    worker.model_runner._sample = own  # type: ignore[method-assign]
    before = {name: dict(vars(thing)) for name, thing in things(worker).items()}
    worker.probe_begin("on")
    assert vars(worker.model_runner) != before["runner"]
    worker.step()
    worker.probe_end()
    assert {name: dict(vars(thing)) for name, thing in things(worker).items()} == before


def things(worker: Worker) -> dict[str, object]:
    runner = worker.model_runner
    return {"runner": runner, "model": runner.model, "drafter": runner.drafter, "drafter.model": runner.drafter.model}


def test_the_off_arm_wraps_nothing(clock: Clock) -> None:
    worker = Worker(clock)
    before = {name: dict(vars(thing)) for name, thing in things(worker).items()}
    assert worker.probe_begin("off")["hooks"] == 0
    assert {name: dict(vars(thing)) for name, thing in things(worker).items()} == before
    worker.step()
    assert recorded(worker) == []


def test_alternate_records_steps_on_off_off_on(clock: Clock) -> None:
    """A recorded step has all its stages, another only its total; the totals hold what runs outside every hook too."""
    worker = Worker(clock)
    worker.probe_begin("on")
    worker.step()
    (whole,) = recorded(worker)
    worker.probe_begin("alternate")
    for _ in range(9):
        worker.step()
    steps = recorded(worker)
    assert ["prepare_inputs" in {stage for stage, _ in step} for step in steps] == [True, False, False, True] * 2 + [
        True
    ]
    total_ms = sum(whole.values()) + 4.0
    for step in steps[1:]:  # the first begins at its first mark
        probed = step.pop(("step_probed", -1), None)
        unprobed = step.pop(("step_unprobed", -1), None)
        assert [probed, unprobed].count(None) == 1
        assert (probed or unprobed) == pytest.approx(total_ms, abs=1e-3)
        if probed:
            assert step == pytest.approx(whole, abs=1e-3)
        else:
            assert set(step) == {("verify_forward", -1), ("runner_loop", -1)}


def test_records_and_probe_name_the_totals_alike() -> None:
    assert hooks.STEP_TOTALS == STEP_TOTALS


def test_where_the_engine_core_ends_the_step_alternation_follows_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends are hooked in one process: the arms change once a step, not twice, and the loop around stays whole."""

    class Scheduler:
        def update_from_output(self) -> None:
            clock.spend(0.5)

    class Core:
        scheduler = Scheduler()

        def _process_engine_step(self, worker: Worker) -> None:
            worker.step()
            self.scheduler.update_from_output()
            clock.spend(1.0)

    for name, kind in (("scheduler", Scheduler), ("core", Core)):
        module = "vllm.v1.core.sched.scheduler" if name == "scheduler" else "vllm.v1.engine.core"
        monkeypatch.setitem(
            stages.sys.modules,
            module,
            SimpleNamespace(**{"Scheduler" if kind is Scheduler else "EngineCoreProc": kind}),
        )
    worker, core = Worker(clock), Core()
    worker.probe_begin("alternate")
    for _ in range(9):
        core._process_engine_step(worker)
    steps = recorded(worker)
    kinds = ["on" if ("step_probed", -1) in step else "off" for step in steps[1:]]
    assert kinds == ["off", "off", "on", "on", "off", "off", "on", "on"]
    assert all(step["engine_loop", -1] >= 1.0 for step in steps[1:])
    totals = [step.get(("step_probed", -1), step.get(("step_unprobed", -1))) for step in steps[1:]]
    assert totals == pytest.approx([totals[0]] * 8, abs=1e-3)


def test_an_exception_passes_and_the_tape_goes_on(clock: Clock) -> None:
    worker = Worker(clock)
    worker.probe_begin("on")
    worker.model_runner.model.clock = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        worker.step()
    worker.model_runner.model.clock = clock
    worker.step()
    assert recorded(worker)[-1]["verify_forward", -1] == pytest.approx(8.0)


def test_a_missing_hook_is_named_and_its_time_goes_to_what_contains_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Runner, "_model_forward")
    monkeypatch.setattr(Runner, "execute_model", lambda self: self.model.forward())
    worker = Worker(clock)
    assert "runner._model_forward" in worker.probe_begin("on")["missing"]
    worker.step()
    (step,) = recorded(worker)
    assert ("verify_forward", -1) not in step
    assert step["runner_loop", -1] == pytest.approx(8.0 + 0.0625, abs=1e-3)


def test_memory_is_bounded_and_truncation_is_said(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MAX_MARKS", 100)
    worker = Worker(clock)
    worker.probe_begin("on")
    for _ in range(50):
        worker.step()
    tape = worker._sounding.tape
    assert len(tape.marks) == len(tape.times) <= 100 + 2 * 8  # what ran when it was full is still closed
    assert worker.probe_end()["truncated"] is True


def test_another_thread_is_not_recorded(clock: Clock) -> None:
    worker = Worker(clock)
    worker.probe_begin("on")
    thread = threading.Thread(target=worker.step)
    thread.start()
    thread.join()
    worker.step()
    assert len(recorded(worker)) == 1


def test_rows_come_in_pages(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "PAGE_STEPS", 2)
    worker = Worker(clock)
    worker.probe_begin("on")
    for _ in range(5):
        worker.step()
    assert worker.probe_end()["steps"] == 5
    assert [len(worker.probe_page(first)["rows"]) for first in (0, 2, 4)] == [2, 2, 1]
