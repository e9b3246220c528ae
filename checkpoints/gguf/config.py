"""config.json and generation_config.json of a GGUF file's model, as its metadata describe it."""

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.checkpoints.gguf.keys import check_keys
from penstock.checkpoints.gguf.metadata import GgufError, Metadata
from penstock.checkpoints.gguf.reader import Tensor
from penstock.checkpoints.gguf.tensors import HEAD, linear_types
from penstock.system.ggml_types import GGML_TYPES

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""By general.architecture, transformers' class. A Mistral without a window is a Llama to GGUF's writers."""
FREQUENCIES = "rope_freqs.weight"
DTYPES = {"F32": "float32", "F16": "float16"}
END_OF_TURN = frozenset((
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>",
    "</s>", "<｜end▁of▁sentence｜>"))
"""Tokens that end an answer in any model, for writers give one of them alone as tokenizer.ggml.eos_token_id."""
EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


def architecture(metadata: Metadata) -> str:
    """Returns GGUF's name of the architecture. Raises GgufError for one that is not computed."""
    name = metadata.text("general.architecture")
    if name not in ARCHITECTURES:
        raise metadata.error("general.architecture", f"one of {', '.join(ARCHITECTURES)}")
    return name


def model_config(metadata: Metadata, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns the content of config.json. Raises GgufError."""
    name = architecture(metadata)
    check_keys(metadata, name)
    if metadata.integer(f"{name}.expert_count", 0):
        raise metadata.error(f"{name}.expert_count", "0, for mixtures of experts are not computed")
    layers = metadata.integer(f"{name}.block_count", least=1)
    heads = metadata.of_each_layer(f"{name}.attention.head_count", layers)
    hidden = metadata.integer(f"{name}.embedding_length", least=1)
    head_dim = metadata.integer(f"{name}.attention.key_length", hidden // heads, least=1)
    for key in ("attention.value_length", "rope.dimension_count"):
        if metadata.integer(f"{name}.{key}", head_dim) != head_dim:
            raise metadata.error(f"{name}.{key}", f"{head_dim}, the size of a head")
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise GgufError(metadata.path, "there is no tensor token_embd.weight")
    types = linear_types(tensors)
    config = {
        "architectures": [ARCHITECTURES[name]], "model_type": name, "hidden_act": "silu", "head_dim": head_dim,
        "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": metadata.of_each_layer(f"{name}.attention.head_count_kv", layers, heads),
        "num_hidden_layers": layers,
        "intermediate_size": metadata.of_each_layer(f"{name}.feed_forward_length", layers),
        "max_position_embeddings": metadata.integer(f"{name}.context_length", least=1),
        "rms_norm_eps": metadata.number(f"{name}.attention.layer_norm_rms_epsilon"),
        "vocab_size": embedding.shape[0], "tie_word_embeddings": HEAD not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "rope_parameters": _rope(name, metadata, tensors, head_dim), "dtype": DTYPES.get(embedding.kind, "bfloat16"),
    }
    window = metadata.integer(f"{name}.attention.sliding_window", 0)
    if window and name == "llama":
        config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": window}
    elif window:
        raise metadata.error(f"{name}.attention.sliding_window", "none, for the layers that have it are not known")
    return config | ({"quantization_config": {"quant_method": "gguf", "types": types}} if types else {})


def _rope(name: str, metadata: Metadata, tensors: Mapping[str, Tensor], head_dim: int) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": metadata.number(f"{name}.rope.freq_base", 10000.0)}
    if FREQUENCIES in tensors:
        return rope | {"rope_type": "factors", "factors": _floats(FREQUENCIES, tensors[FREQUENCIES], head_dim // 2)}
    key = f"{name}.rope.scaling"
    factor = f"{key}.factor" if f"{key}.factor" in metadata else f"{name}.rope.scale_linear"  # as old files have it
    # A factor alone is a linear one, and 0 stands for none.
    kind = metadata.text(f"{key}.type", "linear" if metadata.get(factor) else "none")
    if kind == "none":
        return rope | {"rope_type": "default"}
    if kind not in ("linear", "yarn"):
        raise metadata.error(f"{key}.type", "one of none, linear, yarn")
    rope |= {"rope_type": kind, "factor": metadata.number(factor)}
    return rope if kind == "linear" else rope | _yarn(metadata, key, rope["factor"])


def _yarn(metadata: Metadata, key: str, factor: float) -> dict[str, Any]:
    """Returns the rest of YaRN's scaling. In files, the factor of attention multiplies the one that follows from the
    scaling; in config.json it replaces that one."""
    optional = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
    rope: dict[str, Any] = {
        ours: metadata.number(f"{key}.{theirs}") for ours, theirs in optional.items() if f"{key}.{theirs}" in metadata}
    rope["original_max_position_embeddings"] = metadata.integer(f"{key}.original_context_length", least=2)
    stretch, of_all = math.log(max(factor, 1.0)), f"{key}.yarn_log_multiplier"
    amplitude = 0.1 * stretch + 1.0
    if metadata.get(of_all):
        amplitude /= 0.1 * metadata.number(of_all) * stretch + 1.0
    return rope | {"attention_factor": amplitude * metadata.number(f"{key}.attn_factor", 1.0)}


def _floats(name: str, tensor: Tensor, length: int) -> list[float]:
    if tensor.kind != "F32" or tensor.shape != (length,):
        raise GgufError(tensor.path, f"{name}: {tensor.kind} of shape {list(tensor.shape)}, expected F32 of [{length}]")
    with tensor.path.open("rb") as file:
        file.seek(tensor.offset)
        return list(struct.unpack(f"<{length}f", file.read(GGML_TYPES["F32"].row_bytes(length))))


def generation_config(metadata: Metadata, tokens: list[str]) -> dict[str, Any]:
    """Returns the content of generation_config.json: the tokens that end an answer. Raises GgufError."""
    given = {metadata.integer(key, most=len(tokens) - 1) for key in EOS_KEYS if key in metadata}
    ends = given | {token_id for token_id, token in enumerate(tokens) if token in END_OF_TURN}
    return {"eos_token_id": sorted(ends)} if ends else {}


def files_of_model(path: Path, metadata: Metadata) -> list[Path]:
    """Returns the files that a model is split into, of which `path` is any. Raises GgufError if one is missing."""
    count = metadata.integer("split.count", 1, most=9999) or 1
    if count == 1:
        return [path]
    stem, _, rest = path.name.rpartition("-of-")
    if rest != f"{count:05}.gguf" or not stem[-5:].isdecimal() or stem[-6:-5] != "-":
        raise GgufError(path, f"split.count: the model has {count} files, whose names are to end with "
                              f"-00001-of-{count:05}.gguf and so on")
    paths = [path.with_name(f"{stem[:-5]}{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [each.name for each in paths if not each.is_file()]
    if missing:
        raise GgufError(path, f"the model has {count} files, and {', '.join(missing[:3])} "
                              f"{'is' if len(missing) == 1 else 'are'} not beside it")
    return paths
