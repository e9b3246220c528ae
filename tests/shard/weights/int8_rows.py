"""A weight format that only tests know: integers of 8 bits, with a scale for each row."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.kernels.linear import PackedWeight, pack
from penstock.shard.weights.dense import stack
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.stored import Entry, StoredTensor

METHOD = "int8_rows"


@dataclass(frozen=True, slots=True)
class Int8Weight(PackedWeight):
    values: Tensor                       # int8 [N, K]
    scales: Tensor                       # float32 [N]

    def multiply(self, x: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        return pack(self.values * self.scales[:, None], self.segments).multiply(x, bias, out_dtype)

    def rows(self, ids: Tensor) -> Tensor:
        return (self.values[ids] * self.scales[ids, None]).to(self.dtype)


class Int8Rows:
    """NAME.weight_q [N, K] and NAME.scale [N]."""

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        return (
            StoredTensor(f"{linear}.weight_q", (part.out_features, part.in_features), (part.rows, part.columns),
                         dtypes=("I8",)),
            StoredTensor(f"{linear}.scale", (part.out_features,), (part.rows,), dtypes=("F32",)))

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        values = stack([values for values, _ in linears], torch.int8)
        scales = stack([scales for _, scales in linears], torch.float32)
        return Int8Weight(*values.shape, segments, dtype, values, scales)

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        return entry.num_elements * (1 if entry.dtype == "I8" else 4)


INT8_ROWS = Int8Rows()


def quantise(source: Path, target: Path, is_kept: Callable[[str], bool] = lambda linear: False) -> Path:
    """Writes a checkpoint in this format into the folder `target`, and returns it.

    The matrices of the checkpoint in the folder `source` are replaced by what the integers and scales stand for, so
    that both are one model. is_kept: says which linears stay dense.
    """
    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": METHOD}}))
    dense, quantised = load_file(source / "model.safetensors"), {}
    for name, tensor in dense.items():
        linear = name.removesuffix(".weight")
        if tensor.dim() == 1 or is_kept(linear):
            quantised[name] = tensor
            continue
        scales = tensor.abs().amax(dim=1) / 127
        values = (tensor / scales[:, None]).round().to(torch.int8)
        quantised |= {f"{linear}.weight_q": values, f"{linear}.scale": scales}
        dense[name] = values * scales[:, None]
    save_file(dense, source / "model.safetensors")
    save_file(quantised, target / "model.safetensors")
    return target
