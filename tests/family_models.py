"""A checkpoint of every native family, small enough to make in a test, with the switches that the family has."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.paths import DEMO_MODEL

Tensors = dict[str, Tensor]

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
SIZES = {
    "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
OLD_SIZES = {"vocab_size": 160, "n_embd": 64, "n_layer": 2, "n_head": 8, "n_positions": 256, "bos_token_id": 0,
             "eos_token_id": 2}
TYPES = {"layer_types": [SLIDING, FULL], "sliding_window": 20}
SECOND_FALCON = {"ffn_hidden_size": 96, "new_decoder_architecture": True, "num_kv_heads": 4}
MOE = {"moe_intermediate_size": 32}
LONG = {"rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 256,
                            "short_factor": [1.0, 1.5, 2.0], "long_factor": [4.0] * 3, "partial_rotary_factor": 0.75},
        "original_max_position_embeddings": 256, "max_position_embeddings": 512}


@dataclass(frozen=True, slots=True)
class FamilyModel:
    """What transformers calls the family, and a configuration of it."""

    model_type: str
    keys: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=lambda: SIZES)
    convert: Callable[[dict[str, Any], Tensors], tuple[dict[str, Any], Tensors]] | None = None
    """Makes the configuration and tensors of a family that transformers lacks from those of one that it has."""


def internlm2(config: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """q, k and v become one linear, KV head by KV head."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    names = {"model.embed_tokens": "model.tok_embeddings", "lm_head": "output", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "mlp.gate_proj":
             "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}
    made = {}
    for name, tensor in tensors.items():
        if name.endswith("q_proj.weight"):
            parts = [tensor.view(kv_heads, heads // kv_heads, -1, tensor.shape[1])]
            parts += [tensors[name.replace("q_proj", other)].view(kv_heads, 1, -1, tensor.shape[1])
                      for other in ("k_proj", "v_proj")]
            made[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(parts, dim=1).reshape(
                -1, tensor.shape[1])
        elif "k_proj" not in name and "v_proj" not in name:
            old = next((old for old in names if old in name), "")
            made[name.replace(old, names.get(old, ""))] = tensor
    config = {key: config[key] for key in config if key not in ("attention_bias", "mlp_bias", "head_dim")}
    return config | {"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "bias": False}, made


def internlm3(config: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    own = {"architectures": ["InternLM3ForCausalLM"], "model_type": "internlm3", "qkv_bias": True, "bias": True}
    return config | own, tensors


def without_base(config: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """The names of checkpoints that were saved without a head, as the first ones of some families are."""
    return config, {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}


def of_images(config: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """The decoder of a model that reads images too, and one of the tensors that it has for them."""
    made = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": config,
            "tie_word_embeddings": False, "vision_config": {"depth": 1}}
    config["rope_parameters"] |= {"mrope_section": [1, 1, 0], "mrope_interleaved": True}
    renamed = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()}
    return made, renamed | {"model.visual.merger.norm.weight": torch.ones(8)}


def with_next(config: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """A layer more, which predicts the token after the next one."""
    last = f"model.layers.{config['num_hidden_layers'] - 1}."
    further = {name.replace(last, f"model.layers.{config['num_hidden_layers']}."): tensor.clone()
               for name, tensor in tensors.items() if name.startswith(last)}
    return config | {"num_nextn_predict_layers": 1}, tensors | further


def of(model_type: str, **keys: Any) -> FamilyModel:
    return FamilyModel(model_type, keys)


def old(model_type: str, **keys: Any) -> FamilyModel:
    return FamilyModel(model_type, keys, OLD_SIZES)


MAMBA = {"mamba_n_heads": 8, "mamba_d_state": 12, "mamba_d_conv": 4, "mamba_expand": 2}
DELTA = {"linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
         "head_dim": 16, "layer_types": [LINEAR, FULL]}
LATENT = {"num_key_value_heads": 8, "n_routed_experts": 8, "num_experts_per_tok": 3, "kv_lora_rank": 24,
          "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "first_k_dense_replace": 1, **MOE}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0,
        "beta_fast": 32, "beta_slow": 1, "mscale_all_dim": 0.707}
FAMILY_MODELS = {
    "arcee": of("arcee", mlp_bias=True),
    "bamba": of("bamba", attn_layer_indices=[1], **MAMBA),
    "bloom": FamilyModel("bloom", sizes={"vocab_size": 160, "hidden_size": 64, "n_layer": 2, "n_head": 8}),
    "bloom, 12 heads": FamilyModel("bloom", sizes={"vocab_size": 160, "hidden_size": 96, "n_layer": 2, "n_head": 12}),
    "cohere": of("cohere", use_qk_norm=True, logit_scale=0.3),
    "cohere, tied": of("cohere", attention_bias=True, tie_word_embeddings=True),
    "cohere2": of("cohere2", head_dim=16, **TYPES),
    "deepseek_v2": of("deepseek_v2", q_lora_rank=None, v_head_dim=16, rope_parameters=YARN | {"mscale": 0.707},
                      **LATENT),
    "deepseek_v2, groups": of("deepseek_v2", q_lora_rank=40, v_head_dim=32, topk_method="group_limited_greedy",
                              n_group=4, topk_group=2, routed_scaling_factor=4.0, **LATENT),
    "deepseek_v3": FamilyModel("deepseek_v3", {
        "q_lora_rank": 40, "v_head_dim": 16, "n_group": 4, "topk_group": 2, "attention_bias": True,
        "rope_parameters": YARN | {"mscale": 1.0}, **LATENT}, convert=with_next),
    "deepseek_v3, halves": of("deepseek_v3", q_lora_rank=None, v_head_dim=24, n_group=1, topk_group=1,
                              rope_interleave=False, norm_topk_prob=False, **LATENT),
    "dots1": of("dots1", n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1,
                n_group=4, topk_group=2, sliding_window=20, max_window_layers=1, **MOE),
    "ernie4_5": of("ernie4_5", head_dim=16, use_bias=True),
    "exaone4": of("exaone4", **TYPES),
    "exaone4, no window": of("exaone4", sliding_window=None, layer_types=[FULL, FULL]),
    "falcon, first": of("falcon", ffn_hidden_size=96, num_kv_heads=1),
    "falcon, second": of("falcon", tie_word_embeddings=False, **SECOND_FALCON),
    "falcon, second, one norm": of("falcon", num_ln_in_parallel_attn=1, **SECOND_FALCON),
    "falcon, alibi": of("falcon", ffn_hidden_size=96, multi_query=False, alibi=True, parallel_attn=False, bias=True),
    "gemma": of("gemma", head_dim=16, hidden_act="gelu_pytorch_tanh"),
    "gemma2": of("gemma2", head_dim=16, query_pre_attn_scalar=20, attn_logit_softcapping=3.0,
                 final_logit_softcapping=8.0, **TYPES),
    "gemma3": of("gemma3_text", head_dim=16, query_pre_attn_scalar=20, rope_parameters={
        SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
        FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0}}, **TYPES),
    "flex_olmo": of("flex_olmo", num_experts=8, num_experts_per_tok=3),
    "glm": of("glm", head_dim=16, attention_bias=True),
    "glm4": of("glm4", head_dim=16),
    "gpt2": old("gpt2"),
    "gpt2, without base": FamilyModel("gpt2", {}, OLD_SIZES, without_base),
    "gpt_bigcode": old("gpt_bigcode"),
    "gpt_bigcode, many heads": old("gpt_bigcode", multi_query=False, tie_word_embeddings=False),
    "gpt_neox": of("gpt_neox"),
    "gpt_neox, serial": of("gpt_neox", use_parallel_residual=False, attention_bias=False),
    "gptj": old("gptj", rotary_dim=4),
    "ernie4_5_moe": of("ernie4_5_moe", **MOE, moe_num_experts=8, moe_k=3, moe_num_shared_experts=2),
    "glm4_moe": of("glm4_moe", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, first_k_dense_replace=1,
                   use_qk_norm=True, routed_scaling_factor=1.5, **MOE),
    "glm4_moe, groups": of("glm4_moe", head_dim=16, n_routed_experts=16, num_experts_per_tok=3, n_group=4, topk_group=2,
                           first_k_dense_replace=0, attention_bias=True, norm_topk_prob=False, **MOE),
    "glm4_moe_lite": of("glm4_moe_lite", q_lora_rank=40, v_head_dim=32, **{
        key: LATENT[key] for key in LATENT if key != "first_k_dense_replace"}),
    "granite": of("granite", embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.3,
                  logits_scaling=2.0),
    "granitemoe": of("granitemoe", num_local_experts=8, embedding_multiplier=3.0, attention_multiplier=0.4,
                     residual_multiplier=0.3, logits_scaling=2.0),
    "granitemoeshared": of("granitemoeshared", num_local_experts=8, shared_intermediate_size=48,
                           embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.3,
                           logits_scaling=2.0),
    "helium": of("helium", head_dim=8),
    "granitemoehybrid": of("granitemoehybrid", num_local_experts=0, shared_intermediate_size=96, layer_types=[
        LINEAR, FULL], embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.3, **MAMBA),
    "granitemoehybrid, experts": of(
        "granitemoehybrid", num_local_experts=8, shared_intermediate_size=32, layer_types=[LINEAR, FULL],
        intermediate_size=48, position_embedding_type="rope", logits_scaling=2.0, **MAMBA),
    "qwen3_next": of("qwen3_next", num_experts=8, num_experts_per_tok=3, shared_expert_intermediate_size=32, **MOE,
                     **DELTA),
    "qwen3_5": of("qwen3_5_text", **DELTA),
    "qwen3_5, of images": FamilyModel("qwen3_5_text", DELTA, convert=of_images),
    "qwen3_5_moe": of("qwen3_5_moe_text", num_experts=8, num_experts_per_tok=3, shared_expert_intermediate_size=32,
                      **MOE, **DELTA),
    "gpt_oss": of("gpt_oss", num_local_experts=8, num_experts_per_tok=3, head_dim=16, rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "truncate": False, "original_max_position_embeddings": 64,
        "rope_theta": 150000.0, "beta_fast": 32.0, "beta_slow": 1.0}, **TYPES),
    "internlm2": FamilyModel("llama", convert=internlm2),
    "internlm3": FamilyModel("llama", {"attention_bias": True, "mlp_bias": True}, convert=internlm3),
    "llama": of("llama"),
    "llama, biases": of("llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "minimax_m2": of("minimax_m2", head_dim=16, num_local_experts=8, num_experts_per_tok=3, rotary_dim=8),
    "mistral": of("mistral", sliding_window=None),
    "mistral, window": of("mistral", sliding_window=20),
    "mixtral": of("mixtral", num_local_experts=8),
    "mpt": FamilyModel(
        "mpt", sizes={"vocab_size": 160, "d_model": 64, "n_layers": 2, "n_heads": 8, "max_seq_len": 256}),
    "nemotron": of("nemotron", head_dim=16),
    "olmo": of("olmo", clip_qkv=1.5),
    "olmo2": of("olmo2"),
    "olmo3": of("olmo3", **TYPES),
    "olmoe": of("olmoe", num_experts=8, num_experts_per_tok=3, clip_qkv=1.5),
    "opt": FamilyModel("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "phi": of("phi"),
    "phi3": of("phi3", num_key_value_heads=2, sliding_window=20),
    "phi3, longrope": of("phi3", **LONG),
    "phimoe": of("phimoe", num_local_experts=8, attention_bias=True, lm_head_bias=True),
    "qwen2": of("qwen2", use_sliding_window=False, sliding_window=20, max_window_layers=0),
    "qwen2, window": of("qwen2", max_window_layers=1, use_sliding_window=True, sliding_window=20),
    "qwen2, layer types": of("qwen2", max_window_layers=2, use_sliding_window=True, **TYPES),
    "qwen2_moe": of("qwen2_moe", num_experts=8, num_experts_per_tok=3, shared_expert_intermediate_size=48, **MOE),
    "qwen2_moe, some blocks": of("qwen2_moe", num_experts=8, num_experts_per_tok=3, norm_topk_prob=True,
                                 shared_expert_intermediate_size=48, mlp_only_layers=[0], **MOE),
    "qwen3": of("qwen3", head_dim=16, use_sliding_window=False),
    "qwen3, window, biases": of("qwen3", head_dim=16, max_window_layers=0, attention_bias=True,
                                use_sliding_window=True, sliding_window=20),
    "qwen3_moe": of("qwen3_moe", head_dim=16, num_experts=8, num_experts_per_tok=3, norm_topk_prob=True, **MOE),
    "seed_oss": of("seed_oss", head_dim=16),
    "smollm3": of("smollm3", no_rope_layers=[1, 0]),
    "solar_open": of("solar_open", head_dim=16, n_routed_experts=8, num_experts_per_tok=3, **MOE),
    "stablelm": of("stablelm", use_qkv_bias=True),
    "stablelm, parallel": of("stablelm", use_parallel_residual=True, qk_layernorm=True),
    "starcoder2": of("starcoder2", sliding_window=20),
    # Of a tied embedding transformers clears the padding token's row as it loads it.
    "youtu": of("youtu", num_key_value_heads=8, q_lora_rank=40, kv_lora_rank=24, qk_nope_head_dim=16, v_head_dim=16,
                qk_rope_head_dim=8, pad_token_id=None),
}
"""By a name for the test: what transformers calls the family, and what is special."""
ORIGINAL = "original"                    # the folder, in the checkpoint's, of what transformers reads in its place


def make_family(path: Path, name: str, dtype: torch.dtype = torch.float32, seed: int = 0, **keys: Any) -> Path:
    """Writes a checkpoint of random weights into the folder `path`, and returns the path. keys: of its configuration,
    which take the place of the family's"""
    from transformers import AutoConfig, AutoModelForCausalLM

    family = FAMILY_MODELS[name]
    config = AutoConfig.for_model(family.model_type, **family.sizes | family.keys | keys)
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    spread(model, seed)
    model.save_pretrained(path)
    if family.convert is not None:
        shutil.copytree(path, path / ORIGINAL)
        made = family.convert(json.loads((path / "config.json").read_text()), load_file(path / "model.safetensors"))
        (path / "config.json").write_text(json.dumps(made[0]))
        save_file({name: tensor.contiguous() for name, tensor in made[1].items()}, path / "model.safetensors")
    return path


def reference(path: Path, dtype: torch.dtype) -> Any:
    """Returns transformers' own model of a checkpoint that `make_family` made."""
    from transformers import AutoModelForCausalLM

    config = json.loads((path / "config.json").read_text())
    # Of ALiBi on Falcon, the eager form adds the slopes twice.
    attention = "sdpa" if config.get("alibi") else "eager"
    folder = path / ORIGINAL if (path / ORIGINAL).exists() else path
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention)


@torch.no_grad()
def spread(model: torch.nn.Module, seed: int) -> None:
    """Draws the weights so that attention is uneven and logits differ by a few units."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() >= 2:
            parameter.copy_(noise * 2 / parameter.shape[-1] ** 0.5)  # outputs of about twice the size of the inputs
        elif name.endswith("bias"):
            parameter.copy_(noise * 0.1)
        elif name.endswith("A_log"):
            parameter.copy_(noise - 2)       # so that much of a state is left after many tokens
        else:                                # norms' weights, which are zeros where 1 is added to them
            parameter.copy_(noise * 0.1 + int(parameter.any()))
    for name, buffer in model.named_buffers():
        if name.endswith("correction_bias"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)


def make_speaking(path: Path, name: str) -> Path:
    """Writes a checkpoint that has the demo model's tokens and context, and its tokenizer."""
    demo = json.loads((DEMO_MODEL / "config.json").read_text())
    make_family(path, name, torch.bfloat16, vocab_size=demo["vocab_size"],
                max_position_embeddings=demo["max_position_embeddings"])
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO_MODEL / file, path)
    return path
