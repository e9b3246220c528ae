"""DeepSeek's families and those of their form: latent attention, shared experts beside those that the router chooses,
and dense first blocks. Layers beyond `num_hidden_layers`, which predict further tokens, are not read."""

import math
from dataclasses import replace

from penstock.kernels.route.form import RouteForm, Scoring
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.mixtures import checked_groups, sigmoid_route, top_k, with_shared
from penstock.shard.models.families.usual import MAX_HEAD_DIM, Usual
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import LatentConfig, NormConfig

MAX_RANK = 1 << 16
LATENT_EPS = 1e-6                        # which no key says
COUNT = "n_routed_experts"
CHOICE_BIAS = "mlp.gate.e_score_correction_bias"


def deepseek_v2(keys: Keys) -> ModelConfig:
    """Experts score by a softmax."""
    keys.expect("scoring_func", "softmax")
    keys.expect("norm_topk_prob", False)
    method = keys.get("topk_method")
    if method not in ("greedy", "group_limited_greedy"):
        raise keys.error("topk_method", "greedy or group_limited_greedy")
    route = RouteForm(top_k(keys, COUNT), Scoring.SOFTMAX, scale=keys.number("routed_scaling_factor"))
    if method != "greedy":
        route = replace(route, num_groups=keys.integer("n_group"), top_groups=keys.integer("topk_group"))
    config = _with_latents(replace(_usual(keys, has_choice_bias=False), is_interleaved=True), keys)
    keys.expect("moe_layer_freq", 1)
    return with_shared(config, keys, checked_groups(keys, route, COUNT, "n_group"))


def deepseek_v3(keys: Keys) -> ModelConfig:
    """Experts score by sigmoids, to which a bias is added for the choice, and come from the best groups."""
    keys.expect("topk_method", "noaux_tc")
    return _with_sigmoids(keys)


def glm4_moe_lite(keys: Keys) -> ModelConfig:
    """The same, but that `mlp_layer_types` says which blocks have experts; where it is absent all but the first do."""
    config = _with_sigmoids(keys)
    kinds = keys.get("mlp_layer_types")
    if kinds is None:
        kinds = ["dense"] + ["sparse"] * (config.num_layers - 1)
    if not isinstance(kinds, list) or len(kinds) != config.num_layers or {*kinds} - {"dense", "sparse"}:
        raise keys.error("mlp_layer_types", f"a list of {config.num_layers}, each dense or sparse")
    return replace(config, plain_blocks=frozenset(block for block, kind in enumerate(kinds) if kind == "dense"))


def youtu(keys: Keys) -> ModelConfig:
    """Latent attention without experts."""
    family = replace(_usual(keys, has_choice_bias=False), is_interleaved=keys.switch("rope_interleave"))
    return _with_latents(family, keys)


def _with_sigmoids(keys: Keys) -> ModelConfig:
    keys.expect("scoring_func", "sigmoid")
    family = replace(_usual(keys, has_choice_bias=True), is_interleaved=keys.switch("rope_interleave"))
    keys.expect("moe_layer_freq", 1)
    return with_shared(_with_latents(family, keys), keys, sigmoid_route(keys))


def _usual(keys: Keys, has_choice_bias: bool) -> Usual:
    """Returns the part of the family that others have, too. Each head has keys and values of its own."""
    has_query_latent = keys.get("q_lora_rank") is not None
    block = BlockNames(q="self_attn.q_b_proj" if has_query_latent else "self_attn.q_proj",
                       choice_bias=CHOICE_BIAS if has_choice_bias else "")
    return Usual(kv_heads="", qkv_bias="attention_bias", output_bias="attention_bias",
                 names=TensorNames(block=block))


def _with_latents(family: Usual, keys: Keys) -> ModelConfig:
    """Returns a config whose heads are as large as the larger of what k and v have: so the cache holds both."""
    form = LatentConfig(
        keys.integer("q_lora_rank", most=MAX_RANK) if keys.get("q_lora_rank") is not None else 0,
        keys.integer("kv_lora_rank", most=MAX_RANK),
        *(keys.integer(key, most=MAX_HEAD_DIM) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")))
    keys.expect("mlp_bias", False)
    config = family(keys.including({"head_dim": form.turned_dim}))
    scored = form.plain_dim + form.turned_dim
    attention = replace(config.attention, head_dim=max(scored, form.value_dim), latent=form,
                        scale=scored**-0.5 * _stretch(keys) ** 2)
    return replace(config, attention=attention, head_norm=NormConfig(LATENT_EPS))


def _stretch(keys: Keys) -> float:
    """Returns the factor of q, and of k, in contexts that YaRN makes longer."""
    rope = keys.section("rope_scaling", "rope_parameters")
    if rope.get("mscale_all_dim") in (None, 0):
        return 1.0
    return 0.1 * rope.number("mscale_all_dim") * math.log(max(rope.number("factor"), 1.0)) + 1.0
