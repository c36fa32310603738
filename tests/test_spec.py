"""SweepSpec: what is accepted, and the one clear line for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.errors import SpecError
from backend.spec import SweepSpec
from backend.spec_file import load, renamed

MINIMAL = """
name = "try"
depths = [0, 1, 3]
[target]
model = "t"
[speculator]
method = "draft_model"
[workload]
prompts = "prompts.jsonl"
max_tokens = 8
[server]
python = "bin/python"
"""
BUNDLED = sorted((Path(__file__).parents[1] / "data" / "specs").glob("*.toml"))


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return path


def test_minimal_spec_and_its_paths(tmp_path: Path) -> None:
    """Relative paths are relative to the spec file, and a model that is no directory there is the server's own name."""
    (tmp_path / "t").mkdir()
    spec = load(write(tmp_path, MINIMAL))
    assert spec.workload.prompts == tmp_path / "prompts.jsonl"
    assert spec.target.model == str(tmp_path / "t")
    assert spec.server.python == tmp_path / "bin" / "python"
    assert spec.data_dir is None
    assert spec.workload.ignore_eos is False
    assert [cell.cell_id for cell in spec.cells()] == ["try:c1-text-default"]


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_bundled_specs_are_valid(path: Path) -> None:
    assert load(path).name == path.stem


def test_demo_sweeps_0_to_7_and_gb10_is_the_studys() -> None:
    specs = {path.stem: load(path) for path in BUNDLED}
    assert specs["demo-vllm-cpu"].depths == tuple(range(8))
    gb10 = specs["glm52-gb10"]
    assert (gb10.speculator.method, gb10.depths, gb10.server.launcher) == ("dspark", tuple(range(8)), "nnodes")
    assert [(node.name, node.local) for node in gb10.node] == [("spark-a", True), ("spark-b", False)]
    assert gb10.nodes.roce
    assert gb10.reference_depths == {"production": 2, "recipe": 3, "native": 7}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("max_tokens", "max_token"), "unknown key 'workload.max_token', did you mean 'max_tokens'?"),
        (("depths = [0, 1, 3]", "depth = [0, 1, 3]"), "unknown key 'depth', did you mean 'depths'?"),
        (("max_tokens = 8", ""), "'workload.max_tokens' is missing"),
        (("[0, 1, 3]", "[0, 1, 1]"), "depths must be distinct"),
        (("[0, 1, 3]", "[-1]"), "depths must be distinct and not negative"),
        (('"try"', '"Try me"'), "lower-case letters"),
        (('"try"', '"../up"'), "lower-case letters"),
        (('method = "draft_model"', 'method = "dspark"\nmax_depth = 2'), "depth 3 is above speculator.max_depth = 2"),
        (('python = "bin/python"', 'base_url = "http://127.0.0.1:1"'), "one running server, so it has one K"),
        (('python = "bin/python"', 'launcher = "command"'), "needs server.argv"),
        (('python = "bin/python"', 'launcher = "docker"'), "'server.launcher'"),
        (("max_tokens = 8", 'max_tokens = 8\nendpoint = "chat"\n'), None),
        (("[target]", "context_tokens = [64]\n[target]"), None),
        (("name =", "name = ="), "not valid TOML"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, change: tuple[str, str], line: str | None) -> None:
    """Each fault names the file, the key and what to do; None marks a change that is fine by itself."""
    assert change[0] in MINIMAL
    path = write(tmp_path, MINIMAL.replace(change[0], change[1], 1))
    if line is None:
        load(path)
        return
    with pytest.raises(SpecError) as fault:
        load(path)
    assert line in str(fault.value)
    assert str(path) in str(fault.value)
    assert "\n" not in str(fault.value)
    assert fault.value.exit_code == 2


def test_chat_with_cut_prompts_is_refused(tmp_path: Path) -> None:
    text = MINIMAL.replace("max_tokens = 8", 'max_tokens = 8\nendpoint = "chat"').replace(
        "[target]", "context_tokens = [64]\n[target]"
    )
    with pytest.raises(SpecError, match="context_tokens cuts prompts by token"):
        load(write(tmp_path, text))


def test_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such spec file"):
        load(tmp_path / "nowhere.toml")


def test_specs_are_frozen_and_renamed(tmp_path: Path) -> None:
    spec = load(write(tmp_path, MINIMAL))
    with pytest.raises(ValueError, match="frozen"):
        spec.name = "other"  # type: ignore[misc]
    assert renamed(spec, "other").cells()[0].cell_id == "other:c1-text-default"
    with pytest.raises(SpecError):
        renamed(spec, "No Name")
    assert isinstance(spec, SweepSpec)
