"""What a body of OpenAI's completions asks for."""

from typing import Any

import orjson

from router.api.schemas import CompletionBody, Parameters
from router.errors import RouterError, ValidationError
from router.limits import Limits
from router.validation import Asked

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "length_penalty": (1,), "use_beam_search": (False,), "bad_words": ([],), "allowed_token_ids": (),
    "logits_processors": ([],), "guided_whitespace_pattern": (), "prompt_embeds": (), "prompt_logprobs": (),
    "include_stop_str_in_output": (False,), "skip_special_tokens": (True,), "spaces_between_special_tokens": (True,),
    "return_tokens_as_token_ids": (False,), "priority": (0,), "cache_salt": (), "kv_transfer_params": (),
}
"""Fields of vLLM's that would change an answer and are not built, each with the values that ask for nothing."""


class SuffixNotSupported(RouterError):
    """TGI's words for a prompt that is to be filled in."""

    status = 422
    error_type = "suffix not supported"
    metric = "validation"

    def __init__(self) -> None:
        super().__init__("Suffix is not supported and can be achieved by preprocessing the prompt.")


class TooManyPrompts(RouterError):
    """In TGI's words."""

    status = 422
    error_type = "batch size exceeded"
    metric = "validation"

    def __init__(self, limit: int) -> None:
        super().__init__(f"Number of prompts exceeds the maximum allowed batch size of {limit}")


def parse(body: CompletionBody, limits: Limits) -> list[Asked]:
    """What is asked of each prompt. RouterError names a field that asks for more than is built or allowed."""
    if body.suffix:
        raise SuffixNotSupported
    if len(body.prompt) > limits.max_client_batch_size:
        raise TooManyPrompts(limits.max_client_batch_size)
    _check_supported(body.model_extra or {})
    num_candidates = _num_candidates(body, limits)
    parameters = _parameters(body)
    return [
        Asked(
            inputs=prompt,
            parameters=parameters,
            n=num_candidates,
            is_greedy=body.temperature == 0,
            keep_stop=False,
            add_special_tokens=body.add_special_tokens is not False,
            has_openai_penalties=True,
            raw_logprobs=True,
            wants_prompt_logprobs=bool(body.echo) and body.logprobs is not None)
        for prompt in body.prompt]


def is_prompt_only(body: CompletionBody) -> bool:
    """Whether only the prompt is to be repeated, with its logprobs. A token is generated all the same, and dropped."""
    return bool(body.echo) and _max_tokens(body) == 0


def _max_tokens(body: CompletionBody) -> int | None:
    return body.max_completion_tokens if body.max_tokens is None else body.max_tokens


def _check_supported(others: dict[str, Any]) -> None:
    for name, value in others.items():
        neutral = _NEUTRAL.get(name)
        if neutral is not None and value is not None and value not in neutral:
            other = f", other than {orjson.dumps(neutral[0]).decode()}," if neutral else ""
            raise ValidationError(f"`{name}`{other} is not supported")


def _num_candidates(body: CompletionBody, limits: Limits) -> int:
    """Answers to generate, of which the `n` best are given."""
    n = 1 if body.n is None else body.n
    best_of = n if body.best_of is None else body.best_of
    if n == 0:
        raise ValidationError("`n` must be > 0. Given: 0")
    if best_of < n:
        raise ValidationError(f"`best_of` must be >= `n`. Given: {best_of} and {n}")
    if best_of > n:
        if body.stream:
            raise ValidationError("`best_of` > `n` is not supported when streaming tokens")
        if best_of > limits.max_best_of:
            raise ValidationError(f"`best_of` must be > 0 and <= {limits.max_best_of}. Given: {best_of}")
    return best_of


def _parameters(body: CompletionBody) -> Parameters:
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
        max_new_tokens=1 if is_prompt_only(body) else _max_tokens(body),
        min_tokens=body.min_tokens,
        ignore_eos=bool(body.ignore_eos),
        stop=body.stop,
        stop_token_ids=body.stop_token_ids,
        logit_bias=body.logit_bias,
        watermark=bool(body.watermark),
        truncate=body.truncate_prompt_tokens,
        seed=body.seed,
        top_n_tokens=body.logprobs,
        grammar=_grammar(body))


def _grammar(body: CompletionBody) -> object:
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
            return value
        kind = name.removeprefix("guided_").removeprefix("structured_outputs.")
        if kind not in _KINDS:
            raise ValidationError(f"`{name}` is not supported")
        return {"type": kind, "value": value}
    return None


_KINDS = ("json", "regex", "choice", "grammar")
