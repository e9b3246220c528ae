"""compressed-tensors' files (https://github.com/vllm-project/compressed-tensors), which this server, vLLM and
transformers read."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.quantization.settings import Settings

PER_WORD = 8                             # codes of 4 bits in 32


def tensors(linear: str, coded: CodedWeight, settings: Settings) -> dict[str, Tensor]:
    """Returns the tensors of the file for a linear's weight."""
    scales = coded.scales.to(settings.grid.scale_dtype)
    signed = _signed(coded.codes, coded.bits)
    zeros = {} if coded.zeros is None else {f"{linear}.weight_zero_point": _zeros(coded.zeros, coded.bits)}
    if settings.grid.granularity == "tensor":
        scales, zeros = scales[:1, 0], {name: zero[:1, 0] for name, zero in zeros.items()}
    if coded.bits == 8:
        return {f"{linear}.weight": signed, f"{linear}.weight_scale": scales, **zeros}
    return {
        f"{linear}.weight_packed": _words(coded.codes), f"{linear}.weight_scale": scales, **zeros,
        f"{linear}.weight_shape": torch.tensor(coded.codes.shape)}


def config(settings: Settings) -> dict[str, Any]:
    """Returns quantization_config."""
    grid = settings.grid
    weights = {
        "num_bits": grid.bits, "type": "int", "symmetric": grid.symmetric, "strategy": grid.granularity,
        "group_size": grid.group if grid.granularity == "group" else None, "dynamic": False, "observer": "minmax"}
    inputs = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    form = "pack-quantized" if grid.bits == 4 else "int-quantized"
    return {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
        "ignore": ["lm_head"], "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": weights,
            "input_activations": inputs if settings.has_int8_inputs else None, "output_activations": None}}}


def _signed(codes: Tensor, bits: int) -> Tensor:
    zero: int = 2 ** (bits - 1)
    return (codes.short() - zero).to(torch.int8)


def _words(codes: Tensor) -> Tensor:
    """Packs codes [A, B] of 4 bits along their rows, from the lowest bits up: int32 [A, B / 8]."""
    padded = functional.pad(codes.int(), (0, -codes.shape[1] % PER_WORD)).view(len(codes), -1, PER_WORD)
    return (padded << torch.arange(0, 32, 4, dtype=torch.int32)).sum(2, dtype=torch.int32)


def _zeros(zeros: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return _signed(zeros, bits)
    return _words(zeros.T.contiguous()).T.contiguous()  # packed along the outputs
