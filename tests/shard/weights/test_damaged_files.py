"""Quantised checkpoints that nobody can have meant: a sentence names file and tensor, or the weights are read."""

import copy
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.stored import CheckpointError
from tests.shard.weights.library_files import FOLDER, NAMES

LINEAR = "model.layers.0.mlp.down_proj"
OPTIONAL = (".g_idx", ".weight_g_idx", ".weight_shape", ".weight_format")
Change = Callable[[Tensor], Tensor | None]


def damaged(name: str, folder: Path, tensor: str, change: Change) -> Path:
    target = folder / name
    if not target.exists():
        shutil.copytree(FOLDER / name, target)
    tensors = load_file(FOLDER / name / "model.safetensors")
    changed = change(tensors.pop(tensor))
    save_file(tensors | ({} if changed is None else {tensor: changed.contiguous()}), target / "model.safetensors")
    return target


def twice(tensor: Tensor) -> Tensor:
    return tensor[None].repeat(2, *[1] * tensor.dim())


def complaint(path: Path) -> str:
    with pytest.raises(CheckpointError) as error:
        Decoder.load(path, None, Group())
    return str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_missing_tensors_and_wrong_shapes_and_dtypes_are_named(name: str, tmp_path: Path) -> None:
    stored = load_file(FOLDER / name / "model.safetensors")
    for tensor in (each for each in stored if each.startswith(LINEAR)):
        if name == "gptq-4-desc-act" or not tensor.endswith(OPTIONAL):
            message = complaint(damaged(name, tmp_path, tensor, lambda _: None))
            assert f"has no tensor {tensor}, expected" in message
        for change in (twice, lambda found: found.to(torch.complex64)):
            message = complaint(damaged(name, tmp_path, tensor, change))
            assert "model.safetensors: " in message
            assert tensor in message


WITH_A_NAN = {
    "gptq-4": "scales", "awq": "scales", "pack-quantized": "weight_scale", "int-quantized": "weight_scale",
    "float-quantized": "weight_scale", "fp8": "weight_scale_inv", "bitsandbytes": "SCB", "fp4": "weight.absmax",
    "nf4": "weight.quant_map"}


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", WITH_A_NAN)
def test_a_scale_that_is_no_number_is_named(name: str, value: float, tmp_path: Path) -> None:
    def change(tensor: Tensor) -> Tensor:
        tensor.view(-1)[3] = value
        return tensor

    suffix = WITH_A_NAN[name]
    message = complaint(damaged(name, tmp_path, f"{LINEAR}.{suffix}", change))
    assert f"model.safetensors: {LINEAR}.{suffix}: 1 of " in message
    assert message.endswith(" numbers are NaN or infinite")


def as_text(state: object) -> Change:
    return lambda _: torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)


@pytest.mark.parametrize(("name", "tensor", "change", "message"), [
    ("gptq-4-desc-act", "g_idx", lambda order: order.clamp(max=2), "g_idx: groups of other sizes than 32"),
    ("gptq-4", "g_idx", torch.neg, "g_idx: groups of other sizes than 32"),
    ("pack-quantized", "weight_shape", lambda shape: shape + 1, r"weight_shape: \[65, 129\], expected \[64, 128\]"),
    ("mxfp4", "weight_scale", lambda scale: scale | 255, "weight_scale: not a number"),
    ("fp8", "weight", lambda weight: weight.fill_(torch.nan), "weight: there are numbers that are NaN"),
    ("bitsandbytes", "weight_format", lambda layout: layout + 1, "weight_format: 1, expected 0, by rows"),
    ("nf4", "weight.quant_state.bitsandbytes__nf4", as_text([]), "bitsandbytes__nf4: no JSON object"),
    ("nf4", "weight.quant_state.bitsandbytes__nf4", lambda text: text[1:], "bitsandbytes__nf4: no JSON: "),
    ("nf4", "weight.quant_state.bitsandbytes__nf4", as_text({"blocksize": 0}), "blocksize 0, expected a whole number"),
    ("nf4", "weight.quant_state.bitsandbytes__nf4", as_text({"blocksize": 96}), "weight: blocks of 96 do not divide"),
    ("nf4", "weight.quant_state.bitsandbytes__nf4",
     as_text({"blocksize": 64, "nested_blocksize": 256, "nested_offset": "0"}), "nested_offset '0', expected a number"),
    ("nf4", "weight.nested_quant_map", lambda table: table[1:], "weight.nested_quant_map: 255 numbers, expected 256"),
])
def test_contents_that_make_no_sense_are_named(
    name: str, tensor: str, change: Change, message: str, tmp_path: Path
) -> None:
    if f"{LINEAR}.{tensor}" not in load_file(FOLDER / name / "model.safetensors"):
        pytest.skip("the library has written no such tensor")
    with pytest.raises(CheckpointError, match=f"model.safetensors: {LINEAR}.*{message}"):
        Decoder.load(damaged(name, tmp_path, f"{LINEAR}.{tensor}", change), None, Group())


STRANGE: tuple[Any, ...] = (
    None, -1, 0, 3, 2**40, 1e30, "", "re:(", "x" * 500, [], [[]], [1], {}, {"a": 1}, True, False)


@pytest.mark.parametrize("name", NAMES)
def test_any_strange_value_in_a_configuration_ends_in_a_sentence(name: str, tmp_path: Path) -> None:
    config = json.loads((FOLDER / name / "config.json").read_text())
    rng = random.Random(name)
    for _ in range(60):
        changed = copy.deepcopy(config)
        holder: Any = changed["quantization_config"]
        while True:
            key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            inner = holder[key]
            if not isinstance(inner, dict | list) or not inner or rng.random() < 0.3:
                break
            holder = inner
        holder[key] = rng.choice(STRANGE)
        (tmp_path / "config.json").write_text(json.dumps(changed))
        found = sentence(tmp_path)
        assert not found or str(tmp_path / "config.json") in found


def sentence(path: Path) -> str:
    """Returns what is wrong with a configuration; an empty text if it can be used."""
    try:
        format_of = read_model_config(path).format_of
    except ModelConfigError as error:
        return str(error)
    assert format_of(LINEAR) is format_of(LINEAR)
    return ""
