"""Fields that clients send to OpenAI's routes and that the bodies do not have: one rule for all of them.

A field that would change the answer, or what is promised of it, is refused by its name; with a value that asks for
nothing it is let pass. Every other field is ignored: those that are known are in IGNORED, and a name that nobody knows
is ignored as TGI ignores it.
"""

from collections.abc import Mapping

import orjson

from penstock.router.api.openai.bodies import OpenAIBody
from penstock.router.errors import ValidationError

Refused = Mapping[str, tuple[object, ...]]
"""Names of fields, each with the values that ask for nothing, beside null."""

REFUSED: Refused = {
    # vLLM's
    "length_penalty": (1,), "use_beam_search": (False,), "bad_words": ([],), "allowed_token_ids": (),
    "logits_processors": ([],), "guided_whitespace_pattern": (), "prompt_embeds": (), "prompt_logprobs": (),
    "include_stop_str_in_output": (False,), "skip_special_tokens": (True,), "spaces_between_special_tokens": (True,),
    "return_tokens_as_token_ids": (False,), "truncation_side": ("left",), "logprob_token_ids": (), "cache_salt": (),
    "kv_transfer_params": (), "vllm_xargs": ({},), "thinking_token_budget": (), "repetition_detection": (),
    # SGLang's
    "regex": (), "ebnf": (), "json_schema": (), "stop_regex": ([],), "no_stop_trim": (False,), "lora_path": (),
    "custom_logit_processor": (), "custom_params": (), "session_params": (), "return_hidden_states": (False,),
    # TGI's own routes'
    "parameters": ({},), "grammar": (), "adapter_id": (), "max_new_tokens": (), "do_sample": (), "details": (False,),
    "decoder_input_details": (False,), "return_full_text": (False,), "top_n_tokens": (0,), "truncate": (),
}
REFUSED_IN_PROMPTS: Refused = {
    # OpenAI's
    "functions": ([],), "function_call": ("none",), "reasoning_effort": (), "verbosity": ("medium",),
    # vLLM's
    "documents": ([],), "mm_processor_kwargs": ({},), "media_io_kwargs": ({},),
}
"""Those that would change the prompt which a conversation makes."""
REFUSED_IN_CHATS: Refused = {
    **REFUSED,
    **REFUSED_IN_PROMPTS,
    # OpenAI's
    "modalities": (["text"],), "audio": (), "web_search_options": (),
    # vLLM's
    "best_of": (1,), "echo": (False,), "include_reasoning": (True,),
    # of completions
    "prompt": (), "suffix": ("",),
}
REFUSED_IN_COMPLETIONS: Refused = {
    **REFUSED,
    # of chats
    "messages": (), "tools": ([],), "tool_choice": ("none",), "top_logprobs": (0,), "tool_prompt": (),
    "chat_template": (), "chat_template_kwargs": ({},), "add_generation_prompt": (False,),
    "continue_final_message": (False,),
}

_BOOKS = "for the books of a service that several share"
_SPEED = "it would change the time of an answer, and nothing in it"
IGNORED: Mapping[str, str] = {
    "user": _BOOKS, "safety_identifier": _BOOKS, "metadata": _BOOKS, "store": _BOOKS, "request_id": _BOOKS,
    "rid": _BOOKS, "service_tier": _SPEED, "prompt_cache_key": _SPEED, "prompt_cache_retention": _SPEED,
    "prediction": _SPEED, "priority": _SPEED, "guided_decoding_backend": "there is one",
    "separate_reasoning": "reasoning is not told apart", "stream_reasoning": "reasoning is not told apart",
}
"""Fields that change no answer, each with what it is for or why it is dropped."""


def refuse_unsupported(body: OpenAIBody, refused: Refused) -> None:
    """Raises a ValidationError that names a field of `refused` in the body which asks for something."""
    for name, value in (body.model_extra or {}).items():
        neutral = refused.get(name)
        if neutral is not None and value is not None and value not in neutral:
            other = f", other than {orjson.dumps(neutral[0]).decode()}," if neutral else ""
            raise ValidationError(f"`{name}`{other} is not supported")
