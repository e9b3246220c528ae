"""What a request may ask for: TGI's rules in TGI's order and words, and from them the request the engine takes."""

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from penstock.router.adapters.registry import Adapter, Registry
from penstock.router.engine.limits import Limits
from penstock.router.engine.request import Request
from penstock.router.errors import ValidationError
from penstock.router.fleet.facts import Facts
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.seeds import derived_seed
from penstock.router.generation.spec import GenerationSpec
from penstock.router.grammar.forms import parse_grammar
from penstock.router.grammar.matcher import Grammar, GrammarError
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.scheduling.plan import Sampling
from penstock.router.text.encoding import TokenizerError, TooManyTokens
from penstock.router.text.tokenizer import Tokenizer

_TGI_CHUNK = 1024
"""TGI counts no more new tokens than this against the limit on total tokens."""
MAX_STOP_CHARACTERS = 1024
"""The longest stop string; so much of an answer may have to be held back for it."""
MAX_STOP_TOKEN_IDS = 128
MAX_BIAS = 100.0
"""The largest bias, as OpenAI has it; a token with it is certain, or impossible."""


class Grammars(Protocol):
    """What grammars are compiled by."""

    async def compile(self, spec: GrammarSpec) -> Grammar | GrammarSpec:
        """Returns the grammar, or the same spec if it was compiled where it is followed. Raises GrammarError."""


def check_mode(spec: GenerationSpec, limits: Limits, adapters: Registry, is_stream: bool) -> None:
    """Checks the rules that come before a permit: how many answers there may be, what a stream can't carry, and whether
    there is such an adapter."""
    best_of = 1 if spec.parameters.best_of is None else spec.parameters.best_of
    if is_stream:
        _refuse_if(best_of != 1, "`best_of` != 1 is not supported when streaming tokens")
        _refuse_if(spec.parameters.decoder_input_details,
                   "`decoder_input_details` == true is not supported when streaming tokens")
    elif best_of > 1:
        _refuse_if(limits.max_best_of == 1, "`best_of` != 1 is not allowed for this endpoint")
        _refuse_if(best_of > limits.max_best_of, f"`best_of` must be > 0 and <= {limits.max_best_of}. Given: {best_of}")
    _refuse_if(spec.n > max(1, limits.max_concurrent_requests),
               f"`n` must be <= {limits.max_concurrent_requests}. Given: {spec.n}")
    adapters.check(spec.adapter)


async def validate(
    spec: GenerationSpec, limits: Limits, tokenizer: Tokenizer, facts: Facts, grammars: Grammars | None,
    adapters: Registry, seed: int, needs_bits: bool = False, adapter: Adapter | None = None,
) -> list[Request]:
    """Returns a request for each answer. A ValidationError says the first rule that is broken.

    `seed` is that of a request which has none itself. `grammars` is None where the server was told to have none.
    `facts` are of the kind of group that should answer, or must if the request `needs_bits`. `adapter` is the one that
    was found for the request's name, if it was.
    """
    parameters = spec.parameters
    _check_sampling(parameters)
    _check_extent(spec, limits)
    input_ids = await _input_ids(spec, tokenizer, limits)
    _check_tokens(input_ids, parameters.max_new_tokens, limits, facts.vocab_size)
    room = limits.max_total_tokens - len(input_ids)
    max_new_tokens = room if parameters.max_new_tokens is None else min(parameters.max_new_tokens, room)
    _check_additions(parameters, max_new_tokens, facts.vocab_size)
    request = Request(
        input_ids=input_ids,
        bits=facts.bits,
        needs_bits=needs_bits,
        sampling=_sampling(spec, facts.eos_token_ids, seed),
        max_new_tokens=max_new_tokens,
        stop=tuple(parameters.stop),
        keep_stop=spec.keep_stop,
        ignore_eos=parameters.ignore_eos,
        stop_token_ids=frozenset(parameters.stop_token_ids),
        grammar=await _compile(parameters, grammars),
        wants_prompt_logprobs=spec.wants_prompt_logprobs,
        shown_ids=spec.shown_ids,
        adapter=None if spec.adapter is None else adapter or await adapters.get(spec.adapter))
    return _answers(request, spec)


