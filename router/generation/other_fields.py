"""Fields that clients send and that the bodies of a route do not have: one rule, and one list from the documentation of
other servers.

A field that would change the answer, or what is promised of it, is refused by its name; with a value that asks for
nothing it is let pass. Every other field is ignored: those that are known are in IGNORED, and a name that nobody knows
is ignored as TGI ignores it.

The list has what OpenAI's types, transformers' GenerationConfig and these servers take: vLLM, SGLang, llama.cpp,
Ollama, TensorRT-LLM and Triton's backend for it, LMDeploy, Aphrodite, KoboldAI, TabbyAPI, text-generation-webui,
LocalAI, MLC LLM, OpenRouter, and TGI.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from penstock.router.errors import ValidationError
from penstock.router.generation.parameters import Parameters

Refused = Mapping[str, tuple[object, ...]]
"""Names of fields, each with the values that ask for nothing, beside null."""

_OFF, _ZERO, _ONE = (False,), (0,), (1,)
_EMPTY: tuple[object, ...] = ([], "")

_BEAMS: Refused = {
    "num_beams": _ONE, "beam_width": _ONE, "use_beam_search": _OFF, "num_beam_groups": _ONE, "length_penalty": _ONE,
    "diversity_penalty": _ZERO, "beam_search_diversity_rate": _ZERO, "early_stopping": _OFF, "penalty_alpha": _ZERO,
    "constraints": _EMPTY, "force_words_ids": _EMPTY, "num_return_sequences": _ONE, "n_cmpl": _ONE,
}
_ON_OPENAIS = (
    "use_beam_search", "length_penalty", "early_stopping", "bad_words", "allowed_token_ids", "cache_salt",
    "include_stop_str_in_output", "skip_special_tokens", "prompt_logprobs", "return_tokens_as_token_ids")
"""Those of the fields below that OpenAI's routes have."""
_LENGTH: Refused = {
    "n_predict": (-1,), "num_predict": (-1,), "max_length": (), "max_output_tokens": (), "max_tokens_second": _ZERO,
    "min_length": _ZERO, "min_new_tokens": _ZERO, "max_time": (), "t_max_predict_ms": _ZERO,
    "max_context_length": (), "num_ctx": (), "truncation_length": _ZERO, "truncation_side": ("left",),
    "prompt_truncate_len": (), "n_keep": _ZERO, "num_keep": _ZERO, "n_discard": _ZERO, "n_indent": _ZERO,
    "stop_sequence": _EMPTY, "stop_sequences": _EMPTY, "stop_strings": _EMPTY, "stop_words": _EMPTY,
    "stop_regex": _EMPTY, "end_id": (), "eos_token_id": (), "ban_eos_token": _OFF, "no_stop_trim": _OFF,
    "include_stop_str_in_output": _OFF, "repetition_detection": (), "repetition_ngram_size": _ZERO,
    "repetition_ngram_threshold": _ZERO, "loop_detect_window": _ZERO,
}
_REPETITION: Refused = {
    "repeat_penalty": _ONE, "repeat_last_n": (), "rep_pen": _ONE, "rep_pen_range": (), "rep_pen_slope": (),
    "repetition_penalty_range": (0, -1), "penalty_range": (-1,), "repetition_range": (-1,), "repetition_decay": _ZERO,
    "encoder_repetition_penalty": _ONE, "no_repeat_ngram_size": _ZERO, "encoder_no_repeat_ngram_size": _ZERO,
    "prompt_ignore_length": _ZERO, "exponential_decay_length_penalty": (), "dry_multiplier": _ZERO, "dry_base": (),
    "dry_allowed_length": (), "dry_penalty_last_n": (), "dry_range": (), "dry_sequence_breakers": (),
}
_SAMPLING: Refused = {
    "mirostat": _ZERO, "mirostat_mode": _ZERO, "mirostat_tau": (), "mirostat_eta": (), "xtc_probability": _ZERO,
    "xtc_threshold": (), "top_a": _ZERO, "top_h": (), "tfs": _ONE, "tfs_z": _ONE, "tfz": _ONE, "typical": _ONE,
    "eta_cutoff": _ZERO, "epsilon_cutoff": _ZERO, "eps_cutoff": _ZERO, "smoothing_factor": _ZERO,
    "smoothing_curve": (), "top_n_sigma": (0, -1), "nsigma": _ZERO, "skew": _ZERO, "dynamic_temperature": _OFF,
    "dynatemp_range": _ZERO, "dynatemp_min": _ZERO, "dynatemp_max": _ZERO, "dynatemp_low": (), "dynatemp_high": (),
    "dynatemp_exponent": (), "min_temp": (), "max_temp": (), "temp_exponent": _ONE, "temperature_last": _OFF,
    "top_p_min": _ZERO, "top_p_decay": (), "top_p_reset_ids": (), "adaptive_target": (0, -1), "adaptive_decay": (),
    "min_keep": _ZERO, "samplers": (), "sampler_order": _EMPTY, "sampler_priority": _EMPTY, "guidance_scale": _ONE,
    "cfg_scale": _ONE, "negative_prompt": ("",), "negative_prompt_scale": _ZERO, "renormalize_logits": _OFF,
    "watermarking": _OFF, "watermarking_config": (), "token_healing": _OFF, "random_seed": (), "sampler_seed": (-1,),
    "sampling_seed": (), "rope_freq_base": _ZERO, "rope_freq_scale": _ZERO, "dola_layers": (),
}
_TOKENS: Refused = {
    "bad_words": _EMPTY, "bad_words_ids": _EMPTY, "banned_tokens": _EMPTY, "banned_strings": _EMPTY,
    "custom_token_bans": _EMPTY, "allowed_token_ids": (), "allowed_tokens": _EMPTY, "suppress_tokens": _EMPTY,
    "begin_suppress_tokens": _EMPTY, "sequence_bias": ({}, []), "forced_bos_token_id": (), "forced_eos_token_id": (),
    "embedding_bias": (), "embedding_bias_words": _EMPTY, "embedding_bias_weights": _EMPTY,
    "logits_processors": _EMPTY, "custom_logit_processor": (), "add_bos_token": (True,),
}
_FORM: Refused = {
    "regex": (), "regex_pattern": (), "json_schema": (), "structural_tag": (), "format": ("",),
    "grammar_string": ("",), "grammar_json_functions": (), "grammar_lazy": _OFF, "grammar_triggers": _EMPTY,
    "guided_whitespace_pattern": (), "guided_decoding": (), "guided_decoding_guide": (),
    "guided_decoding_guide_type": (),
}
_REPLY: Refused = {
    "return_hidden_states": _OFF, "return_routed_experts": _OFF, "return_tokens_as_token_ids": _OFF,
    "return_prompt_token_ids": _OFF, "return_prompt_text": _OFF, "return_token_offsets": _OFF,
    "return_meta_info": _OFF, "return_context_logits": _OFF, "return_generation_logits": _OFF,
    "return_log_probs": _OFF, "return_logprob": _OFF, "return_tokens": _OFF, "return_dict_in_generate": _OFF,
    "output_scores": _OFF, "output_logits": _OFF, "output_attentions": _OFF, "output_hidden_states": _OFF,
    "n_probs": _ZERO, "top_logprobs_num": _ZERO, "logprob_start_len": (-1,), "token_ids_logprob": (),
    "logprob_token_ids": (), "prompt_logprobs": (), "post_sampling_probs": _OFF, "response_fields": _EMPTY,
    "detokenize": (True,), "skip_special_tokens": (True,), "raw_output": _OFF,
    "exclude_input_in_output": (True,), "moderation": (), "deferred": _OFF, "background": _OFF,
}
_ELSEWHERE: Refused = {
    "lora": _EMPTY, "lora_path": (), "lora_request": (), "lora_task_id": (), "lora_weights": (), "lora_config": (),
    "kv_transfer_params": (), "ec_transfer_params": (), "disaggregated_params": (), "session_params": (),
    "cache_salt": (), "sampling_params": ({},), "extra_body": ({},), "extra_args": ({},), "nvext": ({},),
    "generation_config": ({},), "debug_config": ({},), "vllm_xargs": ({},), "custom_params": ({},),
    "overrides": ({},), "preset": (), "selected_preset": (),
}
"""Settings that live elsewhere here, such as an adapter, which is a model's name, and objects with settings in them."""
_PROMPTS: Refused = {
    "system": ("",), "template": ("",), "raw": _OFF, "context": _EMPTY, "images": _EMPTY, "image_data": (),
    "audio_data": (), "images_config": (), "input_ids": (), "prompt_token_ids": (), "input_embeds": (),
    "prompt_embeds": (), "prompt_template": (), "template_vars": ({},), "chat_template_str": (),
    "instruction_template": (), "instruction_template_str": (), "character": (), "response_prefix": ("",),
    "do_preprocess": (True,), "safe_prompt": _OFF, "prompt_mode": (), "task": (), "transforms": _EMPTY,
    "plugins": _EMPTY, "data_sources": _EMPTY, "search_parameters": (),
    "mm_processor_kwargs": ({},), "media_io_kwargs": ({},), "use_audio_in_video": _OFF,
    "thinking": (), "think": (), "enable_thinking": (), "preserve_thinking": _OFF, "thinking_budget": (),
    "thinking_token_budget": (), "reasoning": ({},), "reasoning_budget": (), "reasoning_budget_tokens": (),
    "reasoning_budget_message": ("",), "reasoning_format": ("auto", "deepseek"),
    "functions": ([],), "function_call": ("none", "auto"), "verbosity": ("medium",), "web_search_options": (),
}
"""Those that would change the prompt which a conversation makes."""
_PEERS: Refused = {**_BEAMS, **_LENGTH, **_REPETITION, **_SAMPLING, **_TOKENS, **_FORM, **_REPLY, **_ELSEWHERE,
                   **_PROMPTS}

