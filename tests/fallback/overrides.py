"""What the tiny configurations of classes need beside sizes."""

from typing import Any

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
EXPERTS = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2}
SHARING = {"num_hidden_layers": 4, "layer_types": [SLIDING, FULL] * 2, "num_kv_shared_layers": 2}
HEADS = {"head_dim": 16, "num_key_value_heads": 2}

OVERRIDES: dict[str, dict[str, Any]] = {
    "BambaForCausalLM": {"attn_layer_indices": [1]},
    "BigBirdForCausalLM": {"attention_type": "original_full"},
    "BltForCausalLM": {"encoder_hash_byte_group_vocab": 160},
    "CohereCompassForCausalLM": {"rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 10000.0}}},
    "DbrxForCausalLM": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}, "ffn_config": {"hidden_size": 64}},
    "DeepseekV2ForCausalLM": EXPERTS,
    "Dots1ForCausalLM": EXPERTS | {"first_k_dense_replace": 1},
    "Dots3NoteForCausalLM": {"head_dim": 32},
    "FalconH1ForCausalLM": {"mamba_d_ssm": 128},
    "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]], "window_size": 20},
    "Gemma3nForCausalLM": SHARING,
    "GraniteMoeHybridForCausalLM": {"layer_types": [LINEAR, FULL]},
    "HunYuanDenseV1ForCausalLM": HEADS,
    "HunYuanMoEV1ForCausalLM": HEADS,
    "JambaForCausalLM": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "Lfm2MoeForCausalLM": {"layer_types": ["conv", FULL], "num_dense_layers": 1},
    "Mamba2ForCausalLM": {"head_dim": 32, "n_groups": 2},
    "MinistralForCausalLM": HEADS,
    "MoshiForCausalLM": {"sliding_window": 256},
    "NemotronForCausalLM": HEADS,
    "Qwen4ExpForCausalLM": {
        "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 16,
        "indexer_compress_ratio": 4},
    "ReformerModelWithLMHead": {
        "attn_layers": ["local", "lsh"], "attention_head_size": 16, "axial_pos_shape": [16, 16],
        "axial_pos_embds_dim": [32, 32], "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8,
        "num_buckets": 4},
    "XLMWithLMHeadModel": {"causal": True},
    "XmodForCausalLM": {"languages": ["en_XX"], "default_language": "en_XX"},
    "ZambaForCausalLM": {"layers_block_type": [LINEAR, "hybrid", "hybrid"], "num_hidden_layers": 3},
    "Zamba2ForCausalLM": {"layers_block_type": [LINEAR, "hybrid", "hybrid"], "num_hidden_layers": 3},
    "ZayaForCausalLM": {"num_experts_per_tok": 1},
    "xLSTMForCausalLM": {"hidden_size": 128},
}