async def _input_ids(spec: GenerationSpec, tokenizer: Tokenizer, limits: Limits) -> tuple[int, ...]:
    truncate = spec.parameters.truncate
    if not isinstance(spec.inputs, str):
        return spec.inputs if truncate is None else spec.inputs[-truncate:]
    try:
        return await tokenizer.encode(spec.inputs, spec.add_special_tokens, truncate, limits.max_input_tokens)
    except TooManyTokens as error:
        _check_length(error.number, str(error), spec.parameters.max_new_tokens, limits)
        raise
    except TokenizerError as error:
        raise ValidationError(f"tokenizer error {error}") from error


async def _compile(parameters: Parameters, grammars: Grammars | None) -> Grammar | GrammarSpec | None:
    """Compiles the grammar, if there is one; checks rule 17."""
    grammar = parameters.grammar
    if grammar is None:
        return None
    if grammars is None:
        raise ValidationError("grammar is not supported")
    if not isinstance(grammar, GrammarSpec):
        grammar = parse_grammar(grammar)
    try:
        return await grammars.compile(grammar)
    except GrammarError as error:
        raise ValidationError(f"grammar is not valid: {error}") from error


def _answers(request: Request, spec: GenerationSpec) -> list[Request]:
    """Returns the requests of all answers: candidates for the best have a seed each, samples are branches of one seed.

    Prompt logprobs are computed for the first alone.
    """
    sampling = request.sampling
    requests = [request]
    for number in range(1, spec.num_answers):
        if spec.n > 1 or not sampling.do_sample:
            other = replace(sampling, branch=number)
        else:
            other = replace(sampling, seed=derived_seed(sampling.seed, number))
        requests.append(replace(request, sampling=other, wants_prompt_logprobs=False))
    return requests


def _refuse_if(is_broken: bool, rule: str) -> None:
    if is_broken:
        raise ValidationError(rule)


def _check_sampling(parameters: Parameters) -> None:
    """Checks rules 1 to 7, on how tokens are drawn."""
    p = parameters
    has_warper = any(value is not None for value in (p.temperature, p.top_k, p.top_p, p.typical_p, p.min_p))
    _refuse_if((p.best_of or 1) > 1 and not p.do_sample and not has_warper,
               "you must use sampling when `best_of` is > 1")
    _refuse_if(p.temperature is not None and p.temperature <= 0, "`temperature` must be strictly positive")
    _refuse_if(p.repetition_penalty is not None and p.repetition_penalty <= 0,
               "`repetition_penalty` must be strictly positive")
    _refuse_if(p.frequency_penalty is not None and not -2 <= p.frequency_penalty <= 2,
               "`frequency_penalty` must be >= -2.0 and <= 2.0")
    _refuse_if(p.top_p is not None and not 0 < p.top_p < 1, "`top_p` must be > 0.0 and < 1.0")
    _refuse_if(p.typical_p is not None and not 0 < p.typical_p < 1, "`typical_p` must be > 0.0 and < 1.0")
    _refuse_if(p.top_k is not None and p.top_k <= 0, "`top_k` must be strictly positive")
    _refuse_if(p.presence_penalty is not None and not -2 <= p.presence_penalty <= 2,
               "`presence_penalty` must be >= -2.0 and <= 2.0")
    _refuse_if(p.min_p is not None and not 0 <= p.min_p <= 1, "`min_p` must be >= 0.0 and <= 1.0")


def _check_extent(spec: GenerationSpec, limits: Limits) -> None:
    """Checks rules 8 to 13, on how long the prompt and the answer may be."""
    p = spec.parameters
    _refuse_if(p.max_new_tokens == 0, "`max_new_tokens` must be strictly positive")
    _refuse_if(len(p.stop) > limits.max_stop_sequences,
               f"`stop` supports up to {limits.max_stop_sequences} stop sequences. Given: {len(p.stop)}")
    _refuse_if("" in p.stop, "`stop` sequences cannot be empty")
    longest = max(map(len, p.stop), default=0)
    _refuse_if(longest > MAX_STOP_CHARACTERS,
               f"`stop` sequences must have <= {MAX_STOP_CHARACTERS} characters. Given: {longest}")
    _refuse_if(p.seed is not None and (p.best_of or 1) > 1, "`seed` must not be set when `best_of` > 1")
    _refuse_if((p.top_n_tokens or 0) > limits.max_top_n_tokens,
               f"`top_n_tokens` must be >= 0 and <= {limits.max_top_n_tokens}. Given: {p.top_n_tokens}")
    _refuse_if(not spec.inputs, "`inputs` cannot be empty")
    _refuse_if(p.truncate is not None and not 0 < p.truncate <= limits.max_input_tokens,
               f"`truncate` must be strictly positive and less than {limits.max_input_tokens}. Given: {p.truncate}")


