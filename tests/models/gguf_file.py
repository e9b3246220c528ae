"""A family's checkpoint as a GGUF file, named and ordered as llama.cpp's converter does it."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file

from penstock.checkpoints.gguf.config import ARCHITECTURES
from penstock.checkpoints.gguf.folder import checkpoint_of
from penstock.checkpoints.gguf.metadata import GgufError
from tests.shard.equalities import ours

NAMES = {architecture: name for name, architecture in ARCHITECTURES.items()} | {"MistralForCausalLM": "llama"}
"""By transformers' class, what GGUF calls the architecture."""


def is_read(plain: Path, folder: Path) -> bool:
    """Tells whether a family is served out of a GGUF file, with the bits of the plain checkpoint's logits."""
    config = json.loads((plain / "config.json").read_text())
    if config["architectures"][0] not in NAMES:
        return False
    file = folder / "model.gguf"
    _write(plain, config, file)
    try:
        with checkpoint_of(file) as served:
            return torch.equal(ours(served, torch.float32), ours(plain, torch.float32))
    except GgufError:
        return False


def _write(plain: Path, config: dict[str, Any], file: Path) -> None:
    name, layers = NAMES[config["architectures"][0]], config["num_hidden_layers"]
    writer = gguf.GGUFWriter(file, name)
    writer.add_block_count(layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    _add_tokenizer(writer, config["vocab_size"])
    architecture = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(architecture, layers)
    for key, tensor in load_file(plain / "model.safetensors").items():
        known = names.get_name(key, (".weight", ".bias"))
        assert known is not None, key
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(key.split(".")[-2])
        is_paired = name == "llama" and heads is not None
        writer.add_tensor(known, _paired(tensor.numpy(), config[heads]) if is_paired else tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, size: int) -> None:
    """Adds the least that is a tokenizer: there is no file without one."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(["a", "b", "ab", *(f"<{number}>" for number in range(3, size))])
    writer.add_token_merges(["a b"])


def _paired(rows: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Puts the two rows of a head that a rotation turns side by side."""
    return np.ascontiguousarray(rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape))
