"""The probe's hooks against vLLM's source: the installed one, and 0.33, which is not installed here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.probe.sounding_probe.hooks import HOOKS
from tests.probe.contract import functions, missing, of_folder

ROOT = Path(__file__).parents[2]


@pytest.mark.vllm
def test_the_installed_vllm_has_every_hook() -> None:
    (site_packages,) = (ROOT / ".venv-vllm" / "lib").glob("python3*/site-packages")
    assert missing(of_folder(site_packages)) == []


def test_vllm_0_33_has_every_hook() -> None:
    """Names kept from its published wheel by `python -m tests.probe.contract`."""
    names = json.loads((ROOT / "tests" / "golden" / "vllm_0.33_functions.json").read_text())
    assert missing(names) == []


def test_a_hook_that_is_gone_is_named() -> None:
    """Renamed, moved to another class, or its file gone: each is one clear line."""
    names = json.loads((ROOT / "tests" / "golden" / "vllm_0.33_functions.json").read_text())
    runner = "vllm/v1/worker/gpu_model_runner.py:GPUModelRunner"
    proposer = "vllm/v1/spec_decode/llm_base_proposer.py:SpecDecodeBaseProposer"
    names[runner].remove("_model_forward")
    del names[proposer]
    gone = missing(names)
    assert f"{runner}._model_forward (stage verify_forward)" in gone
    assert {line for line in gone if line.startswith(proposer)} == {
        f"{proposer}.{hook.attribute} (stage {hook.stage})" for hook in HOOKS if hook.source == proposer
    }
    assert all(line.startswith((runner, proposer)) for line in gone)


def test_only_the_named_class_of_a_file_counts() -> None:
    text = "class GPUModelRunner:\n    def execute_model(self): ...\nclass Other:\n    def sample_tokens(self): ...\n"
    assert functions(lambda _file: text)["vllm/v1/worker/gpu_model_runner.py:GPUModelRunner"] == ["execute_model"]
