"""The checkpoints in quantised_files/, which the formats' own libraries made, as we read them."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.coded import CodedFormat
from penstock.shard.weights.float8 import Float8
from penstock.shard.weights.format import LinearPart, WeightFormat

FOLDER = Path(__file__).parent / "quantised_files"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/config.json"))
SHAPES = {"q_proj": (64, 64), "k_proj": (64, 64), "v_proj": (64, 64), "o_proj": (64, 64), "gate_proj": (128, 64),
          "up_proj": (128, 64), "down_proj": (64, 128)}


def stored(name: str, linear: str) -> tuple[WeightFormat, list[Tensor], LinearPart]:
    format_ = read_model_config(FOLDER / name).format_of(linear)
    outputs, inputs = SHAPES[linear.rpartition(".")[2]]
    part = LinearPart(outputs, inputs, slice(0, outputs), slice(0, inputs))
    found = load_file(FOLDER / name / "model.safetensors")
    return format_, [found.get(each.name, torch.empty(0)) for each in format_.tensors(linear, part)], part


def decoded(name: str, linear: str) -> CodedWeight:
    format_, tensors, part = stored(name, linear)
    assert isinstance(format_, CodedFormat)
    return format_.decode(tensors, part)


def values_of(name: str, linear: str) -> Tensor:
    """Returns what we say that a linear's weights are."""
    return values(*stored(name, linear))


def values(format_: WeightFormat, tensors: Sequence[Tensor], part: LinearPart) -> Tensor:
    """Returns the weights [N, K] that a linear's tensors stand for."""
    if isinstance(format_, Float8):
        weight, scales = tensors
        return format_._values(weight, scales.float(), part)
    assert isinstance(format_, CodedFormat)
    found = format_.decode(tensors, part).inputs(part.columns).dequantise()
    order = format_.order(tensors, part)
    return found if order is None else found[:, torch.argsort(order)]