_TGI: Refused = {
    "parameters": ({},), "grammar": ("",), "adapter_id": (), "max_new_tokens": (), "do_sample": (), "details": _OFF,
    "decoder_input_details": _OFF, "return_full_text": _OFF, "top_n_tokens": _ZERO, "truncate": (),
}
_CHATS: Refused = {
    "messages": (), "tools": ([],), "tool_choice": ("none", "auto"), "top_logprobs": _ZERO, "tool_prompt": (),
    "chat_template": (), "chat_template_kwargs": ({},), "add_generation_prompt": _OFF, "continue_final_message": _OFF,
    "documents": _EMPTY, "reasoning_effort": (),
}
_OPENAI: Refused = {
    "max_tokens": (), "max_completion_tokens": (), "logprobs": (False, 0), "response_format": ({"type": "text"},),
    "add_special_tokens": (True,), "truncate_prompt_tokens": (), "return_token_ids": _OFF, "structured_outputs": ({},),
    "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (), "ebnf": (), "echo": _OFF,
    "suffix": ("",), **_CHATS,
}
"""The fields of OpenAI's routes whose names TGI's do not know."""

_OLD_TOOLS = ("functions", "function_call")
REFUSED_IN_PROMPTS = _PROMPTS
REFUSED_IN_TEMPLATES: Refused = {name: neutral for name, neutral in _PEERS.items() if name not in _PROMPTS}
"""Those of `chat_template_kwargs` that no chat template could obey; one that the template reads is its own."""
_ON_OPENAIS_ROUTES = {
    **{name: neutral for name, neutral in _PEERS.items() if name not in _ON_OPENAIS}, **_TGI, "options": ({},)}
