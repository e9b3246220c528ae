"""Tables of 16 levels of a linear's own, in tensors like those of bitsandbytes' files; this server alone reads them."""

import json
from typing import Any

import torch
from torch import Tensor

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.quantization.settings import Settings


def tensors(linear: str, coded: CodedWeight, settings: Settings) -> dict[str, Tensor]:
    """Returns the tensors of the file for a linear's weight."""
    assert coded.table is not None, "levels have a table"
    pairs = coded.codes.view(-1, 2)
    state = {"blocksize": coded.group, "quant_type": "levels", "shape": list(coded.codes.shape)}
    text = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    return {
        f"{linear}.weight": (pairs[:, :1] << 4 | pairs[:, 1:]), f"{linear}.weight.quant_map": coded.table,
        f"{linear}.weight.absmax": coded.scales.flatten(), f"{linear}.weight.quant_state.bitsandbytes__levels": text}


def config(settings: Settings) -> dict[str, Any]:
    """Returns quantization_config."""
    return {"quant_method": "penstock-levels", "modules_to_not_convert": ["lm_head"]}
