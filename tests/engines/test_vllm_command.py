"""What the depth decides of a launch command: the speculative configuration and the sizes of CUDA graphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.engines.command import fill
from backend.engines.vllm import VllmEngine
from backend.engines.vllm_command import SIZES_FLAG, capture_sizes, captures_graphs
from backend.spec_file import load

Write = Callable[..., Path]


@given(k=st.integers(0, 16), concurrency=st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True))
def test_capture_sizes_hold_every_asked_batch_as_a_multiple_of_k_plus_1(k: int, concurrency: list[int]) -> None:
    sizes = capture_sizes(k, tuple(concurrency))
    assert all(size % (k + 1) == 0 for size in sizes)
    assert set(sizes) >= {(k + 1) * requests for requests in (1, *concurrency)}
    assert list(sizes) == sorted(set(sizes))
    assert max(sizes) == (k + 1) * max(concurrency)  # a graph that is never replayed costs memory and start time


@pytest.mark.parametrize(
    ("argv", "captured"),
    [
        ((), True),
        (("--enforce-eager",), False),
        (("--cudagraph-capture-sizes", "1", "2"), False),
        (("--compilation-config", '{"cudagraph_capture_sizes": [4]}'), False),
        (("--max-cudagraph-capture-size", "16"), False),
        (("--compilation-config", '{"mode": 3}'), True),
    ],
)
def test_sizes_are_passed_only_where_graphs_are_on_and_nobody_chose_them(
    standin_spec: Write, argv: tuple[str, ...], captured: bool
) -> None:
    assert captures_graphs(argv) is captured
    spec = load(standin_spec(server_launcher="vllm", server_argv=list(argv), concurrency=[1, 2]))
    command, _ = VllmEngine(spec).command(3)
    ours = list(command)[: command.index("--speculative-config")]
    assert (ours[-3:] == [SIZES_FLAG, "4", "8"]) is captured


def test_depth_0_has_no_speculative_configuration(standin_spec: Write) -> None:
    engine = VllmEngine(load(standin_spec(server_launcher="vllm", server_argv=["--enforce-eager"])))
    none, _ = engine.command(0)
    some, _ = engine.command(3)
    assert "--speculative-config" not in none
    assert json.loads(some[some.index("--speculative-config") + 1])["num_speculative_tokens"] == 3


def test_a_template_has_sizes_for_json_and_for_scripts() -> None:
    assert fill('{"cudagraph_capture_sizes": [{capture_sizes}], "k": {k}}', 2, 8000, (1, 3)) == (
        '{"cudagraph_capture_sizes": [3,6,9], "k": 2}'
    )
