"""Mixtures of experts whose attention is that of a dense family."""

from dataclasses import replace

from penstock.kernels.activation import Activation
from penstock.kernels.route.form import RouteForm, Scoring
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.llama import ERNIE, LLAMA, OLMO2, QWEN2, QWEN3, granite
from penstock.shard.models.families.usual import Usual, read_activation, window_everywhere, windows_by_kind
from penstock.shard.models.keys import Keys, is_integer
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import ExpertsConfig, ExpertsLayout, HeadNorm
from penstock.shard.models.rotary_scaling import SHARE

MAX_EXPERTS = 4096
MIXTRAL_NAMES = TensorNames(block=BlockNames(
    router="block_sparse_moe.gate", expert_gate="block_sparse_moe.experts.{expert}.w1",
    expert_up="block_sparse_moe.experts.{expert}.w3", expert_down="block_sparse_moe.experts.{expert}.w2"))
QWEN_NAMES = TensorNames(block=BlockNames(
    shared_gate="mlp.shared_expert.gate_proj", shared_up="mlp.shared_expert.up_proj",
    shared_down="mlp.shared_expert.down_proj"))
MIXTRAL = Usual(windows=window_everywhere, names=MIXTRAL_NAMES)
PHIMOE = replace(MIXTRAL, is_centred=True, norm_bias=True, qkv_bias="attention_bias", output_bias="attention_bias")
GRANITE_NAMES = TensorNames(block=BlockNames(
    router="block_sparse_moe.router.layer", expert_gate="block_sparse_moe.input_linear",
    expert_up="block_sparse_moe.input_linear", expert_down="block_sparse_moe.output_linear",
    shared_gate="shared_mlp.input_linear", shared_up="shared_mlp.input_linear", shared_down="shared_mlp.output_linear"))
GPT_OSS = Usual(
    qkv_bias="attention_bias", output_bias="attention_bias", windows=windows_by_kind(2),
    names=TensorNames(block=BlockNames(
        sinks="self_attn.sinks", router="mlp.router", expert_gate="mlp.experts.gate_up_proj",
        expert_up="mlp.experts.gate_up_proj", expert_down="mlp.experts.down_proj")))
GPT_OSS_ROPE = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096}
"""Where no key says another one."""
OLMOE = Usual(head_norm=HeadNorm.WHOLE, qkv_bias="attention_bias", output_bias="attention_bias")
GLM4_MOE = Usual(qkv_bias="attention_bias", rotary_share=0.5, names=TensorNames(block=BlockNames(
    choice_bias="mlp.gate.e_score_correction_bias")))
SOLAR_OPEN = Usual(qkv_bias="attention_bias", names=GLM4_MOE.names)
MINIMAX_M2 = Usual(head_norm=HeadNorm.WHOLE, names=TensorNames(
    block=replace(MIXTRAL_NAMES.block, choice_bias="block_sparse_moe.e_score_correction_bias")))
ERNIE_MOE = replace(ERNIE, names=TensorNames(block=BlockNames(
    choice_bias="mlp.moe_statics.e_score_correction_bias")))


def mixtral(keys: Keys) -> ModelConfig:
    route = RouteForm(top_k(keys, "num_local_experts"), is_normalised=True)
    return with_experts(MIXTRAL(keys), keys, route, "num_local_experts", "intermediate_size")


def phimoe(keys: Keys) -> ModelConfig:
    """Its two experts are chosen one after the other, each weighed against those that are near."""
    jitter = keys.number("router_jitter_noise")
    route = RouteForm(top_k(keys, "num_local_experts"), Scoring.SPARSE_MIXER, jitter=jitter)
    config = replace(PHIMOE, head_bias=keys.switch("lm_head_bias"))(keys)
    return with_experts(config, keys, route, "num_local_experts", "intermediate_size")


def olmoe(keys: Keys) -> ModelConfig:
    config = OLMOE(keys)
    clip = 0.0 if keys.get("clip_qkv") is None else keys.number("clip_qkv")
    config = replace(config, attention=replace(config.attention, clip=clip))
    return with_experts(config, keys, _softmax(keys), "num_experts", "intermediate_size")


