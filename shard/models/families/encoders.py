"""Encoders: tokens of a text all see one another, and there is no token after it."""

from dataclasses import fields, replace
from typing import Any

import torch

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.encoder_config import EncoderConfig, EncoderNames, FarConfig
from penstock.shard.models.families.llama import LLAMA, rotating_by_kind
from penstock.shard.models.families.usual import FULL, MAX_LAYERS, SLIDING, Positions, Usual, windows_by_kind
from penstock.shard.models.keys import Keys, is_integer
from penstock.shard.models.names import BlockNames
from penstock.shard.models.parts import Qkv
from penstock.shard.models.rotary_scaling import MAX_CONTEXT, THETA

BERT_BLOCK = BlockNames(
    q="attention.self.query", k="attention.self.key", v="attention.self.value",
    attention_output="attention.output.dense", attention_norm="attention.output.LayerNorm", up="intermediate.dense",
    down="output.dense", feed_forward_norm="output.LayerNorm")
BERT_NAMES = EncoderNames(
    embedding="embeddings.word_embeddings", positions="embeddings.position_embeddings",
    token_types="embeddings.token_type_embeddings", embedding_norm="embeddings.LayerNorm",
    blocks="encoder.layer.{index}", block=BERT_BLOCK)
BERT = Usual(
    names=BERT_NAMES, norm_eps="layer_norm_eps", is_centred=True, norm_bias=True, default_activation="gelu",
    is_gated=False, qkv_bias=True, output_bias=True, mlp_bias=True, kv_heads="", positions=Positions.LEARNED)
DISTILBERT = replace(
    BERT, aliases={"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
                   "intermediate_size": "hidden_dim", "hidden_act": "activation"},
    names=replace(BERT_NAMES, token_types="", blocks="transformer.layer.{index}", block=BlockNames(
        q="attention.q_lin", k="attention.k_lin", v="attention.v_lin", attention_output="attention.out_lin",
        attention_norm="sa_layer_norm", up="ffn.lin1", down="ffn.lin2", feed_forward_norm="output_layer_norm")))
ROTATED = replace(BERT, positions=Positions.ROTARY, is_gated=True, qkv=Qkv.STACKED)
NOMIC_KEYS = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
    "rope_theta": "rotary_emb_base"}
"""The names of these keys in the files of its authors."""
NOMIC = replace(
    ROTATED, aliases=NOMIC_KEYS, default_activation="silu", qkv_bias=False, output_bias=False, mlp_bias=False,
    names=EncoderNames(
        embedding="embeddings.word_embeddings", token_types="embeddings.token_type_embeddings",
        embedding_norm="emb_ln", blocks="encoder.layers.{index}", block=BlockNames(
            qkv="attn.Wqkv", attention_output="attn.out_proj", attention_norm="norm1", gate="mlp.fc12",
            up="mlp.fc11", down="mlp.fc2", feed_forward_norm="norm2")))
GTE = replace(ROTATED, names=replace(BERT_NAMES, positions="", block=BlockNames(
    qkv="attention.qkv_proj", attention_output="attention.o_proj", attention_norm="attn_ln",
    gate_up="mlp.up_gate_proj", down="mlp.down_proj", feed_forward_norm="mlp_ln")))
MPNET = replace(BERT, names=replace(
    BERT_NAMES, token_types="", distances="encoder.relative_attention_bias", block=replace(
        BERT_BLOCK, q="attention.attn.q", k="attention.attn.k", v="attention.attn.v",
        attention_output="attention.attn.o", attention_norm="attention.LayerNorm")))
DEBERTA_NAMES = replace(BERT_NAMES, distances="encoder.rel_embeddings", block=replace(
    BERT_BLOCK, q="attention.self.query_proj", k="attention.self.key_proj", v="attention.self.value_proj"))
