"""GPT-2 and its heirs: layer norm, biases everywhere, no gate."""

from dataclasses import replace

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.usual import Positions, Usual
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import Qkv
from penstock.shard.models.rotary_scaling import Rotation
from penstock.shard.weights.format import Place

EPS = 1e-5                               # of OPT's norms, which no key says
GPT2_KEYS = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function"}
LAYER_NORMED = Usual(
    is_centred=True, norm_bias=True, is_gated=False, inner_multiple=4, qkv_bias=True, output_bias=True, mlp_bias=True,
    kv_heads="")
GPT2 = replace(
    LAYER_NORMED, aliases=GPT2_KEYS, qkv=Qkv.STACKED, positions=Positions.LEARNED, names=TensorNames(
        embedding="transformer.wte", positions="transformer.wpe", norm="transformer.ln_f",
        blocks="transformer.h.{index}", block=BlockNames(
            attention_norm="ln_1", qkv="attn.c_attn", attention_output="attn.c_proj", feed_forward_norm="ln_2",
            up="mlp.c_fc", down="mlp.c_proj")))
GPT_J = replace(
    LAYER_NORMED, aliases=GPT2_KEYS, qkv_bias=False, output_bias=False, is_interleaved=True,
    head_bias=True, is_parallel=True, names=TensorNames(
        embedding="transformer.wte", norm="transformer.ln_f", blocks="transformer.h.{index}", block=BlockNames(
            attention_norm="ln_1", q="attn.q_proj", k="attn.k_proj", v="attn.v_proj", attention_output="attn.out_proj",
            feed_forward_norm="", up="mlp.fc_in", down="mlp.fc_out")))
GPT_NEOX = replace(
    LAYER_NORMED, inner_multiple=0, qkv=Qkv.BY_HEAD, rotary_share=0.25, aliases={
        "rms_norm_eps": "layer_norm_eps", "rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    qkv_bias="attention_bias", output_bias="attention_bias", names=TensorNames(
        embedding="gpt_neox.embed_in", norm="gpt_neox.final_layer_norm", head="embed_out",
        blocks="gpt_neox.layers.{index}", block=BlockNames(
            qkv="attention.query_key_value", attention_output="attention.dense", up="mlp.dense_h_to_4h",
            down="mlp.dense_4h_to_h")))
OPT = replace(
    LAYER_NORMED, positions=Positions.LEARNED, first_position=2, qkv_bias="enable_bias", output_bias="enable_bias",
    mlp_bias="enable_bias",
    aliases={"hidden_act": "activation_function", "intermediate_size": "ffn_dim"}, names=TensorNames(
        embedding="model.decoder.embed_tokens", positions="model.decoder.embed_positions",
        norm="model.decoder.final_layer_norm", blocks="model.decoder.layers.{index}", block=BlockNames(
            attention_norm="self_attn_layer_norm", attention_output="self_attn.out_proj",
            feed_forward_norm="final_layer_norm", up="fc1", down="fc2")))


def gpt2(keys: Keys) -> ModelConfig:
    """Its linears are stored with the inputs first."""
    _expect_usual_attention(keys)
    return replace(GPT2(keys), place=Place(is_transposed=True))


def gpt_bigcode(keys: Keys) -> ModelConfig:
    """All heads read one KV head, or each its own."""
    _expect_usual_attention(keys)
    if not keys.switch("multi_query"):
        return replace(GPT2, qkv=Qkv.BY_HEAD)(keys)
    config = GPT2(keys)
    return replace(config, attention=replace(config.attention, num_kv_heads=1))


def gpt_neox(keys: Keys) -> ModelConfig:
    family = replace(GPT_NEOX, is_parallel=keys.switch("use_parallel_residual"))
    return family(keys)


def gpt_j(keys: Keys) -> ModelConfig:
    """rotary_dim says how many dimensions of a head turn."""
    config = GPT_J(keys)
    head_dim, length = config.attention.head_dim, config.context_length
    size = keys.integer("rotary_dim", head_dim, least=2, most=head_dim)
    if size % 2:
        raise keys.error("rotary_dim", "an even size, for rotary embeddings turn pairs")
    rotations = (Rotation.plain(size, 10000.0, length),) * config.num_layers
    return replace(config, attention=replace(config.attention, rotations=rotations))


def opt(keys: Keys) -> ModelConfig:
    """The layout of all sizes but 350M."""
    keys.expect("do_layer_norm_before", True)
    keys.expect("_remove_final_layer_norm", False)
    keys.expect("layer_norm_elementwise_affine", True)
    keys.expect("word_embed_proj_dim", keys.get("hidden_size"))
    return OPT(keys.including({"rms_norm_eps": EPS}))


def _expect_usual_attention(keys: Keys) -> None:
    keys.expect("scale_attn_weights", True)
    keys.expect("scale_attn_by_inverse_layer_idx", False)
    keys.expect("add_cross_attention", False)
