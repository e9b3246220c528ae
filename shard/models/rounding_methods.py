"""The formats to which --quantize rounds a checkpoint of plain numbers when it is loaded."""

from dataclasses import dataclass, replace

import torch

from penstock.shard.models.keys import Keys
from penstock.shard.models.model_options import BF16, ModelOptions, Quantization
from penstock.shard.models.names import TensorNames
from penstock.shard.weights.dense import DENSE
from penstock.shard.weights.format import WeightFormat
from penstock.shard.weights.rounded import Rounded

NF4 = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])
"""The quantiles of normal numbers (Dettmers et al. 2023, appendix E)."""
FP4 = torch.tensor([0, 0.0625, 8, 12, 4, 6, 2, 3, 0, -0.0625, -8, -12, -4, -6, -2, -3]) / 12
"""bitsandbytes' numbers of a sign, two bits of exponent and one of fraction."""

GROUP, GROUP_OF_ENCODERS = 128, 32
"""How many inputs share a scale where there is no library to follow. An encoder's vectors are compared, and show each
error, so fewer do, and activations stay as they are unless the user asks for whole numbers."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """How linears are rounded. The head, if it is at all, has 8 bits; so then has an embedding that is the head."""

    bits: int
    group: int                           # 0 for one of all inputs
    has_head: bool
    table: torch.Tensor | None = None


ROUNDINGS = {
    "int8": Rounding(8, GROUP, has_head=True),
    "int4": Rounding(4, GROUP, has_head=True),
    "eetq": Rounding(8, 0, has_head=False),
    "bitsandbytes": Rounding(8, 0, has_head=False),
    "bitsandbytes-nf4": Rounding(4, 64, has_head=False, table=NF4),
    "bitsandbytes-fp4": Rounding(4, 64, has_head=False, table=FP4),
}


def round_when_loaded(
    name: str, keys: Keys, options: ModelOptions, names: TensorNames, is_encoder: bool
) -> Quantization:
    how = ROUNDINGS[name]
    if is_encoder:
        options = replace(options, activations=options.activations or BF16)
        how = replace(how, group=GROUP_OF_ENCODERS if how.group == GROUP else how.group)
    activations = options.activations_for(keys, name, are_whole=how.table is None)
    usual = Rounded(activations, how.bits, how.group, how.table)
    head: WeightFormat = Rounded(activations, 8, how.group) if how.has_head else DENSE
    embedding = head if keys.switch("tie_word_embeddings") and not is_encoder else DENSE

    def format_of(linear: str) -> WeightFormat:
        return {names.embedding: embedding, names.head: head}.get(linear, usual)

    return Quantization(name, activations, format_of)
