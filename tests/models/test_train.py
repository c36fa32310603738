"""The training script of the bundled pair: it repeats to the bit, its models load, and it guards the bundled folder."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "data" / "models"
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"

LOAD = """
import sys, torch
from transformers import AutoTokenizer, LlamaForCausalLM
for folder in sys.argv[1:]:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer("def main(argv=None):", return_tensors="pt")["input_ids"]
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    logits = model(input_ids=ids).logits
    assert logits.shape == (1, ids.shape[1], 2048) and bool(logits.isfinite().all()), logits.shape
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the vLLM environment's Python on one thread, at low priority, off the network."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = ["nice", "-n", "19", str(PYTHON), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def quick_run(out: Path, seed: int) -> dict[str, str]:
    """A smoke training into `out`; the hashes of its weights and tokenizers by relative path."""
    done = run(MODELS / "train.py", "--quick", "--threads", "1", "--seed", str(seed), "--out", out)
    assert done.returncode == 0, done.stderr
    files = [path for path in sorted(out.rglob("*")) if path.name in ("model.safetensors", "tokenizer.json")]
    return {path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.vllm
@pytest.mark.skipif(not PYTHON.exists(), reason="the engine's environment .venv-vllm is not installed")
def test_quick_run_repeats_to_the_bit_and_loads(tmp_path: Path) -> None:
    first, again, other = (quick_run(tmp_path / name, seed) for name, seed in (("a", 7), ("b", 7), ("c", 8)))
    weights = [name for name in first if name.endswith("model.safetensors")]
    assert sorted(weights) == ["draft-base/model.safetensors", "draft/model.safetensors", "target/model.safetensors"]
    assert first == again
    assert all(first[name] != other[name] for name in weights)
    assert first["tokenizer/tokenizer.json"] == other["tokenizer/tokenizer.json"]

    texts = [(tmp_path / name / "draft" / "training.json").read_text() for name in ("a", "b")]
    assert texts[0] == texts[1]
    record = json.loads(texts[0])
    assert record["seed"] == 7
    assert len(record["corpus"]["sha256"]) == 64
    assert {"python", "torch", "transformers"} <= record["versions"].keys()
    assert {name: stage["schedule"]["steps"] for name, stage in record["stages"].items()} == {"draft": 4, "distil": 4}
    assert str(tmp_path) not in texts[0]

    loaded = run("-c", LOAD, tmp_path / "a" / "target", tmp_path / "a" / "draft")
    assert loaded.returncode == 0, loaded.stderr


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """data/models/job.py, which needs no torch."""
    monkeypatch.syspath_prepend(MODELS)
    return importlib.import_module("job")


def test_bundled_folder_is_refused_unless_asked_for(job: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        job.parse(["--out", str(MODELS)])
    assert refused.value.code == 2
    assert "--overwrite-bundled" in capsys.readouterr().err
    assert job.parse(["--out", str(MODELS), "--overwrite-bundled"]).out == MODELS
    assert job.parse([]).out == ROOT / "build" / "models"


def test_steps_and_stages_from_the_command_line(job: ModuleType) -> None:
    asked = job.parse(["--quick", "--steps-target", "9", "--stages", "distil", "target"])
    assert asked.steps == job.QUICK_STEPS | {"target": 9}
    assert asked.stages == ("target", "distil")
    with pytest.raises(SystemExit):
        job.parse(["--steps-draft", "0"])


def test_learning_rate_warms_up_and_falls_to_its_floor(job: ModuleType) -> None:
    schedule = job.Schedule(steps=100, peak=1.0, warmup=10, floor=0.1, weight_decay=0.0)
    rates = [schedule.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9]
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert schedule.rate(100) == pytest.approx(0.1)
