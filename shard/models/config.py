"""What a checkpoint says about its model: the one reader of config.json."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shard.models.families import FAMILIES

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ModelConfigError(ValueError):
    """The configuration is missing, malformed, or asks for what this version does not do: names file, key and value."""


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
    context_length: int                  # tokens
    rms_norm_eps: float
    rope_theta: float
    qkv_bias: bool
    output_bias: bool                    # of the attention's output projection
    mlp_bias: bool
    is_head_tied: bool                   # the head is the embedding
    dtype: torch.dtype                   # of the checkpoint; float32 if it does not say
    eos_token_ids: tuple[int, ...]

    @classmethod
    def from_dir(cls, directory: str | Path) -> "ModelConfig":
        """Read config.json, as transformers 4 and 5 write it, and the end tokens of generation_config.json if there.

        Raises ModelConfigError.
        """
        keys = _Keys.read(Path(directory) / "config.json")
        architecture = _architecture(keys)
        family = FAMILIES[architecture]
        keys.expect("hidden_act", "silu")
        keys.expect("quantization_config", None)
        hidden_size = keys.integer("hidden_size")
        num_heads = keys.integer("num_attention_heads")
        num_kv_heads = keys.integer("num_key_value_heads", default=num_heads)
        if num_heads % num_kv_heads:
            raise keys.error("num_key_value_heads", f"a divisor of num_attention_heads = {num_heads}")
        return cls(
            architecture=architecture,
            vocab_size=keys.integer("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=keys.integer("intermediate_size"),
            num_layers=keys.integer("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=_head_dim(keys, hidden_size, num_heads),
            context_length=keys.integer("max_position_embeddings"),
            rms_norm_eps=keys.number("rms_norm_eps"),
            rope_theta=_rope_theta(keys),
            qkv_bias=keys.switch(family.qkv_bias),
            output_bias=keys.switch(family.output_bias),
            mlp_bias=keys.switch(family.mlp_bias),
            is_head_tied=keys.switch("tie_word_embeddings"),
            dtype=_dtype(keys),
            eos_token_ids=_eos_token_ids(keys),
        )

    def check_world_size(self, world_size: int) -> None:
        """Raise ModelConfigError, with the sizes that would do, if the model cannot be split over so many shards."""
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


class _Keys:
    """The keys of one JSON object, read with errors that name the file, the key and the value."""

    def __init__(self, path: Path, values: dict[str, Any], prefix: str = "") -> None:
        self.path = path
        self._values = values
        self._prefix = prefix

    @classmethod
    def read(cls, path: Path) -> "_Keys":
        try:
            values = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ModelConfigError(f"{path} does not exist") from None
        except (OSError, ValueError) as error:
            raise ModelConfigError(f"{path} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise ModelConfigError(f"{path}: expected an object of keys and values, found {type(values).__name__}")
        return cls(path, values)

    @property
    def names(self) -> set[str]:
        return set(self._values)

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def error(self, key: str, expected: str) -> ModelConfigError:
        found = f"{self.get(key)!r}" if key in self._values else "no such key"
        return ModelConfigError(f"{self.path}: {self._prefix}{key}: expected {expected}, found {found}")

    def expect(self, key: str, value: Any) -> None:
        if self._values.get(key, value) != value:
            raise self.error(key, "none" if value is None else f"{value!r}, the only one supported")

    def integer(self, key: str, default: int | None = None) -> int:
        value: Any = self.get(key)
        value = default if value is None else value
        if not _is_id(value) or value < 1:
            raise self.error(key, "a whole number of at least 1")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        value: Any = self.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise self.error(key, "a number above 0")
        return float(value)

    def switch(self, key: bool | str) -> bool:
        value = key if isinstance(key, bool) else self._values.get(key, False)
        if not isinstance(value, bool):
            raise self.error(str(key), "true or false")
        return value

    def section(self, *names: str) -> "_Keys":
        """The object under the first of these keys that has one; an empty one if none does."""
        for name in names:
            value = self.get(name)
            if isinstance(value, dict):
                return _Keys(self.path, value, f"{self._prefix}{name}.")
            if value is not None:
                raise self.error(name, "an object or null")
        return _Keys(self.path, {})


def _architecture(keys: _Keys) -> str:
    names = keys.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or str(names[0]) not in FAMILIES:
        raise keys.error("architectures", f"one of {', '.join(FAMILIES)}")
    return str(names[0])


def _head_dim(keys: _Keys, hidden_size: int, num_heads: int) -> int:
    if keys.get("head_dim") is None and hidden_size % num_heads:
        raise keys.error("hidden_size", f"a multiple of num_attention_heads = {num_heads}, or a head_dim")
    head_dim = keys.integer("head_dim", default=hidden_size // num_heads)
    if head_dim % 2:
        raise keys.error("head_dim", f"an even size, for rotary embeddings turn pairs; it is {head_dim}")
    return head_dim


def _rope_theta(keys: _Keys) -> float:
    # transformers 5 has rope_parameters; 4 has rope_theta beside rope_scaling, whose oldest form says "type".
    rope = keys.section("rope_parameters", "rope_scaling")
    for key in ("rope_type", "type"):
        rope.expect(key, "default")
    for key in sorted(rope.names - {"rope_theta", "rope_type", "type"}):
        raise rope.error(key, "none, for no scaling is supported")
    return rope.number("rope_theta", default=keys.number("rope_theta", default=10000.0))


def _dtype(keys: _Keys) -> torch.dtype:
    key = "dtype" if keys.get("dtype") is not None else "torch_dtype"
    name = keys.get(key)
    if name is None:
        return torch.float32
    if str(name) not in DTYPES:
        raise keys.error(key, f"one of {', '.join(DTYPES)}")
    return DTYPES[str(name)]


def _eos_token_ids(keys: _Keys) -> tuple[int, ...]:
    key = "eos_token_id"
    path = keys.path.with_name("generation_config.json")
    if path.exists():
        generation = _Keys.read(path)
        keys = keys if generation.get(key) is None else generation
    value = keys.get(key)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(_is_id(token) for token in ids):
        raise keys.error(key, "a token id, a list of them, or null")
    return tuple(ids)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
