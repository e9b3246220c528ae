"""What fits on machines, what these cost, and how fast steps are by the roofline."""

from pathlib import Path
from typing import Any

import pytest

from penstock.bench.figures import RESULTS, records
from penstock.bench.planning.costs import Roofline, StepWork, decode_work, prompt_work, work_of
from penstock.bench.planning.fits import fits
from penstock.bench.planning.machines import H200, MACHINES
from penstock.bench.planning.model_size import read_model_size
from penstock.contract.output import Output
from penstock.contract.row import Row
from tests.bench.planning.models import LLAMA_8B, LLAMA_13B, MIXTRAL, write


def test_the_lectures_machine_and_its_price() -> None:
    machine = MACHINES["g2-standard-48"]
    assert (machine.accelerator.name, machine.number) == ("L4", 4)
    assert (round(machine.price, 2), round(machine.monthly)) == (4.94, 3605)
    assert all(each.priced and each.price > 0 for each in MACHINES.values())


def test_thirteen_billion_parameters_on_the_lectures_machine(tmp_path: Path) -> None:
    """26 GB do not fit on one L4 of 24; two or four hold them, and four the keys and values of more tokens."""
    size, machine = read_model_size(write(tmp_path, LLAMA_13B)), MACHINES["g2-standard-48"]
    two, four = fits(size, machine, 2048)
    assert (two.num_shards, two.groups, four.num_shards, four.groups) == (2, 2, 4, 1)
    assert 20_000 < two.kv_tokens < 30_000 < 75_000 < four.kv_tokens < 85_000
    assert [fit.num_shards for fit in fits(size, machine, 50_000)] == [4]
    assert [*fits(size, MACHINES["g4dn.xlarge"], 2048)] == []


def test_a_number_of_shards_that_cannot_be_is_left_out(tmp_path: Path) -> None:
    size = read_model_size(write(tmp_path, MIXTRAL, num_attention_heads=9, num_key_value_heads=3, hidden_size=4608))
    assert 4 not in {fit.num_shards for fit in fits(size, MACHINES["p5en.48xlarge"], 16)}


@pytest.mark.parametrize(("step", "work"), [
    ("decode, 1 × 1024", decode_work(1, 1040)), ("decode, 8 × 1024", decode_work(8, 1040)),
    ("decode, 64 × 1024", decode_work(64, 1040)), ("decode, 128 × 1024", decode_work(128, 1040)),
    ("prefill 4096", prompt_work(4096))])
def test_the_roofline_is_within_15_percent_of_what_an_h200_took(tmp_path: Path, step: str, work: StepWork) -> None:
    measured: dict[str, Any] = {record["name"]: record["values"]
                                for record in records("gpu")["gpu-h200"]["figures"]["engine"]["records"]
                                if record["part"] == "engine"}
    assert (RESULTS / "gpu-h200.json").is_file()
    cost = Roofline(read_model_size(write(tmp_path, LLAMA_8B)), H200, num_shards=1)
    assert 1e3 * cost.seconds(work) == pytest.approx(measured[step]["ms"], rel=0.15)


def test_the_work_of_rows() -> None:
    rows = [Row(0, 0, (1, 2, 3)), Row(1, 4, (5, 6), output=Output.NONE), Row(2, 9, from_last_sample=True)]
    assert work_of(rows) == StepWork(tokens=6, samples=2, read=3 + 6 + 10, pairs=(1 + 2 + 3) + (5 + 6) + 10)
