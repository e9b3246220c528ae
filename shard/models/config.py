"""What a checkpoint says about its model. Nothing else reads config.json."""

from dataclasses import dataclass
from pathlib import Path

import torch

from penstock.shard.models.families import FAMILIES, Family
from penstock.shard.models.keys import Keys, ModelConfigError, is_integer
from penstock.shard.models.quantization import read_weight_format
from penstock.shard.models.rotary_scaling import Rotation
from penstock.shard.models.weight_options import AS_STORED, PLAIN, Quantization, WeightOptions
from penstock.shard.weights.format import FormatOf

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FULL, SLIDING = "full_attention", "sliding_attention"
DEFAULT_WINDOW = 4096                    # these two are transformers'
DEFAULT_MAX_WINDOW_LAYERS = 28
MAX_LAYERS = 4096                        # this and the next are far above any model's; more are a damaged file
MAX_HEAD_DIM = 16384


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's sizes and switches, as far as its computation depends on them."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    windows: tuple[int, ...]             # of each layer, in tokens; 0 for none
    rotation: Rotation
    rms_norm_eps: float
    has_head_norms: bool
    qkv_bias: bool
    output_bias: bool                    # of the attention's output projection
    mlp_bias: bool
    is_head_tied: bool                   # the head is the embedding
    dtype: torch.dtype                   # of the checkpoint; float32 if it does not say
    eos_token_ids: tuple[int, ...]
    quantization: Quantization = PLAIN

    @classmethod
    def from_dir(cls, directory: str | Path, options: WeightOptions = AS_STORED) -> "ModelConfig":
        """Reads config.json, as transformers 4 and 5 write it, and the end tokens of generation_config.json, if any.

        Raises ModelConfigError, also for options that contradict them.
        """
        keys = Keys.read(Path(directory) / "config.json")
        architecture = _architecture(keys)
        family = FAMILIES[architecture]
        keys.expect("hidden_act", "silu")
        hidden_size = keys.integer("hidden_size")
        num_heads = keys.integer("num_attention_heads")
        num_kv_heads = keys.integer("num_key_value_heads", default=num_heads)
        if num_heads % num_kv_heads:
            raise keys.error("num_key_value_heads", f"a divisor of num_attention_heads = {num_heads}")
        head_dim = _head_dim(keys, family, hidden_size, num_heads)
        num_layers = keys.integer("num_hidden_layers", most=MAX_LAYERS)
        return cls(
            architecture=architecture,
            vocab_size=keys.integer("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=keys.integer("intermediate_size"),
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            windows=_windows(keys, family, num_layers),
            rotation=Rotation.read(keys, head_dim),
            rms_norm_eps=keys.number("rms_norm_eps"),
            has_head_norms=family.has_head_norms,
            qkv_bias=keys.switch(family.qkv_bias),
            output_bias=keys.switch(family.output_bias),
            mlp_bias=keys.switch(family.mlp_bias),
            is_head_tied=keys.switch("tie_word_embeddings"),
            dtype=_dtype(keys),
            eos_token_ids=_eos_token_ids(keys),
            quantization=read_weight_format(keys, options, family.names),
        )

    @property
    def family(self) -> Family:
        """The row of the table of families that this architecture has."""
        return FAMILIES[self.architecture]

    @property
    def format_of(self) -> FormatOf:
        """Returns the function that tells each linear's format."""
        return self.quantization.format_of

    @property
    def context_length(self) -> int:
        """The most tokens that a sequence may have."""
        return self.rotation.context_length

    @property
    def angle_bytes(self) -> int:
        """The bytes that the cosines and sines of all positions take, float32, on each shard."""
        return 4 * self.context_length * self.head_dim

    def check_world_size(self, world_size: int) -> None:
        """Raises ModelConfigError, with the sizes that would do, if the model cannot be split over so many shards."""
        splits = {
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "intermediate_size": self.intermediate_size,
        }

        def obstacles(shards: int) -> list[str]:
            found = [f"{name} = {size}" for name, size in splits.items() if size % shards]
            is_a_rank_empty = -(-self.vocab_size // shards) * (shards - 1) >= self.vocab_size
            return [*found, f"vocab_size = {self.vocab_size}"] if is_a_rank_empty else found

        if obstacles(world_size):
            would_do = [str(shards) for shards in range(1, self.num_kv_heads + 1) if not obstacles(shards)]
            raise ModelConfigError(
                f"the model cannot be split over {world_size} shards, its config.json has "
                f"{', '.join(obstacles(world_size))}; it can be over {', '.join(would_do)}"
            )


def _architecture(keys: Keys) -> str:
    names = keys.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or str(names[0]) not in FAMILIES:
        raise keys.error("architectures", f"one of {', '.join(FAMILIES)}")
    return str(names[0])


def _head_dim(keys: Keys, family: Family, hidden_size: int, num_heads: int) -> int:
    if keys.get("head_dim") is None and family.head_dim is None and hidden_size % num_heads:
        raise keys.error("hidden_size", f"a multiple of num_attention_heads = {num_heads}, or a head_dim")
    head_dim = keys.integer("head_dim", default=family.head_dim or hidden_size // num_heads, most=MAX_HEAD_DIM)
    if head_dim % 2:
        raise keys.error("head_dim", f"an even size, for rotary embeddings turn pairs; it is {head_dim}")
    return head_dim


def _windows(keys: Keys, family: Family, num_layers: int) -> tuple[int, ...]:
    window = 0
    # Where the key is absent transformers has a window, where it is null it has none.
    if keys.switch(family.has_window) and keys.get("sliding_window", DEFAULT_WINDOW) is not None:
        window = keys.integer("sliding_window", default=DEFAULT_WINDOW)
    if not family.is_window_by_layer:
        keys.expect("layer_types", None)
        return (window,) * num_layers
    kinds = keys.get("layer_types")
    if kinds is None:
        first = keys.integer("max_window_layers", default=DEFAULT_MAX_WINDOW_LAYERS, least=0)
        return tuple(window if layer >= first else 0 for layer in range(num_layers))
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in (FULL, SLIDING) for kind in kinds):
        raise keys.error("layer_types", f"a list of {num_layers}, each {FULL} or {SLIDING}")
    if SLIDING in kinds and not window:
        raise keys.error("layer_types", f"no {SLIDING}, for sliding_window is null or use_sliding_window false")
    return tuple(window if kind == SLIDING else 0 for kind in kinds)


def _dtype(keys: Keys) -> torch.dtype:
    key = "dtype" if keys.get("dtype") is not None else "torch_dtype"
    name = keys.get(key)
    if name is None:
        return torch.float32
    if str(name) not in DTYPES:
        raise keys.error(key, f"one of {', '.join(DTYPES)}")
    return DTYPES[str(name)]


def _eos_token_ids(keys: Keys) -> tuple[int, ...]:
    key = "eos_token_id"
    path = keys.path.with_name("generation_config.json")
    if path.exists():
        generation = Keys.read(path)
        keys = keys if generation.get(key) is None else generation
    value = keys.get(key)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(is_integer(token, 0) for token in ids):
        raise keys.error(key, "a token id, a list of them, or null")
    return tuple(ids)
