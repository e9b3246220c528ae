"""What a format says of the memory that its tensors take is near what their linear takes once it is packed."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.quantised_linear.activations import Activations
from penstock.shard.models.rounding_methods import NF4
from penstock.shard.weights.awq import Awq
from penstock.shard.weights.bitsandbytes import BitsAndBytes4, BitsAndBytes8
from penstock.shard.weights.coded import CodedFormat
from penstock.shard.weights.compressed import CompressedIntegers
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.gptq import Gptq
from penstock.shard.weights.mxfp4 import Mxfp4
from penstock.shard.weights.rounded import Rounded
from penstock.shard.weights.stored import Entry, StoredTensor

WHOLE, PLAIN = Activations.INT8, Activations.FLOAT
OUTPUTS, INPUTS = 512, 1024
FORMATS: dict[str, CodedFormat] = {
    "gptq": Gptq(WHOLE, 4, 128, is_version_1=True, is_ordered=True),
    "awq": Awq(WHOLE, 128),
    "pack-quantized": CompressedIntegers(WHOLE, 4, 128, symmetric=True, is_packed=True),
    "int-quantized": CompressedIntegers(WHOLE, 8, 0, symmetric=True, is_packed=False),
    "mxfp4": Mxfp4(WHOLE, "weight_packed", "weight_scale", has_blocks=False),
    "bitsandbytes": BitsAndBytes8(WHOLE),
    "nf4": BitsAndBytes4(PLAIN, "nf4", is_double=True),
    "fp4": BitsAndBytes4(PLAIN, "fp4", is_double=False),
    "int8": Rounded(WHOLE, 8, 128),
    "int4": Rounded(WHOLE, 4, 128),
    "bitsandbytes-nf4": Rounded(PLAIN, 4, 64, NF4),
}
DTYPES = {"I32": torch.int32, "I8": torch.int8, "U8": torch.uint8, "F16": torch.float16, "F32": torch.float32}


def any_shape(stored: StoredTensor) -> Tensor:
    """Returns the tensors of bitsandbytes whose shape follows from what is in them."""
    blocks = OUTPUTS * INPUTS // 64
    name = stored.name.removeprefix("x.weight.")
    if name.startswith("quant_state"):
        state = {"blocksize": 64, "nested_blocksize": 256, "nested_offset": 0.5}
        return torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    sizes = {"quant_map": 16, "nested_quant_map": 256, "nested_absmax": blocks // 256, "absmax": blocks}
    if stored.dtypes[0] == "U8":
        return torch.randint(256, (sizes[name],), dtype=torch.uint8)
    return torch.rand(sizes[name])


def tensor_of(stored: StoredTensor) -> Tensor:
    if stored.is_optional:
        return torch.empty(0)
    if stored.has_any_shape:
        return any_shape(stored)
    kind = next(name for name in (*stored.dtypes, "F16") if name in DTYPES and name != "F32") \
        if "F32" not in stored.dtypes[:1] else "F32"
    if DTYPES[kind].is_floating_point:
        return torch.rand(stored.shape).add(0.5).to(DTYPES[kind])
    return torch.randint(113, 120, stored.shape, dtype=DTYPES[kind])


@pytest.mark.skipif(dispatch.kernel_set() != "cpu", reason="the reference keeps float32")
@pytest.mark.parametrize("name", FORMATS)
def test_memory_is_about_what_was_said(name: str) -> None:
    format_ = FORMATS[name]
    part = LinearPart(OUTPUTS, INPUTS, slice(0, OUTPUTS), slice(0, INPUTS))
    tensors = [tensor_of(stored) for stored in format_.tensors("x", part)]
    kinds = {dtype: kind for kind, dtype in DTYPES.items()}
    said = sum(format_.num_bytes(Entry(Path(), kinds[tensor.dtype], tuple(tensor.shape)), torch.bfloat16)
               for tensor in tensors if tensor.numel())
    packed = format_.pack([tensors], [part], 1, torch.bfloat16)
    assert packed.compiled is not None
    assert packed.compiled.nbytes == pytest.approx(said, rel=0.07)
