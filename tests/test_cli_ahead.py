"""Commands that look ahead, and energy: whatif, plan, energy as a user asks them, on simulated and published sweeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from backend.analysis.checks_power import power_findings
from backend.cli import cli
from backend.errors import Refused
from backend.publish import publish
from backend.simulate import simulate
from backend.store import queries
from backend.store.database import Store
from backend.store.paths import BUNDLED
from backend.truth import Truth

TRUTH = Truth(depths=(0, 1, 2, 3), blocks=4, prompts=4, max_tokens=60, run_sd=0.01, block_sd=0.02, anchors=False)
STUDY = "published-glm52-gb10"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot with a simulated sweep "planted" (power samples too) and the published study."""
    folder = tmp_path_factory.mktemp("ahead")
    simulate(TRUTH, "planted").write(folder)
    with Store(folder, bundled={"published": BUNDLED["published"]}) as store:
        publish(store)
    return folder / "results.duckdb"


def told(db: Path, *arguments: str) -> str:
    return CliRunner().invoke(cli, [*arguments, "--db", str(db)], catch_exceptions=False).output


def asked(db: Path, *arguments: str) -> Any:
    return json.loads(told(db, *arguments, "--json"))


def test_the_study_s_what_if(db: Path) -> None:
    (cell,) = asked(db, "whatif", STUDY, "--free-draft", "--t-draft-ms", "15.88")["cells"]
    then = {depth["k"]: depth["then_tok_s"] for depth in cell["depths"]}
    assert then[2]["value"] == pytest.approx(29.2, abs=0.05)
    assert then[2]["reason"] == "one run"
    assert (cell["best_now"], cell["best_then"]) == (2, 2)
    assert cell["turns"]["break_even_hop_ms"]["value"] == pytest.approx(15.88)
    assert any(line.startswith("Break-even hop: 15.88 ms") for line in cell["answer"])
    table = told(db, "whatif", STUDY, "--free-draft", "--t-draft-ms", "15.88")
    assert "29.24" in table
    assert "from given" not in table


def test_what_if_of_a_planted_sweep_finds_the_planted_cost(db: Path) -> None:
    (cell,) = asked(db, "whatif", "planted", "--free-draft")["cells"]
    even = cell["turns"]["break_even_hop_ms"]
    assert even["low"] < TRUTH.t_draft_ms < even["high"]
    assert cell["turns"]["hop_range_ms"][0] == 0
    assert all(depth["then_tok_s"]["low"] for depth in cell["depths"])


def test_another_sweep_s_tokens_and_a_comparison(db: Path) -> None:
    (cell,) = asked(db, "whatif", "planted", "--acceptance-from", STUDY, "--against", "planted")["cells"]
    by_k = {depth["k"]: depth for depth in cell["depths"]}
    assert by_k[2]["tokens_per_step"]["value"] == 2.15
    assert by_k[2]["then_tok_s"]["value"] == pytest.approx(2150 / TRUTH.cycle_ms(2.0), rel=0.03)
    assert cell["against"]["0"]["value"] == pytest.approx(0.0)  # the same runs, unchanged at K=0


def test_held_out_depths(db: Path) -> None:
    found = asked(db, "whatif", "planted", "--hold-out")["held_out"]
    (depths,) = found.values()
    assert [one["k"] for one in depths] == [2]
    assert abs(depths[0]["error_percent"]["value"]) < 5
    assert depths[0]["error_percent"]["low"] is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["whatif", "planted"], "nothing is changed"),
        (["whatif", "planted", "--overlap"], "--overlap needs --free-draft"),
        (["whatif", "planted", "--t-draft-ms", "3"], "--t-draft-ms needs --free-draft"),
        (["whatif", "planted", "--hop-ms", "1", "--against", "nosuch"], "unknown sweep 'nosuch'"),
        (["plan", "planted", "--for", "speed=1%"], "no target"),
    ],
)
def test_refusals(db: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        told(db, *arguments)


def test_the_study_s_plan(db: Path) -> None:
    (plan,) = asked(db, "plan", STUDY, "--for", "t_draft=3ms", "--scatter-ms", "11.006")["plans"]
    assert [need["blocks"] for need in plan["needs"]] == [10, 38, 89]
    assert "10 blocks" in told(db, "plan", STUDY, "--for", "t_draft=3ms", "--scatter-ms", "11.006")


def test_a_plan_has_hours_and_says_what_to_buy(db: Path) -> None:
    plans = asked(db, "plan", "planted", "--for", "t_draft=1ms", "--for", "tok_s=1%", "--for", "loss=1%")["plans"]
    assert [plan["target"]["quantity"] for plan in plans] == ["t_draft", "tok_s", "loss"]
    for plan in plans:
        assert plan["blocks_now"] == 4
        assert plan["block_hours"]["value"] > 0
        assert plan["variance"]["buy"] in ("blocks", "requests")
        assert all(need["low"] <= need["blocks"] <= need["high"] for need in plan["needs"])


def test_energy_measured_and_reported(db: Path) -> None:
    answer = asked(db, "energy", "planted")
    assert len(answer["runs"]) == 16
    watts = {row["k"]: row["power_w"] for row in answer["by_k"]}
    for k, power in watts.items():
        assert power["value"] == pytest.approx(TRUTH.power_base_w + TRUTH.power_per_k_w * k, abs=0.5)  # type: ignore[operator]
        assert power["n"] == 4
    assert {row["phase"] for row in answer["by_k"]} <= {"decode", "measure"}
    summary = {row["k"]: row for row in asked(db, "summary", "planted")["rows"]}
    assert summary[3]["power_w"]["value"] == pytest.approx(watts[3]["value"])
    study = asked(db, "energy", STUDY)["reported"]
    (rows,) = study.values()
    assert {row["scope"] for row in rows} == {"unknown"}
    assert rows[0]["follows"]["value"] == pytest.approx(0.365, abs=5e-4)
    assert "unknown" in told(db, "energy", STUDY)


def test_power_findings_come_with_every_publish(tmp_path: Path) -> None:
    """Half the readings of one run are lost: its energy is missing with the reason, and a finding says so."""
    simulate(TRUTH, "gappy").write(tmp_path)
    journal = next((tmp_path / "journal" / "gappy").glob("r003*.jsonl"))
    lines = journal.read_text().splitlines(keepends=True)
    power = [line for line in lines if '"PowerSample"' in line]
    journal.write_text("".join(line for line in lines if line not in power[len(power) // 3 :]))
    with Store(tmp_path, bundled={}) as store:
        publish(store)
        with store.reading() as con:
            stored = queries.findings(con, "gappy").query("code == 'power-missing'")
            alone = power_findings(queries.power_samples(con, "gappy"), queries.requests(con, "gappy"), "gappy")
    assert len(stored) == 1
    assert "missing for" in stored["message"].item()
    assert [f.run_id for f in alone if f.code == "power-missing"] == list(stored["run_id"])
