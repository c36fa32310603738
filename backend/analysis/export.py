"""What a server is given: the static depth, and a table by batch size that is experimental until swept itself."""

from __future__ import annotations

from collections.abc import Iterable

from backend.analysis.comparison import Comparison

EXPERIMENTAL = (
    "experimental: composed from static arms, one launch each. The engine's dynamic depth drafts the full width and "
    "truncates, and its K=0 keeps the drafter loaded, so it is another arm: sweep this table itself before use."
)


def static_depth(comparison: Comparison) -> dict[str, object] | None:
    """The recommended depth as vLLM's setting; K=0 means that the speculative config is absent. None: no data."""
    advice = comparison.recommendation
    if advice is None:
        return None
    setting: dict[str, object] | None = {"num_speculative_tokens": advice.k} if advice.k else None
    return {
        "cell_id": comparison.cell_id,
        "concurrency": comparison.concurrency,
        "k": advice.k,
        "resolved": advice.resolved,
        "reason": advice.reason,
        "speculative_config": setting,
    }


def per_batch_size(comparisons: Iterable[Comparison]) -> dict[str, object] | None:
    """`num_speculative_tokens_per_batch_size`: [[first, last, K], ...], inclusive, from 1, without gaps.

    A measured concurrency's depth holds from it up to just below the next measured one (the first from batch 1, the
    last up to itself: what lies above was not measured). One context and workload only. None: no data.
    """
    measured = sorted(
        (
            (c.concurrency, c.recommendation)
            for c in comparisons
            if c.concurrency is not None and c.recommendation is not None
        ),
        key=lambda pair: pair[0],
    )
    if not measured or len({c for c, _ in measured}) != len(measured):
        return None
    first = [1, *(c for c, _ in measured[1:])]
    last = [c - 1 for c in first[1:]] + [measured[-1][0]]
    table: list[list[int]] = []
    for low, high, (_, advice) in zip(first, last, measured, strict=True):
        if table and table[-1][2] == advice.k:
            table[-1][1] = high
        else:
            table.append([low, high, advice.k])
    return {
        "num_speculative_tokens": max(k for _, _, k in table),
        "num_speculative_tokens_per_batch_size": table,
        "resolved": all(advice.resolved for _, advice in measured),
        "status": EXPERIMENTAL,
    }
