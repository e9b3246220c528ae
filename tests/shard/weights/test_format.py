"""A second weight format, which nothing outside of this folder knows, is loaded and computed like the first."""

from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.shard.communication.distributed import Group, connect
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model_options import Quantization
from penstock.shard.models.quantization import QUANTIZATIONS
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.dense import DENSE
from penstock.shard.weights.format import FormatOf, memory_of
from penstock.shard.weights.stored import CheckpointError
from tests.shard.spawned_ranks import Results, run_ranks
from tests.shard.weights.int8_rows import INT8_ROWS, METHOD, quantise
from tests.tiny_models import make_tiny, prompt_logits, random_ids

IDS = random_ids(40, 160)
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"has_bias": True}, "tied": {"tied": True}, "qwen3": {"family": "qwen3"}}


def quantization(format_of: FormatOf) -> Quantization:
    return Quantization(METHOD, format_of=format_of)


def read_int8_rows(*_: object) -> Quantization:
    return quantization(lambda linear: INT8_ROWS)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUANTIZATIONS, METHOD, read_int8_rows)


def make(folder: Path, **model: Any) -> tuple[Path, Path]:
    """Makes one model twice, dense and in int8."""
    dense = make_tiny(folder / "dense", **model)
    return dense, quantise(dense, folder / "int8")


def logits(path: Path, group: Group) -> Tensor | None:
    return prompt_logits(Decoder.load(path, None, group), IDS)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_the_dequantised_model(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    dense, int8 = make(tmp_path, **MODELS[name])
    found, expected = logits(int8, Group()), logits(dense, Group())
    assert found is not None
    assert expected is not None
    assert torch.equal(found, expected)
    assert caplog.messages == []


def test_two_ranks_compute_what_one_does(tmp_path: Path) -> None:
    for name, model in MODELS.items():
        make(tmp_path / name, **model)
    results, _ = run_ranks(_logits_of_rank, 2, tmp_path)
    for name in MODELS:
        assert torch.equal(results[name], logits(tmp_path / name / "dense", Group()))


def _logits_of_rank(rank: int, world_size: int, folder: Path, _barrier: Barrier) -> Results:
    QUANTIZATIONS[METHOD] = read_int8_rows
    group = connect(f"file://{folder / 'store'}", rank, world_size)
    return {name: logits(folder / name / "int8", group) for name in MODELS}


def test_a_checkpoint_may_mix_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_kept(linear: str) -> bool:
        return linear == "lm_head" or linear.endswith("down_proj")

    dense = make_tiny(tmp_path / "dense")
    int8 = quantise(dense, tmp_path / "int8", is_kept)
    monkeypatch.setitem(QUANTIZATIONS, METHOD, lambda *_: quantization(
        lambda name: DENSE if is_kept(name) else INT8_ROWS))
    found, expected = logits(int8, Group()), logits(dense, Group())
    assert found is not None
    assert expected is not None
    assert torch.equal(found, expected)


def test_linears_that_are_computed_as_one_may_have_several_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_kept(linear: str) -> bool:
        return linear.endswith(("k_proj", "gate_proj"))

    dense = make_tiny(tmp_path / "dense", has_bias=True)
    int8 = quantise(dense, tmp_path / "int8", is_kept)
    monkeypatch.setitem(QUANTIZATIONS, METHOD, lambda *_: quantization(
        lambda name: DENSE if is_kept(name) else INT8_ROWS))
    found, expected = logits(int8, Group()), logits(dense, Group())
    assert found is not None
    assert expected is not None
    assert torch.equal(found, expected)


def test_memory_is_what_the_format_says(tmp_path: Path) -> None:
    dense, int8 = make(tmp_path)
    config = read_model_config(int8)
    elements = sum(tensor.numel() for tensor in load_file(dense / "model.safetensors").values())
    stored = sum(tensor.nbytes for tensor in load_file(int8 / "model.safetensors").values())
    assert memory_of(Checkpoint(dense), read_model_config(dense).format_of, torch.bfloat16) == 2 * elements
    assert memory_of(Checkpoint(int8), config.format_of, torch.bfloat16) == stored


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: None, r"has no tensor model.layers.1.mlp.up_proj.scale, expected of shape \[96\]"),
        (lambda tensor: tensor[1:], r"model.layers.1.mlp.up_proj.scale has shape \[95\], expected \[96\]"),
        (lambda tensor: tensor.half(), r"model.layers.1.mlp.up_proj.scale is F16, expected one of F32"),
    ],
    ids=["missing", "shape", "dtype"],
)
def test_wrong_tensor(tmp_path: Path, change: Callable[[Tensor], Tensor | None], message: str) -> None:
    _, int8 = make(tmp_path)
    tensors, name = load_file(int8 / "model.safetensors"), "model.layers.1.mlp.up_proj.scale"
    changed = change(tensors.pop(name))
    save_file(tensors | ({} if changed is None else {name: changed}), int8 / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        Decoder.load(int8, None, Group())


def test_other_methods_are_refused(tmp_path: Path) -> None:
    _, int8 = make(tmp_path)
    config = int8 / "config.json"
    config.write_text(config.read_text().replace(METHOD, "unheard_of"))
    with pytest.raises(ModelConfigError, match=r"quantization_config: expected none, or a quant_method of .*int8_rows"):
        read_model_config(int8)
