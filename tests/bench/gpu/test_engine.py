"""What the GPU's benchmark does with an engine, on the processor's kernels."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.bench.gpu import engine
from penstock.bench.gpu.part import PARTS, Context, run
from penstock.bench.gpu.records import Record, Records
from penstock.bench.gpu.runner import Runner
from penstock.bench.gpu.scale import FULL, QUICK, SMALLEST, Scale
from penstock.bench.gpu.weights import Floor
from penstock.kernels import native
from penstock.shard.execution.slots import Bounds
from tests import kernel_sets


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_sets.use(monkeypatch, "cpu-" + native.processor_paths()[0], is_real=True)


def make_context(part: str, folder: Path) -> Context:
    return Context(PARTS[part], SMALLEST, Records(folder / "figures.jsonl"), time.monotonic() + 600)


def run_part(name: str, folder: Path) -> dict[str, Record]:
    context = make_context(name, folder)
    run(context)
    return {record.name: record for record in context.records if record.part == name}


def test_a_mixed_step_has_a_row_of_each_sequence_and_a_whole_chunk():
    runner = Runner(SMALLEST)
    sequences, steps = runner._mixed(2, 8, number=3)
    listed = list(steps)
    assert len(listed) == 3 + SMALLEST.warm_up
    for step in listed:
        assert [row.num_inputs for row in step.rows[:2]] == [1, 1]
        assert sum(row.num_inputs for row in step.rows[2:]) == 8
        assert len({row.slot for row in step.rows}) == len(step.rows)
    assert len(sequences.prompts) == 2


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=lambda scale: scale.name)
def test_there_is_room_for_every_step_on_a_gpu(scale: Scale, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are written for as many blocks as the executor would have, and not run."""
    runner = Runner.__new__(Runner)
    runner._scale, runner._floor = scale, Floor(scale)
    num_blocks = runner.kv_bytes_needed // (16 * runner._floor.token_bytes)
    bounds = Bounds(16, num_blocks, scale.model["max_position_embeddings"], scale.vocab_size)
    executor = SimpleNamespace(memory=SimpleNamespace(bounds=bounds), open=lambda limits: None)
    monkeypatch.setattr(runner, "executor", executor, raising=False)
    monkeypatch.setattr(runner, "run", list)
    for batch in {*scale.batches, *scale.sampled_batches, *scale.continuous_batches, *scale.profiled_batches}:
        runner._open((batch, scale.warm_up + scale.new + 1))
    for tokens in {*scale.prefills, scale.deterministic_prefill}:
        assert sum(row.num_inputs for step in runner._prompt(tokens) for row in step.rows) == tokens
    for batch, chunk in scale.mixed:
        _, steps = runner._mixed(batch, chunk, scale.new)
        assert [step.num_tokens for step in steps] == [batch + chunk] * (scale.warm_up + scale.new)


def test_every_step_of_the_engine_is_measured(tmp_path):
    found = run_part("engine", tmp_path)
    assert {"decode, 1 × 20", "prefill 20", "mixed, 1 × 20 and a chunk of 8", "sampled decode, 2 × 20",
            "serve 2, 20 + 3 tokens"} <= set(found)
    for name in ("decode, 1 × 20", "mixed, 1 × 20 and a chunk of 8"):
        assert 0 < found[name].values["host, ms"] < 1e3
    assert not [record for record in found.values() if record.is_right is False]


def test_steps_are_broken_down_by_kernel(tmp_path):
    found = run_part("profile", tmp_path)
    of_decode = [record.values for name, record in found.items() if name.startswith("decode, 2 × 20: ")]
    assert sum(values["% of the kernels"] for values in of_decode) == pytest.approx(100)
    assert found["decode, 2 × 20"].values["launches"] == pytest.approx(sum(values["launches"] for values in of_decode))


def test_caches_of_8_bits_are_measured_beside_the_engine(tmp_path):
    context = make_context("8-bit caches", tmp_path)
    context.records.add(Record("engine", "decode, 2 × 20", {"tokens/s": 1e-9}))
    works = dict(engine.small_cache_cases(context))
    [record] = works["int8"]()
    assert record.name == "decode, 2 × 20, int8"
    assert record.values["× the engine above"] > 1
