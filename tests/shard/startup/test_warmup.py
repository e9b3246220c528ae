"""What is run before the first request, so that nothing is compiled while one waits."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.slots import Bounds
from penstock.shard.startup.warmup import sizes, warm_up, warm_up_steps
from tests import kernel_sets
from tests.paths import ROOT
from tests.shard.ranks import make_config
from tests.tiny_models import make_tiny

MODES = ("fast", "deterministic")
SEQUENCES = 7                            # powers of two up to 64, for 40 rows
COUNTS = {
    "penstock.kernels.rms_norm.gpu._rms_norm": 2,  # with and without a residual
    "penstock.kernels.rope_kv_write.gpu._rope_kv_write": 1,
    "penstock.kernels.activation.gpu._activation": 1,
    "penstock.kernels.paged_attention.gpu_prefill.prefill_tiles": SEQUENCES,
    "penstock.kernels.paged_attention.gpu_decode.decode_segments": SEQUENCES,
    "penstock.kernels.sample.gpu_adjust._copy": 1,
    "penstock.kernels.sample.gpu_adjust._penalise": 3,  # marks, counts and charges
    "penstock.kernels.sample.gpu_adjust._bias": 1,
    "penstock.kernels.sample.gpu_logprobs._split": 1,
    "penstock.kernels.sample.gpu_logprobs._join": 1,
    "penstock.kernels.sample.gpu_cutoffs._measure": 1,
    "penstock.kernels.sample.gpu_plan.decide": 1,
    "penstock.kernels.sample.gpu_cutoffs._tally": 1,
    "penstock.kernels.sample.gpu_cutoffs._collect": 1,
    "penstock.kernels.sample.gpu._split": 4,      # none, 8, 16 and 32 of the likeliest tokens
    "penstock.kernels.sample.gpu._join": 4,
    "penstock.kernels.prompt_logprobs.gpu._split": 4,
    "penstock.kernels.prompt_logprobs.gpu._join": 4,
    "penstock.kernels.ranks.gpu._count": 1,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny", vocab=256, hidden=128, intermediate=256)


@pytest.fixture(scope="module")
def report(model: Path) -> dict[str, Any]:
    """Of tests/shard/startup/warmed.py, by mode: the kernels of all steps, and those that the warm-up lacked."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    program = subprocess.run([sys.executable, "-m", "tests.shard.startup.warmed", str(model)], env=environment,
                             cwd=ROOT, capture_output=True, text=True, check=False)
    assert program.returncode == 0, program.stderr
    found: dict[str, Any] = json.loads(program.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_no_step_has_a_kernel_that_the_warm_up_had_not(report: dict[str, Any], mode: str) -> None:
    assert report[mode]["late"] == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_sizes_of_steps_make_no_kernels_but_those_of_their_ranges(report: dict[str, Any], mode: str) -> None:
    counts = Counter(name for name, _ in report[mode]["kernels"] if ".linear." not in name)
    assert counts == COUNTS


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_no_two_kernels_have_the_same_constants(report: dict[str, Any], mode: str) -> None:
    """They would differ in what is known of a number: that it is 1, or that 16 divides it, as it does all widths of
    this model."""
    kernels = report[mode]["kernels"]
    assert [one for one, other in pairwise(kernels) if one == other] == []


@pytest.mark.slow
def test_the_fixed_order_has_matmuls_for_both_ends_of_every_range(report: dict[str, Any]) -> None:
    assert report["late_matmuls"] == []
    assert any(name == "penstock.kernels.linear.fixed_order._matmul" for name, _ in report["deterministic"]["kernels"])
    assert not any(".linear." in name for name, _ in report["fast"]["kernels"])


def test_both_ends_of_every_range() -> None:
    assert sizes(1) == [1]
    assert sizes(2) == [1, 2]
    assert sizes(8) == [1, 2, 3, 4, 5, 8]
    assert sizes(100) == [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 100]


@pytest.mark.parametrize("bounds", [
    Bounds(16, 300, 256, 160), Bounds(16, 16, 256, 160), Bounds(1, 8, 8, 6), Bounds(16, 1, 2, 160),
    Bounds(32, 40, 1 << 17, 1000), Bounds(16, 300, 256, 160, num_states=2)])
@pytest.mark.parametrize(("max_tokens", "max_rows"), [(4096, 128), (1000, 3), (16, 256), (1, 1)])
def test_steps_keep_within_the_bounds(bounds: Bounds, max_tokens: int, max_rows: int) -> None:
    most_tokens = most_rows = 0
    for step in warm_up_steps(bounds, max_tokens, max_rows):
        tokens, rows = sum(row.num_inputs for row in step.rows), len(step.rows)
        blocks = [block for row in step.rows for block in row.new_blocks]
        assert len(set(blocks)) == len(blocks)
        assert max(blocks, default=0) < bounds.num_blocks
        assert max(row.end for row in step.rows) <= bounds.context_length
        assert tokens <= max(2, max_tokens)
        assert rows <= max(max_rows, tokens)
        assert bounds.num_states is None or rows <= bounds.num_states
        most_tokens, most_rows = max(most_tokens, tokens), max(most_rows, rows)
    if bounds.num_blocks == 300 and bounds.num_states is None:
        assert most_tokens == max(2, max_tokens)
        assert most_rows >= min(max_rows, most_tokens - 1)


@pytest.mark.parametrize("name", [kernel_sets.PROCESSOR_SETS[0],
    pytest.param("gpu", marks=[pytest.mark.slow, pytest.mark.every_case])])
def test_it_runs_twice_and_leaves_no_slots(model: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_sets.use(monkeypatch, name, is_real=True)
    config = replace(make_config(model), max_step_tokens=20, max_step_rows=3)
    executor = Executor(config, Group())
    for _ in range(2):
        warm_up(executor, Group(), config)
        assert executor._slots is None
