"""The bundled pair and the demo's prompts: what the specs and the sweep take for granted about them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "data" / "models"
PROMPTS = ROOT / "data" / "prompts"
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
CONTEXT_TOKENS = 100  # the demo cuts its prompts to this

COUNT = """
import json, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
print(json.dumps([len(tokenizer.encode(text).ids) for text in json.load(sys.stdin)]))
"""


def read_prompts(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (PROMPTS / name).read_text().splitlines()]


def config(kind: str) -> dict[str, object]:
    return json.loads((MODELS / kind / "config.json").read_text())


def n_parameters(kind: str) -> int:
    """Parameter count from the header of the safetensors file."""
    with (MODELS / kind / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    count = 0
    for name, entry in header.items():
        if name != "__metadata__":
            size = 1
            for side in entry["shape"]:
                size *= side
            count += size
    return count


def test_pair_shares_vocabulary_and_tokenizer() -> None:
    assert config("target")["vocab_size"] == config("draft")["vocab_size"] == 2048
    assert (MODELS / "target" / "tokenizer.json").read_bytes() == (MODELS / "draft" / "tokenizer.json").read_bytes()
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "max_position_embeddings"):
        assert config("target")[key] == config("draft")[key]


def test_pair_has_the_sizes_its_readme_gives() -> None:
    assert n_parameters("target") == 15_735_168
    assert n_parameters("draft") == 725_376
    assert config("target")["num_hidden_layers"] == 8
    assert config("draft")["num_hidden_layers"] == 1


@pytest.mark.parametrize("name", ["python.jsonl", "smoke.jsonl"])
def test_prompts_are_well_formed(name: str) -> None:
    prompts = read_prompts(name)
    assert all(prompt.keys() == {"id", "category", "text"} for prompt in prompts)
    assert len({prompt["id"] for prompt in prompts}) == len(prompts)
    assert len({prompt["text"] for prompt in prompts}) == len(prompts)
    assert all(prompt["text"].strip() for prompt in prompts)


def test_demo_prompts_come_in_three_equal_categories() -> None:
    prompts = read_prompts("python.jsonl")
    assert Counter(prompt["category"] for prompt in prompts) == {"class": 8, "doctest": 8, "table": 8}
    assert [p["id"] for p in prompts] == [f"{c}-{i:02d}" for c in ("class", "doctest", "table") for i in range(1, 9)]
    assert len(read_prompts("smoke.jsonl")) == 4


@pytest.mark.vllm
@pytest.mark.skipif(not PYTHON.exists(), reason="the engine's environment .venv-vllm is not installed")
def test_demo_prompts_fill_the_context() -> None:
    texts = [prompt["text"] for prompt in read_prompts("python.jsonl")]
    command = [str(PYTHON), "-c", COUNT, str(MODELS / "target" / "tokenizer.json")]
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        command, input=json.dumps(texts), env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert min(json.loads(done.stdout)) > CONTEXT_TOKENS
