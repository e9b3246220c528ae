"""Configurations of models, without their weights."""

import json
from pathlib import Path
from typing import Any

LLAMA_13B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 5120,
    "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 40,
    "max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "float16"}
OPT_13B: dict[str, Any] = {
    "architectures": ["OPTForCausalLM"], "model_type": "opt", "vocab_size": 50272, "hidden_size": 5120,
    "word_embed_proj_dim": 5120, "ffn_dim": 20480, "num_hidden_layers": 40, "num_attention_heads": 40,
    "max_position_embeddings": 2048, "do_layer_norm_before": True, "torch_dtype": "float16"}
LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
MIXTRAL: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 32768, "torch_dtype": "bfloat16"}


def write(folder: Path, keys: dict[str, Any], **others: Any) -> Path:
    """Writes a config.json alone, and returns its folder."""
    (folder / "config.json").write_text(json.dumps(keys | others))
    return folder
