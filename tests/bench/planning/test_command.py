"""`penstock plan`, on models of which there is nothing but config.json."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.launcher.cli import main
from tests.bench.planning.models import LLAMA_13B, write
from tests.checkpoints.stand_in_hub import hub_with
from tests.checkpoints.test_download import penstock
from tests.paths import DEMO_MODEL, ROOT


def plan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def test_the_text(tmp_path: Path) -> None:
    result = plan(write(tmp_path, LLAMA_13B), "--machine", "g2-standard-48")
    assert result.exit_code == 0, result.output
    assert "13.02 billion parameters" in result.output
    assert "weights in float16: 26.03 GB" in result.output
    assert "52.06 GB in float32, 26.03 GB in bfloat16, 13.38 GB in int8, 7.04 GB in int4" in result.output
    assert "a token: 819,200 bytes" in result.output
    [head, *rows] = [line for line in result.output.splitlines() if "4 × L4" in line or "num_shard" in line]
    assert "KV tokens of a group" in head
    assert [row.split()[:7] for row in rows] == [["g2-standard-48", "4", "×", "L4", "4.94", "3,605", number]
                                                 for number in ("2", "4")]


def test_the_json(tmp_path: Path) -> None:
    found = json.loads(plan(write(tmp_path, LLAMA_13B), "--num-shard", "8", "--json").stdout)
    assert found["weight_bytes_by_format"]["bfloat16"] == found["weight_bytes"]
    assert (found["kv_bytes_per_token"], found["format"]) == (819_200, "float16")
    assert {fit["machine"] for fit in found["fits"]} == {
        "g5.48xlarge", "p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5en.48xlarge"}
    assert all(fit["num_shard"] == 8 and fit["priced"] for fit in found["fits"])
    by_name = {fit["machine"]: fit["tokens_per_second"] for fit in found["fits"]}
    assert by_name["g5.48xlarge"]["decode, 1"] * 7 < by_name["p5en.48xlarge"]["decode, 1"]


def test_what_fits_nowhere_is_said(tmp_path: Path) -> None:
    result = plan(write(tmp_path, LLAMA_13B), "--machine", "g4dn.xlarge")
    assert (result.exit_code, "It fits on none of these machines" in result.output) == (0, True)


def test_refusals(tmp_path: Path) -> None:
    assert "there is no directory ./nowhere" in plan("./nowhere").output
    assert "config.json does not exist" in plan(tmp_path).output
    assert "is on this machine" in plan(write(tmp_path, LLAMA_13B), "--revision", "x").output
    assert "the name of a picture ends in .svg" in plan(tmp_path, "--picture", "plan.png").output
    assert "architectures: expected one of" in plan(write(tmp_path, LLAMA_13B, architectures=["X"])).output


TRAFFIC = ("--rate", "30", "--prompt-tokens", "232", "--answer-tokens", "28", "--requests", "40")


def test_groups_for_traffic_and_their_price(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    machines = ("--machine", "g2-standard-48", "--machine", "g6e.12xlarge")
    result = plan(write(tmp_path, LLAMA_13B), *TRAFFIC, *machines, "--picture", picture)
    assert result.exit_code == 0, result.output
    assert "30 requests/s, prompts of 232 tokens, answers of 28; 90 % are" in result.output
    assert "$ per million tokens of answers" in result.output
    drawn = picture.read_text()
    assert all(text in drawn for text in ("$ a month", "GB of each shard", "g2-standard-48, 4"))
    found = json.loads(plan(tmp_path, *TRAFFIC, *machines, "--json").stdout)
    prices = [choice["dollars_per_hour"] for choice in found["choices"]]
    assert prices == sorted(prices)
    for choice in found["choices"]:
        assert choice["first_token_seconds"]["p90"] <= 1.0
        assert choice["machines"] >= 1
        assert choice["dollars_per_million_answer_tokens"] * 30 * 28 * 3600 / 1e6 == pytest.approx(
            choice["dollars_per_hour"], rel=1e-3)


def test_more_requests_need_more_groups(tmp_path: Path) -> None:
    folder, numbers = write(tmp_path, LLAMA_13B), []
    for rate in ("10", "100", "1000"):
        found = json.loads(plan(folder, *TRAFFIC, "--rate", rate, "--machine", "g2-standard-48", "--num-shard", "4",
                                "--json").stdout)
        numbers += [choice["groups"] for choice in found["choices"]]
    assert numbers[0] < numbers[1] < numbers[2]
    assert numbers[2] == pytest.approx(10 * numbers[1], rel=0.3)


def test_a_target_that_nothing_meets_is_said(tmp_path: Path) -> None:
    result = plan(write(tmp_path, LLAMA_13B), *TRAFFIC, "--machine", "g2-standard-48", "--target-first-token", "0.001")
    assert (result.exit_code, "No number of these groups meets that" in result.output) == (0, True)


@pytest.mark.slow
def test_a_plan_by_steps_that_were_measured_here() -> None:
    found = json.loads(plan(DEMO_MODEL, "--measure", "--rounds", "1", "--price", "0.5", "--rate", "0.5",
                            "--prompt-tokens", "20", "--answer-tokens", "5", "--requests", "10",
                            "--target-first-token", "5", "--json").stdout)
    [fit], [choice] = found["fits"], found["choices"]
    assert (fit["machine"], fit["dollars_per_hour"], choice["groups"]) == ("this machine", 0.5, 1)
    # As many, where a busy machine lets one round find no time that a step of any size takes.
    assert fit["tokens_per_second"]["decode, 8"] >= fit["tokens_per_second"]["decode, 1"] > 0


@pytest.mark.slow
def test_of_a_model_on_the_hub_its_configuration_alone_is_downloaded(tmp_path: Path) -> None:
    config = (write(tmp_path, LLAMA_13B) / "config.json").read_bytes()
    files = {"config.json": config, "tokenizer.json": b"{}", "model-00001-of-00002.safetensors": b"weights"}
    with hub_with(files) as hub:
        run = penstock(hub, tmp_path / "cache", "plan", "org/model", "--json", PYTHONPATH=str(ROOT))
        assert run.returncode == 0, run.stderr
        assert {name for name, _ in hub.gets} == {"config.json"}
    assert json.loads(run.stdout)["weight_bytes"] == pytest.approx(26e9, rel=0.01)