_BUDGETS = ("thinking_token_budget", "thinking_budget", "reasoning_budget_tokens")
"""Those that chats have."""
REFUSED_IN_CHATS: Refused = {
    **{name: neutral for name, neutral in _ON_OPENAIS_ROUTES.items() if name not in (*_OLD_TOOLS, *_BUDGETS)},
    "modalities": (["text"],), "audio": (), "best_of": _ONE,
    "separate_reasoning": (True,), "stream_reasoning": (True,), "prompt": (), "suffix": ("",),
}
REFUSED_IN_COMPLETIONS: Refused = {**_ON_OPENAIS_ROUTES, **_CHATS}
REFUSED_IN_RESPONSES: Refused = {
    **_PEERS, **_TGI, **_OPENAI, "options": ({},), "n": _ONE, "best_of": _ONE, "watermark": _OFF, "conversation": (),
    "include_reasoning": (True,), "prompt": (), "context_management": _EMPTY, "image": (),
}
REFUSED_IN_KSERVE: Refused = {**_PEERS, **_TGI, **_OPENAI, "best_of": _ONE, "timeout": _ZERO, "sequence_id": (0, "")}
"""Those of the settings of KServe's routes, in as far as these do not know them."""
REFUSED_IN_MESSAGES: Refused = {
    **_PEERS, **_TGI, **_OPENAI, "container": (), "mcp_servers": _EMPTY, "n": _ONE, "best_of": _ONE, "seed": (),
    "stop": _EMPTY, "stop_token_ids": _EMPTY, "logit_bias": ({},), "frequency_penalty": _ZERO,
    "presence_penalty": _ZERO, "repetition_penalty": _ONE, "min_p": _ZERO, "typical_p": _ONE, "min_tokens": _ZERO,
    "ignore_eos": _OFF, "watermark": _OFF,
}
REFUSED_IN_POOLING: Refused = {
    "messages": (), "chat_template": (), "chat_template_kwargs": ({},), "add_generation_prompt": _OFF,
    "continue_final_message": _OFF, "mm_processor_kwargs": ({},), "media_io_kwargs": ({},), "images": _EMPTY,
    "modality": ("text",), "embed_dtype": ("float32",), "endianness": ("native", "little"), "output_dtype": ("float",),
    "embedding_type": ("float",), "embedding_types": (["float"],), "output_dimension": (), "late_chunking": _OFF,
    "input_type": (), "task": (), "prompt": (), "prompt_name": (), "instruction": (), "truncate": (), "truncation": (),
    "truncation_direction": (), "dimensions": (), "encoding_format": ("float",), "normalize": (True,),
    "normalized": (True,), "activation": (), "softmax": (), "raw_scores": _OFF, "return_text": _OFF,
    "return_embeddings": _OFF, "return_token_ids": _OFF, "rank_fields": _EMPTY, "relevant_spans": (),
    "max_chunks_per_doc": (), "overlap_tokens": (), "max_query_length": (), "max_doc_length": (), "lora": _EMPTY,
    "extra_body": ({},), "extra_args": ({},), "vllm_xargs": ({},), "stream": _OFF,
}
"""Those of routes of vectors and scores, in as far as a route does not have them itself."""
REFUSED_IN_PARAMETERS: Refused = {
    name: neutral for name, neutral in {**_PEERS, **_OPENAI}.items() if name not in Parameters.model_fields}