def _check_length(length: int, given: str, max_new_tokens: int | None, limits: Limits) -> None:
    """Checks rules 15 and 16, on the number of tokens, which messages tell as it was `given`."""
    total = limits.max_total_tokens
    wanted = max(0, total - length) if max_new_tokens is None else max_new_tokens
    chunk = min(wanted, _TGI_CHUNK)
    _refuse_if(length + chunk > total,
               f"`inputs` tokens + `max_new_tokens` must be <= {total}. "
               f"Given: {given} `inputs` tokens and {chunk} `max_new_tokens`")
    _refuse_if(length > limits.max_input_tokens,
               f"`inputs` must have less than {limits.max_input_tokens} tokens. Given: {given}")


def _check_tokens(input_ids: tuple[int, ...], max_new_tokens: int | None, limits: Limits, vocab_size: int) -> None:
    """Checks rules 15 and 16, and that the model has these tokens at all."""
    length = len(input_ids)
    _check_length(length, str(length), max_new_tokens, limits)
    _refuse_if(not length, "`inputs` cannot be empty")
    largest = max(input_ids)
    _refuse_if(largest >= vocab_size,
               f"`inputs` must have token ids < {vocab_size}, the model's vocabulary. Given: {largest}")


def _check_additions(parameters: Parameters, max_new_tokens: int, vocab_size: int) -> None:
    """Checks the rules of parameters that TGI does not have, or ignores."""
    p = parameters
    _refuse_if((p.min_tokens or 0) > max_new_tokens,
               f"`min_tokens` must be <= `max_new_tokens`. Given: {p.min_tokens} and {max_new_tokens}")
    _refuse_if(len(p.stop_token_ids) > MAX_STOP_TOKEN_IDS,
               f"`stop_token_ids` supports up to {MAX_STOP_TOKEN_IDS} token ids. Given: {len(p.stop_token_ids)}")
    _refuse_if(any(abs(bias) > MAX_BIAS for bias in p.logit_bias.values()),
               f"`logit_bias` must have values >= {-MAX_BIAS} and <= {MAX_BIAS}")
    for name, ids in (("stop_token_ids", p.stop_token_ids), ("logit_bias", p.logit_bias)):
        largest = max(ids, default=0)
        _refuse_if(largest >= vocab_size,
                   f"`{name}` must have token ids < {vocab_size}, the model's vocabulary. Given: {largest}")
    _refuse_if(p.n is not None and p.n != 1,
               f"`n` is not supported on this route, other than 1; `/v1/completions` has it. Given: {p.n}")


def _sampling(spec: GenerationSpec, eos_token_ids: Collection[int], seed: int) -> Sampling:
    """Fills in defaults, and `seed` where none came. As in TGI, a warper that changes something makes the answer a
    sampled one."""
    p = spec.parameters
    frequency_penalty = p.frequency_penalty or 0.0
    min_tokens = p.min_tokens or 0
    common = Sampling(
        watermark=p.watermark,
        repetition_penalty=1.0 if p.repetition_penalty is None else p.repetition_penalty,
        share_penalty=0.0 if spec.has_openai_penalties else frequency_penalty,
        frequency_penalty=frequency_penalty if spec.has_openai_penalties else 0.0,
        presence_penalty=p.presence_penalty or 0.0,
        bias=tuple(sorted(p.logit_bias.items())),
        banned_ids=tuple(sorted({*eos_token_ids, *p.stop_token_ids})) if min_tokens else (),
        min_tokens=min_tokens,
        raw_logprobs=spec.raw_logprobs,
        top_n=p.top_n_tokens or 0)
    if spec.is_greedy:
        return common
    warped = replace(
        common,
        temperature=1.0 if p.temperature is None else p.temperature,
        top_k=p.top_k or 0,
        top_p=1.0 if p.top_p is None else p.top_p,
        typical_p=1.0 if p.typical_p is None else p.typical_p,
        min_p=p.min_p or 0.0)
    if not p.do_sample and warped == common:
        return common
    return replace(warped, do_sample=True, seed=seed if p.seed is None else p.seed)
