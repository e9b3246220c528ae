"""A small model under the policies, by the command."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.bench.batching.drive import POLICIES
from penstock.bench.engine.command import main
from tests.paths import DEMO_MODEL

SMALL = ("--sequences", "2", "--rounds", "1", "--prompt", "20", "--new", "8", "--threads", "1")


def test_the_command_measures_each_policy(tmp_path: Path) -> None:
    file = tmp_path / "policies.json"
    chosen = [argument for policy in POLICIES for argument in ("--policy", policy)]
    result = CliRunner().invoke(main, [str(DEMO_MODEL), *SMALL, *chosen, "--json", str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert [line.split(",")[0] for line in result.stdout.splitlines() if ", 2 " in line] == [*POLICIES]
    record = json.loads(file.read_text())
    assert record["kind"] == "policies"
    for [run] in record["figures"].values():
        assert (run["slots"], run["requests"]) == (2, 12)
        assert run["tokens"] == record["figures"]["static"][0]["tokens"] > 12
        assert 0 < run["first_token_seconds"] <= run["answer_seconds"] <= run["seconds"]
        assert 0 < run["empty_of_blocks"] < 1
        assert 0 < run["empty_of_contiguous"] < 1


@pytest.mark.parametrize("other", ["--prefill 3", "--sampled", "--quantize int4", f"--beside {DEMO_MODEL}"])
def test_what_policies_have_nothing_to_do_with_is_refused(other: str) -> None:
    result = CliRunner().invoke(main, [str(DEMO_MODEL), "--policy", "static", *other.split()])
    assert result.exit_code == 2
    assert f"{other.split()[0]} is not for --policy" in result.output
