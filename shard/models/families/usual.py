"""The families that have Llama's keys in config.json, each with defaults and other names of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.kernels.activation import Activation
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import USUAL_NAMES, TensorNames
from penstock.shard.models.parts import (
    AttentionConfig,
    EmbeddingConfig,
    HeadConfig,
    HeadNorm,
    MlpConfig,
    NormConfig,
    Qkv,
)
from penstock.shard.models.rotary_scaling import MAX_CONTEXT, Rotation

ACTIVATIONS = {
    "silu": Activation.SILU, "swish": Activation.SILU, "gelu": Activation.GELU, "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH, "gelu_fast": Activation.GELU_TANH,
    "quick_gelu": Activation.GELU_SIGMOID, "relu": Activation.RELU, "relu2": Activation.RELU_SQUARED,
}
"""By their names in transformers."""
FULL, SLIDING = "full_attention", "sliding_attention"
MAX_LAYERS = 4096                        # these are far above any model's; more are a damaged file
MAX_HEADS = 1 << 14
MAX_HEAD_DIM = 16384

WindowsOf = Callable[[Keys, int], tuple[int, ...]]
"""Reads each layer's window; 0 for none."""


class Positions(Enum):
    """How tokens know their positions."""

    ROTARY = "q and k are rotated"
    LEARNED = "an embedding of positions is added to the tokens'"
    ALIBI = "scores fall with the distance"


def no_windows(keys: Keys, num_layers: int) -> tuple[int, ...]:
    return (0,) * num_layers


@dataclass(frozen=True, slots=True)
class Usual:
    """The settings that a family's config.json has under another key, or under none. A switch is a constant, or its
    key."""

    names: TensorNames = USUAL_NAMES
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names of Llama's keys
    norm_eps: str = "rms_norm_eps"
    is_centred: bool = False             # layer norm
    norm_bias: bool = False
    norm_offset: float = 0.0
    activation: str = "hidden_act"
    default_activation: str = "silu"
    is_gated: bool = True
    inner_multiple: int = 0              # of hidden_size, where no key says the inner one; 0: a key has to
    qkv: Qkv = Qkv.APART
    qkv_bias: bool | str = False
    output_bias: bool | str = False      # of the attention's output projection
    mlp_bias: bool | str = False
    head_norm: HeadNorm = HeadNorm.NONE
    kv_heads: str = "num_key_value_heads"  # empty: each head has its own
    positions: Positions = Positions.ROTARY
    default_context: int | None = None   # tokens
    first_position: int = 0              # of learned ones
    rotary_share: float = 1.0            # of a head's dimensions
    rope: Keys | None = None             # the section that has the scaling, where it has another name than usual
    is_interleaved: bool = False
    windows: WindowsOf = no_windows
    head_bias: bool = False
    is_parallel: bool = False

    def __call__(self, keys: Keys) -> ModelConfig:
        """Raises ModelConfigError for keys that are missing or make no sense."""
        keys = keys.renamed(self.aliases)
        num_layers = keys.integer("num_hidden_layers", most=MAX_LAYERS)
        hidden_size = keys.integer("hidden_size")
        attention = self._attention(keys, num_layers, hidden_size)
        rotation = attention.rotations[0]
        length = self._context_length(keys) if rotation is None else rotation.context_length
        norm = NormConfig(keys.number(self.norm_eps), self.is_centred, has_bias=self.norm_bias,
                          offset=self.norm_offset)
        return ModelConfig(
            vocab_size=keys.integer("vocab_size"),
            hidden_size=hidden_size,
            num_layers=num_layers,
            context_length=length,
            attention=attention,
            mlp=MlpConfig(
                keys.integer("intermediate_size", self.inner_multiple * hidden_size or None),
                read_activation(keys, self.activation, self.default_activation), self.is_gated,
                is_stacked=bool(self.names.block.gate_up), has_bias=keys.switch(self.mlp_bias)),
            norm=norm,
            head_norm=norm,
            embedding=EmbeddingConfig(
                num_positions=length + self.first_position if self.positions is Positions.LEARNED else 0,
                first_position=self.first_position),
            head=HeadConfig(is_tied=keys.switch("tie_word_embeddings"), has_bias=self.head_bias),
            names=self.names,
            is_parallel=self.is_parallel,
        )

    def _attention(self, keys: Keys, num_layers: int, hidden_size: int) -> AttentionConfig:
        num_heads = keys.integer("num_attention_heads", most=MAX_HEADS)
        num_kv_heads = keys.integer(self.kv_heads, default=num_heads) if self.kv_heads else num_heads
        if num_heads % num_kv_heads:
            raise keys.error(self.kv_heads, f"a divisor of num_attention_heads = {num_heads}")
        head_dim = self._head_dim(keys, hidden_size, num_heads)
        rotation = None
        if self.positions is Positions.ROTARY:
            rotation = Rotation.read(keys, head_dim, self.rotary_share, self.rope)
        return AttentionConfig(
            num_heads, num_kv_heads, head_dim, scale=head_dim**-0.5,
            windows=self.windows(keys, num_layers), rotations=(rotation,) * num_layers,
            is_interleaved=self.is_interleaved, alibi=float(self.positions is Positions.ALIBI), qkv=self.qkv,
            head_norm=self.head_norm, qkv_bias=keys.switch(self.qkv_bias), output_bias=keys.switch(self.output_bias),
            is_causal=keys.get("is_causal") is None or keys.switch("is_causal"))

    def _head_dim(self, keys: Keys, hidden_size: int, num_heads: int) -> int:
        if keys.get("head_dim") is None and hidden_size % num_heads:
            raise keys.error("hidden_size", f"a multiple of num_attention_heads = {num_heads}, or a head_dim")
        head_dim = keys.integer("head_dim", default=hidden_size // num_heads, most=MAX_HEAD_DIM)
        if head_dim % 2:
            raise keys.error("head_dim", f"an even size, for rotary embeddings turn pairs; it is {head_dim}")
        return head_dim

    def _context_length(self, keys: Keys) -> int:
        return keys.integer("max_position_embeddings", self.default_context, most=MAX_CONTEXT)


def read_activation(keys: Keys, key: str, default: str) -> Activation:
    name = keys.get(key) or default
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise keys.error(key, f"one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def window_everywhere(keys: Keys, num_layers: int) -> tuple[int, ...]:
    window = 0 if keys.get("sliding_window") is None else keys.integer("sliding_window")
    return (window,) * num_layers


def windows_by_kind(pattern: int = 0) -> WindowsOf:
    """Returns a reader of windows that the layers of `layer_types` have; where there is no such key, every layer but
    each `pattern`th, or none if it is 0."""
    def windows(keys: Keys, num_layers: int) -> tuple[int, ...]:
        kinds = read_kinds(keys, num_layers, pattern)
        if SLIDING not in kinds:
            return (0,) * num_layers
        window = keys.integer("sliding_window")
        return tuple(window if kind == SLIDING else 0 for kind in kinds)

    return windows


def read_kinds(keys: Keys, num_layers: int, pattern: int = 0) -> tuple[str, ...]:
    """Returns the kind of each layer's attention, as `windows_by_kind` does."""
    kinds = keys.get("layer_types")
    if kinds is None:
        pattern = keys.integer("sliding_window_pattern", pattern, least=0)
        return tuple(SLIDING if pattern and (layer + 1) % pattern else FULL for layer in range(num_layers))
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in (FULL, SLIDING) for kind in kinds):
        raise keys.error("layer_types", f"a list of {num_layers}, each {FULL} or {SLIDING}")
    return tuple(kinds)
