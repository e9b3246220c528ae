"""Checkpoints of a family in every format of quantised weights: random codes where the formats' tensors would lie."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.kernels.linear import PackedWeight, pack
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model_options import BF16, ModelOptions
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.dense import DENSE, Dense
from penstock.shard.weights.format import LinearPart, Place, WeightFormat
from penstock.shard.weights.rank_weights import RankWeights
from penstock.shard.weights.stored import StoredTensor
from tests.shard.equalities import ours
from tests.shard.weights.library_files import values

INTEGERS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
METHODS: dict[str, dict[str, Any]] = {
    "gptq": {"bits": 4, "group_size": 32},
    "awq": {"bits": 4, "group_size": 32, "zero_point": True},
    "compressed-tensors": {"format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": INTEGERS}}},
    "fp8": {"weight_block_size": [32, 32]},
    "fbgemm_fp8": {},
    "bitsandbytes": {"load_in_8bit": True},
    "mxfp4": {},
}
"""By quant_method, what else a typical quantization_config says."""
ELSEWHERE = ("gguf", "penstock-levels")
"""The methods that are no checkpoint's from the Hub: what GGUF files become, and what `penstock quantize` writes."""
OPTIONS = ModelOptions(activations=BF16)


def is_read(plain: Path, method: str, folder: Path) -> bool:
    """Tells whether the family of a plain checkpoint is read in a format: its logits are those of the numbers that the
    codes stand for. Makes both checkpoints in a folder."""
    packed, meant = folder / "packed", folder / "meant"
    for each in (packed, meant):
        shutil.copytree(plain, each)
    config = json.loads((plain / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, **METHODS[method]}
    (packed / "config.json").write_text(json.dumps(config))
    try:
        linears = _linears(packed)
    except ModelConfigError:
        return False
    assert linears, f"{method}: no linear would be quantised"
    _fill(linears, packed, meant)
    found, expected = ours(packed, torch.float32, OPTIONS), ours(meant, torch.float32)
    return bool((found - expected).norm() <= 1e-4 * expected.norm())


class Asking(Dense):
    """Remembers which linears a decoder asks for, and gives it zeros."""

    def __init__(self) -> None:
        self.linears: dict[tuple[str, Place], LinearPart] = {}

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        self.linears[linear, part.place] = replace(part, rows=slice(0, part.out_features),
                                                   columns=slice(0, part.in_features))
        return ()

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        zeros = [torch.zeros(part.out_features, part.in_features)[part.rows, part.columns] for part in parts]
        return pack(torch.cat(zeros).to(dtype), segments)


def _linears(folder: Path) -> list[tuple[str, LinearPart, WeightFormat]]:
    """Returns the quantised linears of a checkpoint, whose tensors need not be there. Raises ModelConfigError."""
    config, asking = read_model_config(folder, OPTIONS), Asking()

    def format_of(linear: str) -> WeightFormat:
        return DENSE if config.format_of(linear) is DENSE else asking

    Decoder(config, RankWeights(Checkpoint(folder), Group(), torch.float32, format_of=format_of))
    return [(linear, part, config.format_of(linear)) for (linear, _), part in asking.linears.items()]


def _fill(linears: Sequence[tuple[str, LinearPart, WeightFormat]], packed: Path, meant: Path) -> None:
    """Puts random tensors into one checkpoint in the linears' place, and what they stand for into the other."""
    generator = torch.Generator().manual_seed(3)
    plain, stored = (load_file(folder / "model.safetensors") for folder in (meant, packed))
    codes: dict[str, Tensor] = {}
    for linear, part, format_ in linears:
        (own,) = DENSE.tensors(linear, part)
        stored.pop(own.name, None)
        needed = format_.tensors(linear, part)
        codes |= {each.name: _random(each, generator) for each in needed if each.name not in codes}
        found = values(format_, [codes[each.name][each.part] for each in needed], part)
        target = plain[own.name][part.place.number] if part.place.count else plain[own.name]
        target.copy_(found if target.shape == found.shape else found.t())  # experts may lie transposed as plain numbers
    save_file(plain, meant / "model.safetensors")
    save_file(stored | {name: tensor for name, tensor in codes.items() if tensor.numel()}, packed / "model.safetensors")


def _random(tensor: StoredTensor, generator: torch.Generator) -> Tensor:
    """Returns codes of any value, and scales that are neither too large nor too small for them; of a tensor that may be
    left out, nothing."""
    kind, shape = tensor.dtypes[0], tensor.shape
    if tensor.is_optional:
        return torch.empty(0)
    if kind == "I32":
        return torch.randint(-(2**31), 2**31, shape, generator=generator).int()
    if kind == "I8":
        return torch.randint(-127, 128, shape, generator=generator).to(torch.int8)
    if kind == "U8":
        bounds = (120, 124) if "F8_E8M0" in tensor.dtypes else (0, 256)  # exponents of mxfp4, of 2 ** -7 to 2 ** -4
        return torch.randint(*bounds, shape, generator=generator).to(torch.uint8)
    if kind == "F8_E4M3":
        return torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
    return torch.rand(shape, generator=generator) * 0.05 + 0.01
