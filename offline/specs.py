"""From a prompt and its sampling parameters to the router's spec of a generation."""

from dataclasses import fields
from typing import Any

from pydantic import ValidationError as WrongType

from penstock.offline.prompts import Prompt
from penstock.offline.sampling_params import BeamSearchParams, SamplingParams, StructuredOutputsParams
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.prompts import truncation
from penstock.router.generation.service import Service
from penstock.router.generation.shown_tokens import shown_ids
from penstock.router.generation.spec import FieldNames, GenerationSpec
from penstock.router.grammar.forms import parse_guided
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.limits import Limits

NAMES = FieldNames(inputs="prompt", max_new_tokens="max_tokens", top_n_tokens="logprobs",
                   truncate="truncate_prompt_tokens", grammar="structured_outputs", num_beams="beam_width",
                   beam_search="beam_width", prompt_logprobs="prompt_logprobs")
_OURS = {"max_new_tokens": "max_tokens", "top_n_tokens": "logprobs", "truncate": "truncate_prompt_tokens",
         "grammar": "structured_outputs", "num_beams": "beam_width"}


def spec_of(
    prompt: Prompt, params: SamplingParams, service: Service, seed: int | None = None, adapter: str | None = None,
    priority: int = 0, beams: BeamSearchParams | None = None,
) -> GenerationSpec:
    """Returns the spec of a prompt; `seed` is for parameters that have none, `beams` asks for a search. Raises
    TypeError and ValueError, which name the field, as far as a fault can be seen without the model."""
    parameters = _parameters(params, service.limits, prompt.cache_salt, seed, priority, beams)
    return GenerationSpec(
        inputs=prompt.inputs,
        parameters=parameters,
        n=num_candidates(params),
        is_greedy=params.temperature == 0,
        keep_stop=params.include_stop_str_in_output,
        tells_special=False,
        add_special_tokens=prompt.add_special_tokens,
        has_openai_penalties=True,
        raw_logprobs=True,
        wants_prompt_logprobs=params.prompt_logprobs is not None,
        shown_ids=shown_ids(service, parameters, skip_special_tokens=params.skip_special_tokens,
                            keep_stop=params.include_stop_str_in_output),
        adapter=adapter,
        names=NAMES)


def num_candidates(params: SamplingParams) -> int:
    """Returns how many answers are generated. Raises ValueError."""
    for name, value in (("n", params.n), ("best_of", params.best_of)):
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"`{name}` must be a number from 1 on. Given: {value!r}")
    if params.best_of is not None and params.best_of < params.n:
        raise ValueError(f"`best_of` must be >= `n`. Given: {params.best_of} and {params.n}")
    return params.best_of or params.n


def _parameters(
    params: SamplingParams, limits: Limits, cache_salt: str | None, seed: int | None, priority: int,
    beams: BeamSearchParams | None,
) -> Parameters:
    if not params.detokenize and params.stop:
        raise ValueError("`stop` needs `detokenize`: strings are looked for in texts")
    for name in ("logprobs", "prompt_logprobs"):
        if (value := getattr(params, name)) is not None and (type(value) is not int or value < 0):
            raise ValueError(f"`{name}` must be a number from 0 on. Given: {value!r}")
    is_greedy = params.temperature == 0
    stop = [params.stop] if isinstance(params.stop, str) else _listed(params.stop)
    try:
        return Parameters(
            temperature=None if is_greedy else params.temperature,
            repetition_penalty=params.repetition_penalty,
            frequency_penalty=params.frequency_penalty,
            presence_penalty=params.presence_penalty,
            top_k=None if params.top_k in (0, -1) else params.top_k,
            top_p=None if params.top_p == 1 else params.top_p,
            typical_p=None if params.typical_p == 1 else params.typical_p,
            min_p=params.min_p,
            do_sample=not is_greedy,
            max_new_tokens=params.max_tokens,
            min_tokens=params.min_tokens,
            ignore_eos=params.ignore_eos,
            stop=stop,
            stop_token_ids=_listed(params.stop_token_ids),
            logit_bias=params.logit_bias or {},
            truncate=truncation(params.truncate_prompt_tokens, limits, params.max_tokens),
            bad_words=_listed(params.bad_words),
            allowed_token_ids=None if params.allowed_token_ids is None else _listed(params.allowed_token_ids),
            cache_salt=cache_salt,
            seed=seed if params.seed is None else params.seed,
            priority=priority or None,
            **_of_search(beams, params.n),
            top_n_tokens=max(params.logprobs or 0, params.prompt_logprobs or 0) or None,
            grammar=_grammar(params.structured_outputs))
    except WrongType as error:
        raise _named(error.errors()[0]) from error


def _listed(values: Any) -> Any:
    """Returns a list for a tuple and for None, and all else as it is, for the parameters to check."""
    return [*(values or ())] if values is None or isinstance(values, tuple) else values


def _of_search(beams: BeamSearchParams | None, num_answers: int) -> dict[str, Any]:
    """Returns the parameters of a beam search; none if it is no search."""
    if beams is None:
        return {}
    if beams.temperature != 0:
        raise ValueError(f"`temperature` of a beam search must be 0: it draws nothing. Given: {beams.temperature}")
    # Of a single beam, with which nothing is compared, the score is made later.
    length_penalty = None if beams.beam_width == 1 else beams.length_penalty
    return {"num_beams": beams.beam_width, "num_return_sequences": num_answers, "length_penalty": length_penalty,
            "early_stopping": beams.early_stopping}


def _named(fault: Any) -> ValueError:
    name = str(fault["loc"][0])
    return ValueError(f"`{_OURS.get(name, name)}`: {fault['msg']}. Given: {fault['input']!r:.100}")


def _grammar(form: StructuredOutputsParams | None) -> GrammarSpec | None:
    if form is None:
        return None
    if not isinstance(form, StructuredOutputsParams):
        raise TypeError(f"`structured_outputs` must be a StructuredOutputsParams. Given: {type(form).__name__}")
    return parse_guided({"structured_outputs": {each.name: getattr(form, each.name) for each in fields(form)}})
