"""Random weights, made where they are used: the engine and its peer have the same, and no disk has any."""

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from penstock.bench.gpu.scale import Scale
from penstock.kernels import dispatch
from penstock.shard.models.names import USUAL_NAMES as NAMES
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.safetensors_files import SINGLE_FILE
from penstock.shard.weights.stored import STORED_DTYPES, StoredTensor


def random_tensor(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Returns a tensor that follows from its name. A matrix gives outputs of about the size of its inputs."""
    generator = torch.Generator(dispatch.device()).manual_seed(zlib.crc32(name.encode()))
    tensor = torch.empty(shape, dtype=dtype, device=dispatch.device()).normal_(generator=generator)
    if len(shape) == 1:
        return tensor.mul_(0.1).add_(1)
    return tensor if name == f"{NAMES.embedding}.weight" else tensor.mul_(shape[-1] ** -0.5)


@contextmanager
def random_model(scale: Scale) -> Iterator[Path]:
    """Yields the directory of a checkpoint that takes no room: its file has a header and a hole. While the block runs,
    what is read from a checkpoint is made up."""
    def read(checkpoint: Checkpoint, wanted: StoredTensor) -> Tensor:
        return random_tensor(wanted.name, wanted.shape, scale.dtype)[wanted.part]

    with TemporaryDirectory() as folder, mock.patch.object(Checkpoint, "read", read):
        write_model(Path(folder), scale, has_weights=False)
        yield Path(folder)


def write_model(folder: Path, scale: Scale, has_weights: bool = True) -> None:
    """Writes a checkpoint without a tokenizer; without weights its file has a hole, which takes no room on the disk."""
    (folder / "config.json").write_text(json.dumps(configuration(scale)))
    dtype = next(name for name, stored in STORED_DTYPES.items() if stored == scale.dtype)
    header, end, shapes = {}, 0, dict(_shapes(scale.model))
    for name, shape in shapes.items():
        begin, end = end, end + prod(shape) * scale.dtype.itemsize
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with (folder / SINGLE_FILE).open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        if has_weights:
            for name, shape in shapes.items():
                file.write(memoryview(random_tensor(name, shape, scale.dtype).view(torch.uint8).cpu().numpy()))
        file.truncate(8 + len(encoded) + end)


def _shapes(model: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = model["hidden_size"], model["intermediate_size"]
    q_width, kv_width = (model[name] * model["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    for name in (NAMES.embedding, NAMES.head):
        yield f"{name}.weight", (model["vocab_size"], hidden)
    yield f"{NAMES.norm}.weight", (hidden,)
    for layer in range(model["num_hidden_layers"]):
        names = NAMES.of_block(layer)
        shapes = {
            names.q: (q_width, hidden), names.k: (kv_width, hidden), names.v: (kv_width, hidden),
            names.attention_output: (hidden, q_width), names.gate: (inner, hidden), names.up: (inner, hidden),
            names.down: (hidden, inner), names.attention_norm: (hidden,), names.feed_forward_norm: (hidden,)}
        yield from ((f"{name}.weight", shape) for name, shape in shapes.items())


def configuration(scale: Scale) -> dict[str, object]:
    """Returns the content of config.json; no token ends an answer."""
    keys = dict(scale.model)
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "dtype": scale.dtype_name,
        "bos_token_id": None, "eos_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": keys.pop("rope_theta")}, **keys}


class Floor:
    """The least work of a step: bytes of weights and KV, products."""

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
        """Returns the bytes of the weights that a step reads: of the embedding only rows."""
        return (self._layer_weights + self._head_weights) * self._itemsize

    def decode_bytes(self, batch: int, context: float) -> float:
        """Returns the bytes that one step reads: the weights once, and the keys and values of each sequence."""
        return self.weight_bytes + batch * context * self.token_bytes

    def prefill_flops(self, tokens: int) -> float:
        """Returns the operations of one prompt, of which each token sees those before it."""
        attention = 4 * self._layers * self._q_width * tokens * (tokens + 1) / 2
        return self.step_flops(tokens, 1) + attention

    def step_flops(self, tokens: int, samples: int) -> float:
        """Returns the operations of a step that samples so many tokens, but for those of attention."""
        return 2.0 * tokens * self._layer_weights + 2.0 * samples * self._head_weights
