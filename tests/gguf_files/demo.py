"""GGUF files of the demo model, which are too large to be kept: gguf, the format's own library, writes them."""

import json
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file

from tests.paths import DEMO_MODEL

Kind = gguf.GGMLQuantizationType
SUPER, GROUP, NUM_GROUPS = 256, 32, 8


def write_demo(path: Path, kind: Kind) -> Path:
    """Writes the demo model with its linears as `kind` and its embedding as Q8_0, and returns the path. As in files of
    llama-quantize, linears whose inputs are no whole blocks of 256 are Q5_0."""
    config = json.loads((DEMO_MODEL / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    _add_tokenizer(writer, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in load_file(DEMO_MODEL / "model.safetensors").items():
        weight = tensor.float().numpy()
        for layer, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if layer in name:
                weight = _paired(weight, config[heads])
        own = names.get_name(name, (".weight",))
        assert own is not None, name
        if weight.ndim == 1:
            writer.add_tensor(own, weight)
        else:
            stored = Kind.Q8_0 if "embed" in name else Kind.Q5_0 if _is_cut(weight, kind) else kind
            writer.add_tensor(own, quantise(weight, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def quantise(weight: NDArray[np.float32], kind: Kind) -> NDArray[np.uint8]:
    """Returns float32 [N, K] in blocks, uint8 [N, bytes]: by gguf, which has no rounding to Q4_K, or by `_q4_k`."""
    return _q4_k(weight) if kind is Kind.Q4_K else gguf.quants.quantize(weight, kind)


def _q4_k(weight: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Rounds as plainly as the format allows: each group from its least to its largest number."""
    groups = weight.reshape(len(weight), -1, NUM_GROUPS, GROUP)
    least = np.minimum(groups.min(axis=3), 0)
    steps = (groups.max(axis=3) - least) / 15
    of_steps, of_least = (each.max(axis=2, keepdims=True).astype(np.float16) for each in (steps / 63, -least / 63))
    factors = np.rint(steps / np.maximum(of_steps, 1e-12)).clip(0, 63).astype(np.uint8)
    offsets = np.rint(-least / np.maximum(of_least, 1e-12)).clip(0, 63).astype(np.uint8)
    scale = (factors * of_steps.astype(np.float32))[..., None]
    shifted = groups + (offsets * of_least.astype(np.float32))[..., None]
    codes = np.rint(shifted / np.maximum(scale, 1e-12)).clip(0, 15).astype(np.uint8)
    pairs = codes.reshape(*codes.shape[:2], NUM_GROUPS // 2, 2, GROUP)
    halves = pairs[:, :, :, 0] | pairs[:, :, :, 1] << 4
    (scales, high_scales), (minima, high_minima) = (np.split(each, 2, axis=2) for each in (factors, offsets))
    packed = np.concatenate((scales | high_scales >> 4 << 6, minima | high_minima >> 4 << 6,
                             high_scales & 15 | high_minima << 4), axis=2)
    parts = (of_steps.view(np.uint8), of_least.view(np.uint8), packed, halves.reshape(*codes.shape[:2], -1))
    return np.concatenate(parts, axis=2).reshape(len(weight), -1)


def _is_cut(weight: NDArray[np.float32], kind: Kind) -> bool:
    return kind is Kind.Q4_K and weight.shape[1] % SUPER != 0


def _paired(weight: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Puts the two outputs that a rotation turns side by side, as the files of a Llama have them."""
    return weight.reshape(num_heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _add_tokenizer(writer: gguf.GGUFWriter, config: dict[str, int]) -> None:
    found = json.loads((DEMO_MODEL / "tokenizer.json").read_text(encoding="utf-8"))
    special = {each["content"]: each["id"] for each in found["added_tokens"]}
    ids = found["model"]["vocab"] | special
    tokens = sorted(ids, key=ids.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in found["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
