"""What a body of any of OpenAI's routes asks for, as the parameters that all routes share."""

from collections.abc import Mapping

import orjson

from penstock.router.api.openai.bodies import OpenAIBody
from penstock.router.errors import ValidationError
from penstock.router.generation.parameters import Parameters
from penstock.router.grammar.forms import parse_guided, parse_response_format
from penstock.router.grammar.spec import GrammarSpec

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "length_penalty": (1,), "use_beam_search": (False,), "bad_words": ([],), "allowed_token_ids": (),
    "logits_processors": ([],), "guided_whitespace_pattern": (), "prompt_embeds": (), "prompt_logprobs": (),
    "include_stop_str_in_output": (False,), "skip_special_tokens": (True,), "spaces_between_special_tokens": (True,),
    "return_tokens_as_token_ids": (False,), "priority": (0,), "cache_salt": (), "kv_transfer_params": (),
}
"""Fields of vLLM's that would change an answer and are not built, each with the values that ask for nothing."""


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
    """ValidationError if the body asks for a form of the answer that is none, or for more than one."""
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


def _grammar(body: OpenAIBody) -> GrammarSpec | None:
    formats = None if body.response_format is None else parse_response_format(body.response_format)
    guided = parse_guided(dict(body))
    if formats is not None and guided is not None:
        raise ValidationError("grammar is not valid: one can be asked for, not 2")
    return guided if formats is None else formats
