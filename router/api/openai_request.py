"""What a body of any of OpenAI's routes asks for, as the parameters that all routes share."""

from collections.abc import Mapping

import orjson

from router.api.schemas import OpenAIBody, Parameters
from router.errors import ValidationError

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "length_penalty": (1,), "use_beam_search": (False,), "bad_words": ([],), "allowed_token_ids": (),
    "logits_processors": ([],), "guided_whitespace_pattern": (), "prompt_embeds": (), "prompt_logprobs": (),
    "include_stop_str_in_output": (False,), "skip_special_tokens": (True,), "spaces_between_special_tokens": (True,),
    "return_tokens_as_token_ids": (False,), "priority": (0,), "cache_salt": (), "kv_transfer_params": (),
}
"""Fields of vLLM's that would change an answer and are not built, each with the values that ask for nothing."""

_KINDS = ("json", "regex", "choice", "grammar")


def check_supported(body: OpenAIBody, own: Mapping[str, tuple[object, ...]] | None = None) -> None:
    """ValidationError names a field that asks for what is not built. `own`: more such fields, of the route."""
    neutral_values = {**_NEUTRAL, **(own or {})}
    for name, value in (body.model_extra or {}).items():
        neutral = neutral_values.get(name)
        if neutral is not None and value is not None and value not in neutral:
            other = f", other than {orjson.dumps(neutral[0]).decode()}," if neutral else ""
            raise ValidationError(f"`{name}`{other} is not supported")


def max_tokens(body: OpenAIBody) -> int | None:
    return body.max_completion_tokens if body.max_tokens is None else body.max_tokens


def parameters(body: OpenAIBody, max_new_tokens: int | None, top_n_tokens: int | None) -> Parameters:
    """ValidationError if the body asks for more than one form of the answer."""
    is_greedy = body.temperature == 0
    return Parameters(
        temperature=None if is_greedy else body.temperature,
        repetition_penalty=body.repetition_penalty,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        top_k=None if body.top_k in (0, -1) else body.top_k,
        top_p=None if body.top_p == 1 else body.top_p,
        typical_p=None if body.typical_p == 1 else body.typical_p,
        min_p=body.min_p,
        do_sample=not is_greedy,
        max_new_tokens=max_new_tokens,
        min_tokens=body.min_tokens,
        ignore_eos=bool(body.ignore_eos),
        stop=body.stop,
        stop_token_ids=body.stop_token_ids,
        logit_bias=body.logit_bias,
        watermark=bool(body.watermark),
        truncate=body.truncate_prompt_tokens,
        seed=body.seed,
        top_n_tokens=top_n_tokens,
        grammar=_grammar(body))


def _grammar(body: OpenAIBody) -> object:
    """The one of the fields that ask for a form of the answer which is given; as TGI's `grammar`, unless OpenAI's."""
    structured = body.structured_outputs or {}
    asked: dict[str, object] = {
        "response_format": body.response_format,
        **{f"guided_{kind}": getattr(body, f"guided_{kind}") for kind in _KINDS},
        **{f"structured_outputs.{name}": value for name, value in structured.items()}}
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) > 1:
        raise ValidationError(f"only one of `{'`, `'.join(given)}` can be given")
    for name, value in given.items():
        if name == "response_format":
            return None if body.response_format == {"type": "text"} else value
        kind = name.removeprefix("guided_").removeprefix("structured_outputs.")
        if kind not in _KINDS:
            raise ValidationError(f"`{name}` is not supported")
        return {"type": kind, "value": value}
    return None