def qwen2_moe(keys: Keys) -> ModelConfig:
    """All tokens have a shared expert, by a weight of its own."""
    config = replace(QWEN2, qkv_bias=keys.switch("qkv_bias"), names=QWEN_NAMES)(keys)
    made = with_experts(config, keys, _softmax(keys), "num_experts", "moe_intermediate_size")
    assert made.experts is not None
    shared = replace(made.experts, shared_size=keys.integer("shared_expert_intermediate_size"), is_shared_gated=True)
    return of_sparse_blocks(replace(made, experts=shared), keys)


def qwen3_moe(keys: Keys) -> ModelConfig:
    keys = keys.renamed({"num_experts": "num_local_experts"})
    family = replace(QWEN3, windows=window_everywhere) if keys.switch("use_sliding_window") else replace(
        QWEN3, windows=LLAMA.windows)
    config = with_experts(family(keys), keys, _softmax(keys), "num_experts", "moe_intermediate_size")
    return of_sparse_blocks(config, keys)


def glm4_moe(keys: Keys) -> ModelConfig:
    """Experts score by sigmoids, and all tokens have a shared one; the first blocks have none."""
    family = replace(GLM4_MOE, head_norm=HeadNorm.SHARED if keys.switch("use_qk_norm") else HeadNorm.NONE)
    return with_shared(family(keys), keys, sigmoid_route(keys))


def dots1(keys: Keys) -> ModelConfig:
    """Qwen3's attention, and the same experts."""
    windows = {"use_sliding_window": True, "max_window_layers": keys.get("max_window_layers")}
    family = replace(QWEN3, names=GLM4_MOE.names)
    return with_shared(family(keys.including(windows)), keys, sigmoid_route(keys))


def solar_open(keys: Keys) -> ModelConfig:
    """Llama's attention, and the same experts in all blocks."""
    keys.expect("use_qk_norm", False)
    keys.expect("first_k_dense_replace", 0)
    config = SOLAR_OPEN(keys.including({"intermediate_size": keys.integer("moe_intermediate_size")}))
    return with_shared(config, keys, sigmoid_route(keys))


def minimax_m2(keys: Keys) -> ModelConfig:
    """Mixtral's experts, which score by sigmoids; older files say how many of a head's dimensions turn."""
    for key, value in (("use_qk_norm", True), ("qk_norm_type", "per_layer"), ("scoring_func", "sigmoid"),
                       ("use_routing_bias", True), ("shared_intermediate_size", 0)):
        keys.expect(key, value)
    if any(kind != 1 for kind in keys.get("attn_type_list") or ()):
        raise keys.error("attn_type_list", "1 for each layer")
    if keys.get("rotary_dim") is not None and keys.get(SHARE) is None:
        keys = keys.including({SHARE: keys.integer("rotary_dim") / keys.integer("head_dim")})
    route = RouteForm(top_k(keys, "num_local_experts"), Scoring.SIGMOID, is_normalised=True)
    config = with_experts(MINIMAX_M2(keys), keys, route, "num_local_experts", "intermediate_size")
    assert config.experts is not None
    return replace(config, experts=replace(config.experts, has_choice_bias=True))


def ernie_moe(keys: Keys) -> ModelConfig:
    """A bias is added to the softmax for the choice; some of the first and last blocks have no experts."""
    keys = keys.renamed({"num_experts_per_tok": "moe_k"})
    route = RouteForm(top_k(keys, "moe_num_experts"), is_normalised=True)
    config = with_experts(ERNIE_MOE(keys), keys, route, "moe_num_experts", "moe_intermediate_size")
    assert config.experts is not None
    shared = keys.integer("moe_num_shared_experts", least=0) * config.experts.inner_size
    start, interval = keys.integer("moe_layer_start_index", least=0), keys.integer("moe_layer_interval")
    last = keys.get("moe_layer_end_index")
    if not is_integer(last, -1):
        raise keys.error("moe_layer_end_index", "a whole number of at least -1")
    end = config.num_layers - 1 if last == -1 else last
    plain = (block for block in range(config.num_layers)
             if (block + 1) % interval or not start <= block <= end)
    return replace(config, experts=replace(config.experts, shared_size=shared, has_choice_bias=True),
                   plain_blocks=frozenset(plain))


def flex_olmo(keys: Keys) -> ModelConfig:
    return with_experts(OLMO2(keys), keys, _softmax(keys), "num_experts", "intermediate_size")