MODERNBERT = replace(
    ROTATED, norm_eps="norm_eps", activation="hidden_activation", qkv_bias="attention_bias",
    output_bias="attention_bias", mlp_bias="mlp_bias", windows=windows_by_kind(), names=EncoderNames(
        embedding="embeddings.tok_embeddings", embedding_norm="embeddings.norm", norm="final_norm",
        blocks="layers.{index}", block=BlockNames(
            attention_norm="attn_norm", qkv="attn.Wqkv", attention_output="attn.Wo", feed_forward_norm="mlp_norm",
            gate_up="mlp.Wi", down="mlp.Wo")))
EUROBERT = replace(LLAMA, names=EncoderNames(embedding="embed_tokens", norm="norm", blocks="layers.{index}"))
EPS = 1e-12                              # of DistilBERT's norms, which no key says
MAX_TYPES = 1 << 16
MPNET_DISTANCES = 32                     # the classes that MPNet computes, whatever the key says
LOCAL_THETA = "rope_local_base_freq"     # of layers with a window
MPNET_PADDING = 1                        # the id, whatever the key says


def bert(keys: Keys) -> EncoderConfig:
    keys.expect("position_embedding_type", "absolute")
    keys.expect("is_decoder", False)
    keys.expect("add_cross_attention", False)
    return encoder(BERT, keys, num_token_types=_token_types(keys))


def roberta(keys: Keys) -> EncoderConfig:
    """A text's first token has the position behind that of padding."""
    keys.expect("position_embedding_type", "absolute")
    keys.expect("is_decoder", False)
    return _behind_padding(BERT, keys, keys.integer("pad_token_id", least=0), num_token_types=_token_types(keys))


def distilbert(keys: Keys) -> EncoderConfig:
    return encoder(DISTILBERT, keys.including({"layer_norm_eps": EPS}))


def nomic(keys: Keys) -> EncoderConfig:
    """The files of its authors have switches, and say up to where it was trained: behind that all angles change."""
    for key, value in (("activation_function", "swiglu"), ("prenorm", False), ("qkv_proj_bias", False),
                       ("mlp_fc1_bias", False), ("mlp_fc2_bias", False), ("rotary_emb_fraction", 1.0),
                       ("rotary_emb_interleaved", False), ("rotary_emb_scale_base", None), ("use_rms_norm", False),
                       ("parallel_block", False), ("num_experts", 0)):
        if keys.get(key) is not None:
            keys.expect(key, value)
    if keys.get("max_trained_positions") is not None:
        length = keys.renamed(NOMIC_KEYS).integer("max_position_embeddings", most=MAX_CONTEXT)
        keys = keys.including({"max_position_embeddings": min(length, keys.integer("max_trained_positions"))})
    return encoder(NOMIC, keys, num_token_types=_token_types(keys))


def gte(keys: Keys) -> EncoderConfig:
    """The files of its authors have switches, and a scaling of their own."""
    for key, value in (("position_embedding_type", "rope"), ("layer_norm_type", "layer_norm"), ("pack_qkv", True),
                       ("logn_attention_scale", False)):
        keys.expect(key, value)
    own = {"num_token_types": keys.integer("type_vocab_size", least=0, most=MAX_TYPES), "is_up_first": True,
           "has_inner_bias": False}
    scaling = keys.section("rope_scaling")
    if scaling.get("type") != "ntk":
        return encoder(GTE, keys, **own)
    scaling.expect("mixed_b", None)
    factor = scaling.number("factor")
    config = encoder(GTE, keys.including({"rope_scaling": None, THETA: keys.number(THETA) * factor}), **own)
    return _stretched(config, factor ** (2 / config.attention.head_dim))


def mpnet(keys: Keys) -> EncoderConfig:
    """Scores get a number for the class of the distance of two tokens."""
    keys.expect("relative_attention_num_buckets", MPNET_DISTANCES)
    return _behind_padding(MPNET, keys, MPNET_PADDING, num_distances=MPNET_DISTANCES)


