"""Steps grouped for the depth effect: only runs that count, the phase asked for, starts as `steps_of` hashes them."""

from __future__ import annotations

from dataclasses import replace

from backend import records
from backend.store import queries_acceptance
from backend.store.database import Store
from tests.store.store_samples import SWEEP, drafted, fill, run


def forced(run_id: str, index: int, replayed: int, accepted: int, **given: object) -> records.Request:
    """A replayed start of prompt p0, whose whole output is 0, 1, 2, ..."""
    base = drafted(run_id, index, 3, [accepted], output_tokens=2)
    return replace(
        base,
        request_id=base.request_id.replace("measure", "forced"),
        phase="forced",
        prompt_id="p0",
        token_ids=tuple(range(replayed + 2)),
        replayed_tokens=replayed,
        **given,
    )


def test_starts_are_grouped_over_runs(store: Store) -> None:
    fill(
        store,
        run("a", 3, block=0),
        drafted("a", 0, 3, [2, 0, 1]),
        run("b", 3, block=1),
        drafted("b", 0, 3, [2, 0, 1]),  # a copy
        run("c", 1),
        drafted("c", 0, 1, [1, 1, 0]),
    )
    with store.reading() as con:
        starts = queries_acceptance.starts(con, SWEEP)
        only_1 = queries_acceptance.starts(con, SWEEP, depths=[1])
        lengths = queries_acceptance.accepted_lengths(con, SWEEP)
        outputs = queries_acceptance.outputs(con, SWEEP)
    assert starts.groupby("k")["steps"].agg(list).to_dict() == {1: [1, 1, 1], 3: [2, 2, 2]}
    by_depth = starts.groupby("k")["prefix_hash"].agg(set)
    # K=3 starts after 1, 4 and 5 tokens; K=1 after 1, 3 and 5
    assert len(by_depth[1] & by_depth[3]) == 2
    assert list(only_1["k"]) == [1, 1, 1]
    told = lengths[lengths["k"] == 3].set_index("accepted_tokens")["steps"]
    assert told.to_dict() == {0: 2, 1: 2, 2: 2}
    assert outputs[["k", "requests"]].to_dict("list") == {"k": [1, 3], "requests": [1, 2]}


def test_what_does_not_count_is_left_out(store: Store) -> None:
    fill(
        store,
        run("a", 3),
        drafted("a", 0, 3, [1]),
        drafted("a", 1, 3, [1], phase="warmup"),
        drafted("a", 2, 3, [1], phase="instrument"),
        drafted("a", 3, 3, [1], error="broke off"),
        run("b", 3, valid=False, exclusion_reason="slow"),
        drafted("b", 0, 3, [1]),
        run("c", 3, status="failed"),
        drafted("c", 0, 3, [1]),
        run("d", 3, role="anchor"),
        drafted("d", 0, 3, [1]),
    )
    with store.reading() as con:
        assert queries_acceptance.starts(con, SWEEP)["steps"].tolist() == [1]
        assert queries_acceptance.accepted_lengths(con, SWEEP)["steps"].tolist() == [1]
        assert queries_acceptance.starts(con, "other").empty
        assert queries_acceptance.starts(con, SWEEP, cell_id="other").empty


def test_forced_starts_are_a_phase_of_their_own(store: Store) -> None:
    """A replayed start has the hash of the measured step that began there; no summary counts it."""
    fill(store, run("a", 3), drafted("a", 0, 3, [2, 0, 1]), forced("a", 0, 3, 0), forced("a", 1, 6, 2))
    with store.reading() as con:
        measured = queries_acceptance.starts(con, SWEEP)
        replayed = queries_acceptance.starts(con, SWEEP, phase="forced")
        (requests,) = con.execute("SELECT n_requests FROM run_cell").fetchone()
        (steps,) = con.execute("SELECT drafted_steps FROM acceptance_by_position WHERE position = 0").fetchone()
    assert len(measured) == 3
    assert len(replayed) == 2
    assert len(set(measured["prefix_hash"]) & set(replayed["prefix_hash"])) == 1  # after 4 tokens
    assert (requests, steps) == (1, 3)


def test_unknown_starts_are_null(store: Store) -> None:
    """An n-gram request with a step that carried no draft: nobody knows where the drafted ones began."""
    fill(store, run("a", 3), drafted("a", 0, 3, [1, 1], steps=3, output_tokens=6, token_ids=tuple(range(6))))
    with store.reading() as con:
        starts = queries_acceptance.starts(con, SWEEP)
    assert starts["prefix_hash"].isna().all()
    assert starts["steps"].sum() == 2
