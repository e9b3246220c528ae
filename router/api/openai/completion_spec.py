"""Makes generations' specs of a body of OpenAI's completions."""

from penstock.router.api.openai.bodies import CompletionBody
from penstock.router.api.openai.manner import manner_of
from penstock.router.api.openai.parameters import max_tokens, parameters
from penstock.router.api.openai.prompt_logprobs import top_logprobs
from penstock.router.errors import SuffixNotSupported, TooManyPrompts, ValidationError
from penstock.router.generation.fill_in import FillForm, end_ids, fill_form
from penstock.router.generation.other_fields import REFUSED_IN_COMPLETIONS, refuse_unsupported
from penstock.router.generation.service import Service
from penstock.router.generation.shown_tokens import shown_ids
from penstock.router.generation.spec import GenerationSpec
from penstock.router.limits import Limits


def parse(body: CompletionBody, service: Service) -> list[GenerationSpec]:
    """Returns the spec of each prompt of a body. A RouterError names the field that is refused."""
    limits = service.limits
    if len(body.prompt) > limits.max_client_batch_size:
        raise TooManyPrompts(limits.max_client_batch_size)
    refuse_unsupported(body.model_extra, REFUSED_IN_COMPLETIONS)
    num_candidates = _num_candidates(body, limits)
    max_new_tokens = 1 if is_prompt_only(body) else max_tokens(body)
    top = top_logprobs(body, "logprobs", body.logprobs)
    common = parameters(body, limits, max_new_tokens, top_n_tokens=top.number)
    form = _fill_form(body, service)
    if form is not None:
        ends = [*common.stop_token_ids, *end_ids(form, service.tokenizer)]
        common = common.model_copy(update={"stop_token_ids": ends})
    names = manner_of(service).names(body, inputs="prompt", top_n_tokens=top.field)
    return [
        GenerationSpec(
            inputs=_written(prompt, form, body.suffix or ""),
            parameters=common,
            n=1 if body.use_beam_search else num_candidates,
            is_greedy=body.is_greedy,
            keep_stop=body.keeps_stop,
            tells_special=False,
            add_special_tokens=body.add_special_tokens is not False,
            has_openai_penalties=True,
            raw_logprobs=True,
            wants_prompt_logprobs=echoes_logprobs(body) or body.prompt_logprobs is not None,
            shown_ids=shown_ids(service, common, skip_special_tokens=body.skip_special_tokens is not False,
                                keep_stop=body.keeps_stop),
            adapter=service.adapters.named(body.model),
            names=names)
        for prompt in body.prompt]


def _fill_form(body: CompletionBody, service: Service) -> FillForm | None:
    """Returns how prompts with a suffix are written; None if there is none to any."""
    if not body.suffix:
        return None
    form = fill_form(service.tokenizer)
    if form is None:
        raise SuffixNotSupported
    if body.echo:
        raise ValidationError("`echo` is not supported with `suffix`: the answer stands between the two",
                              "unsupported_parameter", "echo")
    return form


def _written(prompt: str | tuple[int, ...], form: FillForm | None, suffix: str) -> str | tuple[int, ...]:
    if form is None:
        return prompt
    if not isinstance(prompt, str):
        raise ValidationError("`suffix` needs `prompt` to be a text. Given: token ids", param="suffix")
    return form.written(prompt, suffix)


def echoes_logprobs(body: CompletionBody) -> bool:
    """Tells whether the logprobs of an answer begin with those of its prompt."""
    return bool(body.echo) and body.logprobs is not None


def is_prompt_only(body: CompletionBody) -> bool:
    """Tells whether only the prompt is to be repeated, with its logprobs; a token is generated all the same, and
    dropped."""
    return bool(body.echo) and max_tokens(body) == 0


def _num_candidates(body: CompletionBody, limits: Limits) -> int:
    """Returns how many answers to generate for each prompt, of which the `n` best are given."""
    n = 1 if body.n is None else body.n
    best_of = n if body.best_of is None else body.best_of
    if n == 0:
        raise ValidationError("`n` must be > 0. Given: 0", "integer_below_min_value")
    most, number = limits.max_concurrent_requests, n * len(body.prompt)
    if n > 1 and number > most:
        raise ValidationError(
            f"`n` times the number of prompts must be <= {most}. Given: {number}", "integer_above_max_value")
    if best_of < n:
        raise ValidationError(f"`best_of` must be >= `n`. Given: {best_of} and {n}")
    if best_of > n:
        if body.use_beam_search:
            raise ValidationError("`best_of` > `n` is not supported with `use_beam_search`: `n` is the number of beams",
                                  "unsupported_parameter", "best_of")
        if body.stream:
            raise ValidationError("`best_of` > `n` is not supported when streaming tokens")
        if best_of > (most := min(limits.max_best_of, limits.max_concurrent_requests)):
            raise ValidationError(
                f"`best_of` must be > 0 and <= {most}. Given: {best_of}", "integer_above_max_value")
    return best_of