def deberta(keys: Keys) -> EncoderConfig:
    """Keys and queries are made of the distances of tokens, too, as in versions 2 and 3."""
    for key, value in (("relative_attention", True), ("share_att_key", True), ("conv_kernel_size", 0),
                       ("embedding_size", keys.get("hidden_size"))):
        keys.expect(key, value)
    kinds = keys.get("pos_att_type")
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or {str(kind).strip() for kind in kinds} != {"c2p", "p2c"}:
        raise keys.error("pos_att_type", "c2p and p2c, the only ones supported together")
    longest = keys.get("max_relative_positions")
    longest = longest if is_integer(longest, 1) else keys.integer("max_position_embeddings", most=MAX_CONTEXT)
    buckets = keys.get("position_buckets")
    far = FarConfig(longest, buckets if is_integer(buckets, 4) else 0)
    types = keys.integer("type_vocab_size", least=0, most=MAX_TYPES)
    is_normed = "layer_norm" in str(keys.get("norm_rel_ebd")).lower().split("|")
    has_positions = keys.switch("position_biased_input", True)
    names = replace(
        DEBERTA_NAMES, distances_norm="encoder.LayerNorm" if is_normed else "",
        positions=BERT_NAMES.positions if has_positions else "")
    config = encoder(replace(BERT, names=names), keys, num_token_types=types, far=far)
    scale = (3 * config.attention.head_dim) ** -0.5  # of three products
    return replace(config, attention=replace(config.attention, scale=scale))


def modernbert(keys: Keys) -> EncoderConfig:
    """Most layers have a window, and a rotation of their own."""
    step = keys.integer("global_attn_every_n_layers", 3)
    kinds = [SLIDING if layer % step else FULL for layer in range(keys.integer("num_hidden_layers", most=MAX_LAYERS))]
    keys = keys.including({
        "layer_types": keys.get("layer_types", kinds), "sliding_window": keys.integer("local_attention", least=2) // 2,
        THETA: keys.number("global_rope_theta", keys.number(THETA)),
        LOCAL_THETA: keys.number("local_rope_theta", keys.number(LOCAL_THETA))})
    family = replace(MODERNBERT, norm_bias=keys.switch("norm_bias"))
    config = rotating_by_kind(family, keys, pattern=0, local_theta=LOCAL_THETA)
    return as_encoder(config, is_post_norm=False, is_first_normed=False)


def eurobert(keys: Keys) -> EncoderConfig:
    """Llama's blocks, without its mask."""
    return encoder(EUROBERT, keys, is_post_norm=False)


def encoder(family: Usual, keys: Keys, **own: Any) -> EncoderConfig:
    """Returns the config of a family's encoder, with what it has beside other models."""
    return as_encoder(family(keys), **own)


def as_encoder(config: ModelConfig, **own: Any) -> EncoderConfig:
    config = replace(config, attention=replace(config.attention, is_causal=False))
    return EncoderConfig(**{field.name: getattr(config, field.name) for field in fields(config)}, **own)


def _stretched(config: EncoderConfig, factor: float) -> EncoderConfig:
    """Returns the config with rotations that turn more slowly by a factor."""
    attention = config.attention
    rotations = tuple(
        rotation and replace(rotation, frequencies=tuple((torch.tensor(rotation.frequencies) / factor).tolist()))
        for rotation in attention.rotations)
    return replace(config, attention=replace(attention, rotations=rotations))


def _behind_padding(family: Usual, keys: Keys, padding: int, **own: Any) -> EncoderConfig:
    """Returns the config of an encoder with learned positions, those of texts behind that of padding."""
    length = keys.integer("max_position_embeddings", least=padding + 2) - padding - 1
    return encoder(replace(family, first_position=padding + 1), keys.including({"max_position_embeddings": length}),
                   **own)


def _token_types(keys: Keys) -> int:
    return keys.integer("type_vocab_size", most=MAX_TYPES)