"""Those of `parameters` on TGI's routes."""
REFUSED_BESIDE_INPUTS = _PEERS
"""Those beside `inputs` on TGI's routes. Names of TGI's own parameters are ignored there, as TGI ignores them."""

_SWITCHES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("repeat_last_n",), ("repeat_penalty",)),
    **dict.fromkeys(("rep_pen_range", "rep_pen_slope"), ("rep_pen",)),
    **dict.fromkeys(("mirostat_tau", "mirostat_eta"), ("mirostat", "mirostat_mode")),
    **dict.fromkeys(("xtc_threshold",), ("xtc_probability",)),
    **dict.fromkeys(("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_range", "dry_sequence_breakers"),
                    ("dry_multiplier",)),
    **dict.fromkeys(("smoothing_curve",), ("smoothing_factor",)),
    **dict.fromkeys(("dynatemp_low", "dynatemp_high"), ("dynamic_temperature",)),
    **dict.fromkeys(("dynatemp_exponent",), ("dynamic_temperature", "dynatemp_range", "dynatemp_max")),
    **dict.fromkeys(("adaptive_decay",), ("adaptive_target",)),
    **dict.fromkeys(("length_penalty", "early_stopping", "num_beam_groups", "diversity_penalty"),
                    ("num_beams", "beam_width", "use_beam_search")),
}
"""Names of fields that mean nothing where the body itself turns off what they tune, with the fields that turn it off.
Some clients send all that they know."""

_BOOKS = "for the books of a service that several share"
_SPEED = "it would change the time of an answer, and nothing in it"
_CHOICE = "there is one"
IGNORED: Mapping[str, str] = {
    **dict.fromkeys(("user", "access_programs", "safety_identifier", "metadata", "store", "request_id", "rid",
                     "extra_key", "custom_labels", "trace", "inference_geo", "user_profile_id", "workspace_id"),
                    _BOOKS),
    **dict.fromkeys(("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
                     "prediction", "session_id", "conversation_params", "keep_alive", "cache_prompt",
                     "id_slot", "n_cache_reuse", "stream_interval", "sse_ping_interval", "data_parallel_rank",
                     "routed_dp_rank", "use_cache", "cache_implementation", "prompt_lookup_num_tokens",
                     "num_assistant_tokens", "draft_num_predict", "pad_token_id", "pad_id", "cache_control",
                     "speed"), _SPEED),
    **dict.fromkeys(("provider", "models", "route", "guided_decoding_backend"), _CHOICE),
    **dict.fromkeys(("timings_per_token", "return_progress", "return_cached_tokens_details", "usage", "diagnostics"),
                    "headers, `usage` and `/metrics` tell of it"),
    "spaces_between_special_tokens": "texts have none there, which a model has not written",
}
"""Fields that change no answer, each with what it is for or why it is dropped."""


def refuse_unsupported(fields: Mapping[str, Any] | None, refused: Refused) -> None:
    """Raises a ValidationError that names one of `fields` which is in `refused` and asks for something."""
    for name, value in (fields or {}).items():
        neutral = refused.get(name)
        if neutral is None or _asks_nothing(value, neutral) or _is_off(name, fields or {}):
            continue
        other = f", other than {orjson.dumps(neutral[0]).decode()}," if neutral else ""
        raise ValidationError(f"`{name}`{other} is not supported", "unsupported_parameter")


def _asks_nothing(value: object, neutral: tuple[object, ...]) -> bool:
    return value is None or value in neutral


def _is_off(name: str, fields: Mapping[str, Any]) -> bool:
    """Tells whether the body turns off what the field of this name tunes."""
    return any(switch in fields and _asks_nothing(fields[switch], _PEERS[switch])
               for switch in _SWITCHES.get(name, ()))
