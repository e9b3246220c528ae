"""One decoder block: its tensors, which of its linears read the same inputs, and what a method makes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.quantization.settings import Settings
from penstock.quantization.statistics import Statistics
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.names import BlockNames
from penstock.shard.models.parts import Qkv


@dataclass(frozen=True, slots=True)
class Reader:
    """Linears with the same inputs."""

    linears: tuple[str, ...]
    norm: str | None = None              # the norm that makes these inputs
    source: str | None = None            # the linear whose outputs these inputs are, but for factors of each


@dataclass
class BlockWeights:
    """A block's plain tensors, float32, and over its calibration the statistics of each linear's inputs."""

    names: BlockNames
    readers: tuple[Reader, ...]
    tensors: dict[str, Tensor]
    statistics: Mapping[str, Statistics]

    def weight(self, linear: str) -> Tensor:
        return self.tensors[f"{linear}.weight"]


@dataclass
class Quantised:
    """A block's linears in codes, and the plain tensors that changed with them."""

    linears: dict[str, CodedWeight]
    changed: dict[str, Tensor] = field(default_factory=dict)


Method = Callable[[BlockWeights, Settings], Quantised]


def readers_of(names: BlockNames, config: ModelConfig) -> tuple[Reader, ...]:
    """Returns which linears of a block read the same inputs.

    The inputs of the attention's output are means of v's outputs, one for one only if each head has a v of its own.
    Factors cannot move into a norm that both halves read, or whose weight is stored less something; nor into up if the
    activation is between.
    """
    attention, mlp = config.attention, config.mlp
    has_own_v = attention.qkv is Qkv.APART and attention.num_heads == attention.num_kv_heads
    has_own_norms = not config.is_parallel and not config.norm.offset and not config.norm.is_centred
    inner = (names.gate_up,) if mlp.is_stacked else (names.gate, names.up) if mlp.is_gated else (names.up,)
    return (
        Reader((names.q, names.k, names.v) if attention.qkv is Qkv.APART else (names.qkv,),
               norm=names.attention_norm or None if has_own_norms else None),
        Reader((names.attention_output,), source=names.v if has_own_v else None),
        Reader(inner, norm=names.feed_forward_norm or None if has_own_norms else None),
        Reader((names.down,), source=names.up if mlp.is_gated and not mlp.is_stacked else None))
