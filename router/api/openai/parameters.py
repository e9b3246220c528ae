"""From a body of any of OpenAI's routes to the parameters of a generation, which have TGI's names."""

from penstock.router.api.openai.bodies import OpenAIBody
from penstock.router.api.openai.manner import grammar_field
from penstock.router.api.openai.service_tier import priority_of
from penstock.router.errors import ValidationError
from penstock.router.generation.beams import refuse_sampling
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.prompts import truncation
from penstock.router.grammar.forms import parse_guided, parse_response_format
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.limits import Limits


def max_tokens(body: OpenAIBody) -> int | None:
    """Returns the limit on an answer's tokens, by either of its names, or the lower of both; None if there is none."""
    return min((limit for limit in (body.max_completion_tokens, body.max_tokens) if limit is not None), default=None)


def parameters(
    body: OpenAIBody, limits: Limits, max_new_tokens: int | None, top_n_tokens: int | None
) -> Parameters:
    """Returns the body's parameters under TGI's names.

    Raises ValidationError if the body asks for a form of the answer that is none, or for more than one, or by two
    fields for its turn.
    """
    is_greedy = body.is_greedy
    made = Parameters(
        temperature=None if body.temperature == 0 or (body.use_beam_search and body.temperature == 1)
        else body.temperature,
        repetition_penalty=body.repetition_penalty,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        top_k=None if body.top_k in (0, -1) else body.top_k,
        top_p=None if body.top_p in (0, 1) else body.top_p,
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
        num_beams=body.num_beams,
        num_return_sequences=body.num_beams,
        length_penalty=body.length_penalty,
        early_stopping=body.early_stopping,
        truncate=truncation(body.truncate_prompt_tokens, limits, max_new_tokens),
        bad_words=body.bad_words,
        allowed_token_ids=body.allowed_token_ids,
        cache_salt=body.cache_salt,
        seed=body.seed,
        top_n_tokens=top_n_tokens,
        priority=priority_of(body, limits),
        deadline_ms=body.deadline_ms,
        grammar=_grammar(body))
    if body.use_beam_search:
        refuse_sampling(made, "use_beam_search")
    return made


def _grammar(body: OpenAIBody) -> GrammarSpec | None:
    try:
        formats = None if body.response_format is None else parse_response_format(body.response_format)
        guided = parse_guided(dict(body))
        if formats is not None and guided is not None:
            raise ValidationError("grammar is not valid: one can be asked for, not 2")
    except ValidationError as error:
        error.param = error.param or grammar_field(body)
        raise
    return guided if formats is None else formats
