"""Random weights, made where they are used: the same ones for the engine and for its peer, and none of them on a disk."""

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import torch
from torch import Tensor

from kernels import dispatch
from shard import executor
from shard.models import decoder
from shard.models.config import ModelConfig
from tests.bench.gpu.scale import Scale

EMBEDDING = decoder.EMBEDDING


def random_tensor(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """It follows from the name. A matrix gives outputs of about the size of its inputs."""
    generator = torch.Generator(dispatch.device()).manual_seed(zlib.crc32(name.encode()))
    tensor = torch.empty(shape, dtype=dtype, device=dispatch.device()).normal_(generator=generator)
    if len(shape) == 1:
        return tensor.mul_(0.1).add_(1)
    return tensor if name == EMBEDDING else tensor.mul_(shape[-1] ** -0.5)


class RandomCheckpoint:
    """What shard.weights.Checkpoint is to those who read one."""

    def __init__(self, directory: str | Path) -> None:
        config = ModelConfig.from_dir(directory)
        self._dtype = config.dtype
        self.entries = dict.fromkeys(_names(config))

    def read(self, name: str, shape: tuple[int, ...], part: tuple[slice, ...]) -> Tensor:
        return random_tensor(name, shape, self._dtype)[part]

    def digest(self) -> str:
        return "random"


def _names(config: ModelConfig) -> Iterator[str]:
    yield from (EMBEDDING, "model.norm.weight", decoder.HEAD)
    parts = [*(f"self_attn.{name}_proj" for name in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
             "input_layernorm", "post_attention_layernorm"]
    for layer in range(config.num_layers):
        yield from (f"model.layers.{layer}.{part}.weight" for part in parts)


@contextmanager
def random_model(scale: Scale) -> Iterator[Path]:
    """A directory with the configuration alone, whose weights the shard makes up while the block runs."""
    with (TemporaryDirectory() as folder,
          mock.patch.object(decoder, "Checkpoint", RandomCheckpoint),
          mock.patch.object(executor, "Checkpoint", RandomCheckpoint)):
        (Path(folder) / "config.json").write_text(json.dumps(configuration(scale)))
        yield Path(folder)


def configuration(scale: Scale) -> dict[str, object]:
    """config.json. No token ends an answer."""
    keys = dict(scale.model)
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "dtype": scale.dtype_name,
        "bos_token_id": None, "eos_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": keys.pop("rope_theta")}, **keys}


class Floor:
    """What a step cannot do without: bytes of weights and KV, products."""

    def __init__(self, scale: Scale) -> None:
        model = scale.model
        hidden, layers = model["hidden_size"], model["num_hidden_layers"]
        q_width, kv_width = (model[name] * model["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
        self._layer_weights = layers * hidden * (2 * q_width + 2 * kv_width + 3 * model["intermediate_size"])
        self._head_weights = hidden * model["vocab_size"]
        self._q_width, self._layers, self._itemsize = q_width, layers, scale.dtype.itemsize
        self.token_bytes = 2 * layers * kv_width * self._itemsize

    @property
    def weight_bytes(self) -> int:
        """Of the embedding only rows are read."""
        return (self._layer_weights + self._head_weights) * self._itemsize

    def decode_bytes(self, batch: int, context: float) -> float:
        """Of one step: the weights once, and the keys and values of each sequence."""
        return self.weight_bytes + batch * context * self.token_bytes

    def prefill_flops(self, tokens: int) -> float:
        """Of one prompt, of which each token sees those before it."""
        attention = 4 * self._layers * self._q_width * tokens * (tokens + 1) / 2
        return 2.0 * tokens * self._layer_weights + attention + 2 * self._head_weights
