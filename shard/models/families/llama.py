"""Llama, and the families that have its blocks: each half behind an RMS norm, added to what came in."""

from dataclasses import replace

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.usual import (
    FULL,
    SLIDING,
    Usual,
    read_kinds,
    window_everywhere,
    windows_by_kind,
)
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import EmbeddingConfig, HeadNorm, NormConfig, Qkv
from penstock.shard.models.rotary_scaling import THETA, Rotation

OLMO1_EPS = 1e-5

LLAMA = Usual(qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias")


def mistral_windows(keys: Keys, num_layers: int) -> tuple[int, ...]:
    keys.expect("layer_types", None)
    return window_everywhere(keys, num_layers)


def qwen_windows(keys: Keys, num_layers: int) -> tuple[int, ...]:
    window = window_everywhere(keys, 1)[0] if keys.switch("use_sliding_window") else 0
    if keys.get("layer_types") is None:
        first = keys.integer("max_window_layers", least=0)
        return tuple(window if layer >= first else 0 for layer in range(num_layers))
    kinds = read_kinds(keys, num_layers)
    if SLIDING in kinds and not window:
        raise keys.error("layer_types", f"no {SLIDING}, for sliding_window is null or use_sliding_window false")
    return tuple(window if kind == SLIDING else 0 for kind in kinds)


MISTRAL = Usual(windows=mistral_windows)
QWEN2 = Usual(qkv_bias=True, windows=qwen_windows)
QWEN3 = Usual(qkv_bias="attention_bias", output_bias="attention_bias", head_norm=HeadNorm.SHARED,
              windows=qwen_windows)
SEED_OSS = replace(LLAMA, output_bias="attention_out_bias")
ERNIE = replace(LLAMA, qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias", is_interleaved=True)
ARCEE = replace(LLAMA, is_gated=False)
HELIUM = replace(LLAMA, output_bias=False, is_interleaved=True)
INTERNLM3 = replace(LLAMA, qkv_bias="qkv_bias", output_bias="bias", mlp_bias="bias")
INTERNLM2 = replace(
    LLAMA, qkv_bias="bias", output_bias="bias", mlp_bias=False, qkv=Qkv.BY_KV_HEAD, names=TensorNames(
        embedding="model.tok_embeddings", head="output", block=BlockNames(
            attention_norm="attention_norm", qkv="attention.wqkv", attention_output="attention.wo",
            feed_forward_norm="ffn_norm", gate="feed_forward.w1", up="feed_forward.w3", down="feed_forward.w2")))
PHI3 = Usual(qkv=Qkv.STACKED, windows=window_everywhere, names=TensorNames(
    block=BlockNames(qkv="self_attn.qkv_proj", gate_up="mlp.gate_up_proj")))
GLM = Usual(qkv_bias="attention_bias", rotary_share=0.5, is_interleaved=True, names=TensorNames(
    block=BlockNames(gate_up="mlp.gate_up_proj")))
GLM4 = replace(GLM, names=TensorNames(block=BlockNames(
    gate_up="mlp.gate_up_proj", attention_post_norm="post_self_attn_layernorm",
    feed_forward_post_norm="post_mlp_layernorm")))
POST_NORMS = TensorNames(block=BlockNames(
    attention_norm="", attention_post_norm="post_attention_layernorm", feed_forward_norm="",
    feed_forward_post_norm="post_feedforward_layernorm"))
OLMO2 = Usual(qkv_bias="attention_bias", output_bias="attention_bias", head_norm=HeadNorm.WHOLE,
              names=POST_NORMS)


def smollm3(keys: Keys) -> ModelConfig:
    """Some layers don't rotate."""
    config = replace(LLAMA, windows=windows_by_kind())(keys)
    num_layers = config.num_layers
    rotates = keys.get("no_rope_layers")  # 1 for layers that rotate, whatever its name
    if rotates is None:
        interval = keys.integer("no_rope_layer_interval")
        rotates = [int((layer + 1) % interval != 0) for layer in range(num_layers)]
    if not isinstance(rotates, list) or len(rotates) != num_layers or any(each not in (0, 1) for each in rotates):
        raise keys.error("no_rope_layers", f"a list of {num_layers}, each 0 or 1")
    return rotating(config, [bool(each) for each in rotates])


def exaone4(keys: Keys) -> ModelConfig:
    """Layers without a window don't rotate, in models that have windows."""
    windows = windows_by_kind(4) if keys.get("sliding_window") is not None else windows_by_kind()
    config = Usual(head_norm=HeadNorm.SHARED, names=POST_NORMS, windows=windows)(keys)
    has_windows = any(config.attention.windows)
    return rotating(config, [bool(window) or not has_windows for window in config.attention.windows])


def olmo1(keys: Keys) -> ModelConfig:
    """Norms have no weights, and an eps that no key says."""
    config = Usual(qkv_bias="attention_bias", output_bias="attention_bias")(
        keys.including({"rms_norm_eps": OLMO1_EPS}))
    clip = 0.0 if keys.get("clip_qkv") is None else keys.number("clip_qkv")
    return replace(config, norm=NormConfig(OLMO1_EPS, is_centred=True, has_weight=False),
                   attention=replace(config.attention, clip=clip))


def olmo3(keys: Keys) -> ModelConfig:
    """Layers with a window have a rotation that is not scaled."""
    config = replace(OLMO2, windows=windows_by_kind(4))
    return rotating_by_kind(config, keys, pattern=4, local_theta=THETA)


def granite(keys: Keys) -> ModelConfig:
    """Multipliers of the embedding, of attention's scores, of what is added to the residual stream, of the logits."""
    config = LLAMA(keys)
    return replace(
        config,
        embedding=EmbeddingConfig(multiplier=keys.number("embedding_multiplier")),
        attention=replace(config.attention, scale=keys.number("attention_multiplier")),
        residual_multiplier=keys.number("residual_multiplier"),
        head=replace(config.head, multiplier=1 / keys.number("logits_scaling")))


def rotating(config: ModelConfig, rotates: list[bool]) -> ModelConfig:
    """Returns the config with the rotations of these layers only."""
    rotations = tuple(rotation if does else None
                      for rotation, does in zip(config.attention.rotations, rotates, strict=True))
    return replace(config, attention=replace(config.attention, rotations=rotations))


def rotating_by_kind(family: Usual, keys: Keys, pattern: int, local_theta: str) -> ModelConfig:
    """Returns the config of a family whose layers with a window have a rotation of their own.

    transformers 5 has a section for each kind in rope_parameters; 4 scales only the layers without a window.
    local_theta: the key of the base of these layers' frequencies, where their section has none
    """
    sections = keys.section("rope_parameters")
    is_new = {FULL, SLIDING} & sections.names
    full = sections.section(FULL) if is_new else keys.section("rope_scaling")
    local = (sections.section(SLIDING) if is_new else Keys(keys.path, {})).defaulting({
        THETA: keys.number(local_theta)})
    config = replace(family, rope=full)(keys)
    head_dim, kinds = config.attention.head_dim, read_kinds(keys, config.num_layers, pattern)
    rotation = Rotation.read(keys, head_dim, family.rotary_share, local)
    rotations = tuple(rotation if kind == SLIDING else whole
                      for kind, whole in zip(kinds, config.attention.rotations, strict=True))
    return replace(config, attention=replace(config.attention, rotations=rotations))
