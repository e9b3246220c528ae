"""Which keys of a GGUF file's metadata are read, and what becomes of the others: those that would change what the model
computes are refused, and those that are not followed or not known are told.

The names are llama.cpp's (`LLM_KV_NAMES`), and those of a model are without the architecture in front.
"""

import logging
from typing import Any

from penstock.checkpoints.gguf.metadata import Metadata

log = logging.getLogger(__name__)

READ = (
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.layer_norm_rms_epsilon",
    "attention.sliding_window", "attention.value_length", "block_count", "context_length", "embedding_length",
    "expert_count", "feed_forward_length", "rope.dimension_count", "rope.freq_base", "rope.scale_linear",
    "rope.scaling.attn_factor", "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.type",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier",
)
WITHOUT_EFFECT = (                       # or only in what is refused by another key, as mixtures of experts
    "attention.layer_norm_epsilon", "expert_feed_forward_length", "expert_gating_func", "expert_group_count",
    "expert_group_used_count", "expert_shared_count", "expert_shared_feed_forward_length", "expert_used_count",
    "expert_weights_norm", "expert_weights_scale", "experts_per_group", "interleave_moe_layer_step",
    "leading_dense_block_count", "moe_every_n_layers", "pooling_type", "rope.scaling.finetuned", "tensor_data_layout",
    "vocab_size",
)
NONE: tuple[Any, ...] = (0, False, [])
ONE: tuple[Any, ...] = (0, 1)
NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys((
        "attention.clamp_kqv", "attention.max_alibi_bias", "attention.relative_buckets_count", "attention.scale",
        "attention.shared_kv_layers", "attention.sliding_window_pattern", "attention.temperature_length",
        "attn_logit_softcapping", "final_logit_softcapping", "nextn_predict_layers", "rope.dimension_sections",
        "router_logit_softcapping", "swin_norm", "use_parallel_residual"), NONE),
    **dict.fromkeys((
        "attention.output_scale", "attention.temperature_scale", "embedding_scale", "logit_scale", "residual_scale",
        "rope.scaling.alpha", "rope.scaling.yarn_attn_factor"), ONE),
    "attention.causal": (True,),
    "rope.scaling.yarn_ext_factor": (1, -1),
}
"""By a key that would change what is computed, what it may say, for then it changes nothing."""
SAMPLING = "general.sampling."


def check_keys(metadata: Metadata, architecture: str) -> None:
    """Raises GgufError for a key that changes what is computed in a way that is not known here; tells of those that are
    not followed."""
    unknown = []
    for key in metadata:
        holder, _, name = key.partition(".")
        if holder != architecture or name in READ or name in WITHOUT_EFFECT:
            continue
        if name not in NEUTRAL:
            unknown.append(key)
        elif metadata[key] not in NEUTRAL[name]:
            raise metadata.error(key, " or ".join(map(str, NEUTRAL[name])))
    sampling = [key for key in metadata if key.startswith(SAMPLING)]
    for keys, reason in (
        (unknown, "not read, for models of this architecture are not known to have them"),
        (sampling, "not applied, as in TGI: a request's own parameters alone say how it is sampled"),
    ):
        if keys:
            log.warning("%s: %s: %s", metadata.path, ", ".join(
                f"{key} {metadata[key]!s:.60}" for key in sorted(keys)), reason)
