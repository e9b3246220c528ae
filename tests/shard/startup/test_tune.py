"""`penstock tune`: the shapes of a model, and the whole way from a command line to a file."""

import json
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner

from penstock.launcher.cli import main as penstock
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.reading import read_model_config
from penstock.shard.startup import tune
from penstock.shard.weights import dense
from tests import kernel_sets
from tests.family_models import make_family
from tests.kernel_sets import HAS_GPU
from tests.paths import ROOT
from tests.tiny_models import make_tiny


@pytest.fixture
def model(tmp_path):
    return make_tiny(tmp_path / "model", heads=2, kv_heads=1, head_dim=6, hidden=8, intermediate=16, vocab=48,
                     context=32)


@pytest.mark.parametrize(("make", "number"), [
    (lambda path: make_tiny(path, "llama", head_dim=24, intermediate=104), 5),
    (lambda path: make_tiny(path, "qwen3", head_dim=24, intermediate=100), 6),
    (lambda path: make_family(path, "deepseek_v3", first_k_dense_replace=2), 7)], ids=["llama", "qwen3", "deepseek_v3"])
def test_shapes_are_those_that_are_packed(monkeypatch, tmp_path, make, number):
    model = make(tmp_path)
    packed = []
    monkeypatch.setattr(dense, "pack", lambda weight, segments, pack=dense.pack: (
        packed.append((*weight.shape, segments)), pack(weight, segments))[1])
    Decoder.load(model, None, Group())
    expected = {(shape.outputs, shape.inputs, shape.segments)
                for shape in tune.linears_of(read_model_config(model), world_size=1)}
    assert len(expected) == number
    assert set(packed) == expected


def test_ranks_have_a_part_each(model):
    config = read_model_config(make_tiny(model.parent / "wide", heads=8, kv_heads=4, head_dim=32, vocab=161))
    assert tune.linears_of(config, world_size=2) == [
        tune.Linear("qkv_proj", 256, 64), tune.Linear("o_proj", 64, 128, 4, is_float32=True),
        tune.Linear("gate_up_proj", 96, 64), tune.Linear("down_proj", 64, 48, 4, is_float32=True),
        tune.Linear("lm_head", 81, 64, is_float32=True, max_rows=tune.MAX_HEAD_ROWS)]


def test_ranks_may_have_more_than_others(tmp_path):
    config = read_model_config(make_tiny(tmp_path, heads=6, kv_heads=3, hidden=48, intermediate=92))
    assert tune.linears_of(config, world_size=2) == [
        tune.Linear("qkv_proj", 128, 48), tune.Linear("o_proj", 48, 64, is_float32=True),
        tune.Linear("gate_up_proj", 96, 48), tune.Linear("down_proj", 48, 48, 4, is_float32=True),
        tune.Linear("lm_head", 80, 48, is_float32=True, max_rows=tune.MAX_HEAD_ROWS),
        tune.Linear("qkv_proj", 256, 48), tune.Linear("o_proj", 48, 128, is_float32=True),
        tune.Linear("gate_up_proj", 88, 48), tune.Linear("down_proj", 48, 12, is_float32=True),
        tune.Linear("down_proj", 48, 8, is_float32=True)]


def run(model, *flags, **variables):
    program = [sys.executable, "-m", "penstock.shard.startup.tune", "--model", str(model), *flags]
    return subprocess.run(program, capture_output=True, text=True, check=False, env=variables,
                          cwd=ROOT)


@pytest.fixture
def environment(tmp_path):
    return {"XDG_CACHE_HOME": str(tmp_path), "KERNELS": "gpu"} | ({} if HAS_GPU else {"TRITON_INTERPRET": "1"})


@pytest.mark.slow
def test_every_shape_is_measured_and_saved(model, environment, tmp_path):
    tuned = run(model, "--deterministic", "--max-rows", "16", **environment)
    assert tuned.returncode == 0, tuned.stderr
    assert "Tuning: 100%" in tuned.stderr
    [file] = (tmp_path / "penstock" / "tuning").iterdir()
    assert f"Saved in {file}" in tuned.stdout
    content = json.loads(file.read_text())
    assert set(content["paged_attention"]) == {
        f"{phase}, 2 on 1 heads of 6, float32 on float32, ordered" for phase in ("decode", "prefill")}
    saved = content["linear"]
    assert set(saved) == {f"16 x [{shape}, float32" for shape in (
        "24, 8] in 1", "8, 12] in 1", "32, 8] in 1", "48, 8] in 1", "8, 16] in 8")}
    rows = [line.split() for line in tuned.stdout.splitlines()[3:8]]
    assert [row[:2] for row in rows] == [[name, "16"] for name in (
        "qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head")]


def test_outside_the_bit_contract_few_rows_are_measured(model, monkeypatch):
    kernel_sets.use(monkeypatch, "gpu")
    config = read_model_config(model)
    for dtype, most, counts in ((torch.bfloat16, 4096, [1, 4, 16, 32, 64]), (torch.bfloat16, 10, [1, 4, 16]),
                                (torch.float32, 4096, [])):
        jobs = tune.jobs_of(config, 1, dtype, most)
        assert [job.num_rows for job in jobs if job.name == "down_proj"] == counts


@pytest.mark.every_case
@pytest.mark.slow
def test_outside_the_bit_contract_torch_multiplies_float32(model, environment, tmp_path):
    tuned = run(model, "--max-rows", "8", **environment)
    assert tuned.returncode == 0, tuned.stderr
    [file] = (tmp_path / "penstock" / "tuning").iterdir()
    assert set(json.loads(file.read_text())) == {"paged_attention"}


@pytest.mark.slow
def test_a_processor_has_nothing_to_tune(model, monkeypatch, capfd):
    monkeypatch.setenv("KERNELS", "reference")
    result = CliRunner().invoke(penstock, ["tune", str(model), "--deterministic"])
    assert result.exit_code == 1
    error = capfd.readouterr().err
    assert error.startswith("tune: there is nothing to tune: only a GPU's kernels have configurations")
    assert error.count("\n") == 1


@pytest.mark.slow
def test_what_is_wrong_with_the_model_is_said(model, environment):
    refused = run(model, "--world-size", "4", **environment)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("tune: the model cannot be split over 4 shards")


def test_row_counts_are_powers_of_two():
    assert tune._row_counts(1) == [16]
    assert tune._row_counts(100) == [16, 32, 64, 128]
    assert tune._row_counts(4096)[-1] == 4096


def test_help(model):
    result = CliRunner().invoke(penstock, ["tune", "--help"])
    assert result.exit_code == 0
    assert {"--num-shard", "--dtype", "--device", "--deterministic", "--max-rows"} <= set(result.output.split())
