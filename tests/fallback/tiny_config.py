"""Configurations of transformers' classes, made small by the names of their sizes."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig

from tests.fallback.overrides import OVERRIDES

VOCAB = 160
SIZES = {name: size for size, names in {
    VOCAB: "vocab_size vocab_size_per_layer_input",
    64: "hidden_size n_embd d_model embedding_size embedding_dim embed_dim emb_dim dim_model projection_dim",
    96: "intermediate_size ffn_dim n_inner d_ff d_inner dim_ff ffn_hidden_size decoder_ffn_dim encoder_ffn_dim "
        "feed_forward_size",
    32: "moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size image_size "
        "router_hidden_size hidden_size_per_layer_input linear_key_head_dim linear_value_head_dim mamba_d_head",
    256: "max_position_embeddings n_positions max_seq_len max_sequence_length",
    16: "head_dim attention_head_dim rotary_dim q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim "
        "index_head_dim index_n_heads swa_head_dim patch_size mamba_d_state state_size",
    20: "sliding_window sliding_window_size attention_chunk_size index_topk",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads num_experts "
       "num_local_experts n_routed_experts num_router_experts mamba_n_heads linear_num_value_heads "
       "swa_num_attention_heads",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers depth num_key_value_heads "
       "num_experts_per_tok linear_num_key_heads swa_num_key_value_heads",
    1: "n_group topk_group first_k_dense_replace n_shared_experts pad_token_id mamba_n_groups",
    0: "bos_token_id",
}.items() for name in names.split()} | {"eos_token_id": 2, "is_decoder": True}
COUNTS = ("num_hidden_layers", "num_layers", "n_layer")
KINDS = ("layer_types", "mlp_layer_types", "layers_block_type", "block_types", "indexer_types")
"""The keys that say of what kind each layer is."""


def tiny_config(name: str, config_class: type[PreTrainedConfig]) -> PreTrainedConfig:
    """Returns the tiny configuration of a class of models: the defaults of its configuration, sizes apart, with a layer
    of each kind, and what OVERRIDES has for the class."""
    return _tiny(config_class, OVERRIDES.get(name, {}))


def _tiny(config_class: type[PreTrainedConfig], own: Mapping[str, Any]) -> PreTrainedConfig:
    usual = _usual(config_class)
    defaults = {field.name: field.default for field in fields(config_class)}
    sizes = {name: SIZES[name] for name in defaults.keys() & SIZES.keys() if defaults[name] is not None}
    if "kv_lora_rank" in sizes:          # whose keys and values are made for each head
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    parts = {name: _tiny(type(part), own.get(name, {})).to_dict() for name in config_class.sub_configs
             if isinstance(part := getattr(usual, name, None), PreTrainedConfig)}
    return config_class(**sizes | _kinds(usual, defaults.keys()) | own | parts)


def _usual(config_class: type[PreTrainedConfig]) -> PreTrainedConfig | None:
    """Returns the configuration of defaults; None where they contradict each other."""
    try:
        return config_class()
    except (StrictDataclassError, ValueError):
        return None


def _kinds(usual: PreTrainedConfig | None, names: Collection[str]) -> dict[str, Any]:
    """Returns keys with which there is a layer of each kind, and two at least."""
    kinds = {name: list(dict.fromkeys(value)) for name in KINDS
             if name in names and isinstance(value := getattr(usual, name, None), list)}
    if not kinds:
        return {}
    number = max(2, *map(len, kinds.values()))
    return {name: (its + its[-1:] * number)[:number] for name, its in kinds.items()} | {
        name: number for name in COUNTS if name in names}