def granite_moe(keys: Keys) -> ModelConfig:
    """Some have an expert that all tokens have."""
    route = RouteForm(top_k(keys, "num_local_experts"), is_normalised=True)
    config = with_experts(granite(keys), keys, route, "num_local_experts", "intermediate_size")
    assert config.experts is not None
    shared = keys.integer("shared_intermediate_size", 0, least=0)
    return replace(config, names=GRANITE_NAMES, experts=replace(
        config.experts, layout=ExpertsLayout.STACKED, shared_size=shared))


def gpt_oss(keys: Keys) -> ModelConfig:
    """Heads have sinks, experts biases, and gates bounds; quantised files have rows as others, plain ones not."""
    keys.expect("swiglu_limit", 7.0)
    keys.expect("swiglu_alpha", 1.702)
    if not keys.section("rope_scaling", "rope_parameters").names:
        keys = keys.including({"rope_parameters": GPT_OSS_ROPE})
    config = GPT_OSS(keys)
    route = RouteForm(top_k(keys, "num_local_experts"), is_normalised=True)
    is_plain = keys.get("quantization_config") is None
    experts = ExpertsConfig(
        keys.integer("num_local_experts", most=MAX_EXPERTS), keys.integer("intermediate_size"), route,
        Activation.CLAMPED_SWIGLU, ExpertsLayout.TRANSPOSED if is_plain else ExpertsLayout.ALTERNATING, has_bias=True)
    return replace(config, attention=replace(config.attention, has_sinks=True), experts=experts)


def with_experts(config: ModelConfig, keys: Keys, route: RouteForm, count: str, inner: str) -> ModelConfig:
    """Returns the config with a mixture of experts. count, inner: the keys of their number and of their inner size"""
    experts = ExpertsConfig(
        keys.integer(count, most=MAX_EXPERTS), keys.integer(inner), route, read_activation(keys, "hidden_act", "silu"))
    return replace(config, experts=experts)


def with_shared(config: ModelConfig, keys: Keys, route: RouteForm) -> ModelConfig:
    """Returns the config with experts of DeepSeek's keys: all tokens have some of them, and the first blocks none."""
    config = with_experts(config, keys, route, "n_routed_experts", "moe_intermediate_size")
    assert config.experts is not None
    size = keys.integer("n_shared_experts", least=0) * config.experts.inner_size
    plain = min(keys.integer("first_k_dense_replace", 0, least=0), config.num_layers)
    experts = replace(config.experts, shared_size=size, has_choice_bias=bool(config.names.block.choice_bias))
    return replace(config, experts=experts, plain_blocks=frozenset(range(plain)))


def sigmoid_route(keys: Keys) -> RouteForm:
    """Reads a choice by sigmoids from the groups with the best pairs."""
    route = RouteForm(
        top_k(keys, "n_routed_experts"), Scoring.SIGMOID, keys.switch("norm_topk_prob"),
        keys.number("routed_scaling_factor"), num_groups=keys.integer("n_group"),
        top_groups=keys.integer("topk_group"), group_best=2)
    return checked_groups(keys, route, "n_routed_experts", "n_group")


def _softmax(keys: Keys) -> RouteForm:
    return RouteForm(top_k(keys, "num_experts"), is_normalised=keys.switch("norm_topk_prob"))


def top_k(keys: Keys, count: str) -> int:
    """Returns how many experts a token has. count: the key of their number"""
    return keys.integer("num_experts_per_tok", most=keys.integer(count, most=MAX_EXPERTS))


def checked_groups(keys: Keys, route: RouteForm, count: str, groups: str) -> RouteForm:
    """Returns the form if its groups fit the experts; one group is none."""
    if route.num_groups == 1:
        return replace(route, top_groups=1, group_best=1)
    size, rest = divmod(keys.integer(count, most=MAX_EXPERTS), route.num_groups)
    if rest or size < route.group_best or route.top_groups > route.num_groups or route.top_groups * size < route.top_k:
        raise keys.error(groups, f"groups of as many experts each, of which topk_group = {route.top_groups} have "
                                 f"{route.top_k} to choose from")
    return route


def of_sparse_blocks(config: ModelConfig, keys: Keys) -> ModelConfig:
    """Some blocks of Qwen's have no experts."""
    step, plain = keys.integer("decoder_sparse_step"), keys.get("mlp_only_layers") or []
    if not isinstance(plain, list) or not all(is_integer(block, 0) for block in plain):
        raise keys.error("mlp_only_layers", "a list of numbers of layers")
    blocks = range(config.num_layers)
    return replace(config, plain_blocks=frozenset(
        block for block in blocks if block in plain or (block + 1) % step))
