"""Checks requests by TGI's rules, in TGI's order and words, and makes the engine's requests of them."""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple, Protocol

from penstock.contract.facts import Facts
from penstock.contract.sampling import Sampling
from penstock.router.adapters.registry import Adapter, Registry
from penstock.router.engine.request import Request
from penstock.router.errors import ValidationError
from penstock.router.generation.beams import beams_of, check_beams
from penstock.router.generation.float32 import shortest_float32
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.seeds import derived_seed
from penstock.router.generation.spec import TGI_NAMES, FieldNames, GenerationSpec
from penstock.router.grammar.forms import parse_grammar
from penstock.router.grammar.matcher import Grammar, GrammarError
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.limits import Limits
from penstock.router.scheduling.priorities import MAX_PRIORITY, MIN_PRIORITY
from penstock.router.text.encoding import TokenizerError, TooManyTokens
from penstock.router.text.tokenizer import Tokenizer

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
_TGI_CHUNK = 1024
"""TGI counts no more new tokens than this against the limit on total tokens."""
MAX_STOP_CHARACTERS = 1024
"""The longest stop string; so much of an answer may have to be held back for it."""
MAX_STOP_TOKEN_IDS = 128
MAX_BIAS = 100.0
"""The largest bias, as OpenAI has it; a token with it is certain, or impossible."""


class _Range(NamedTuple):
    """The range of a number, in TGI's words and in those of OpenAI's routes, where a number that changes nothing may
    be given, too; such a one never comes to the rule. `bounds` are those that `_beyond` takes."""

    tgi: str
    openai: str
    bounds: dict[str, float]


_RANGES = {
    "temperature": _Range("strictly positive", ">= 0.0", {"above": 0}),
    "repetition_penalty": _Range("strictly positive", "> 0.0", {"above": 0}),
    "frequency_penalty": _Range(">= -2.0 and <= 2.0", ">= -2.0 and <= 2.0", {"least": -2, "most": 2}),
    "top_p": _Range("> 0.0 and < 1.0", ">= 0.0 and <= 1.0", {"above": 0, "below": 1}),
    "typical_p": _Range("> 0.0 and < 1.0", "> 0.0 and <= 1.0", {"above": 0, "below": 1}),
    "top_k": _Range("strictly positive", ">= -1", {"above": 0}),
    "presence_penalty": _Range(">= -2.0 and <= 2.0", ">= -2.0 and <= 2.0", {"least": -2, "most": 2}),
    "min_p": _Range(">= 0.0 and <= 1.0", ">= 0.0 and <= 1.0", {"least": 0, "most": 1}),
}
"""Those of sampling, in the order in which TGI checks them."""


class Grammars(Protocol):
    """The compiler of grammars."""

    async def compile(self, spec: GrammarSpec) -> Grammar | GrammarSpec:
        """Returns the grammar, or the same spec if it was compiled where it is followed. Raises GrammarError."""


def check_mode(spec: GenerationSpec, limits: Limits, adapters: Registry, is_stream: bool) -> None:
    """Checks the rules that come before a permit: how many answers there may be, what a stream can't carry, who may
    come before others, and whether there is such an adapter."""
    check_beams(spec, limits, is_stream)
    best_of = 1 if spec.parameters.best_of is None else spec.parameters.best_of
    _check_number(spec.parameters, limits, is_stream)
    if is_stream:
        _refuse_if(best_of != 1, "`best_of` != 1 is not supported when streaming tokens")
        _refuse_if(spec.parameters.decoder_input_details,
                   "`decoder_input_details` == true is not supported when streaming tokens")
    elif best_of > 1:
        _refuse_if(limits.max_best_of == 1, "`best_of` != 1 is not allowed for this endpoint")
        _refuse_if(best_of > limits.max_best_of, f"`best_of` must be > 0 and <= {limits.max_best_of}. Given: {best_of}")
    most = limits.max_concurrent_requests
    name = "n" if spec.parameters.n in (None, spec.n) else "best_of"
    _refuse_if(spec.n > max(1, most), f"`{name}` must be <= {most}. Given: {spec.n}", "integer_above_max_value")
    _check_priority(spec.parameters.priority, limits)
    adapters.check(spec.adapter)


def _check_number(parameters: Parameters, limits: Limits, is_stream: bool) -> None:
    """Checks `n` of TGI's routes, which can't return more answers than candidates."""
    n, best_of = parameters.n, parameters.best_of
    if n in (None, 1):
        return
    _refuse_if(is_stream, f"`n` != 1 is not supported when streaming tokens; `/v1/completions` has it. Given: {n}")
    _refuse_beyond(n, f"`n` must be > 0 and <= {limits.max_best_of}. Given: {n}", above=0, most=limits.max_best_of)
    _refuse_beyond(best_of, f"`best_of` must be >= `n`. Given: {best_of} and {n}", least=n)


def _check_priority(priority: int | None, limits: Limits) -> None:
    _refuse_beyond(priority, f"`priority` must be >= {MIN_PRIORITY} and <= {MAX_PRIORITY}. Given: {priority}",
                   least=MIN_PRIORITY, most=MAX_PRIORITY)
    _refuse_if(priority is not None and priority < 0 and not limits.allow_priorities,
               "`priority` must be >= 0, for this server lets no client come before others: it was started without "
               f"--allow-priorities. Given: {priority}", "integer_below_min_value")


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
    _check_sampling(parameters, spec.names)
    _check_extent(spec, limits)
    input_ids = await _input_ids(spec, tokenizer, limits)
    _check_tokens(input_ids, parameters.max_new_tokens, limits, facts.vocab_size, spec.names)
    room = limits.max_total_tokens - len(input_ids)
    max_new_tokens = room if parameters.max_new_tokens is None else min(parameters.max_new_tokens, room)
    _check_additions(parameters, max_new_tokens, facts.vocab_size, spec.names)
    request = Request(
        input_ids=input_ids,
        bits=facts.bits,
        needs_bits=needs_bits,
        sampling=_sampling(spec, facts.eos_token_ids, seed),
        max_new_tokens=max_new_tokens,
        stop=tuple(parameters.stop),
        keep_stop=spec.keep_stop,
        beams=beams_of(parameters),
        ignore_eos=parameters.ignore_eos,
        stop_token_ids=frozenset(parameters.stop_token_ids),
        grammar=await _compile(parameters, grammars, spec.names),
        wants_prompt_logprobs=spec.wants_prompt_logprobs,
        side_inputs=spec.side_inputs,
        priority=parameters.priority or 0,
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
        _check_length(error.number, str(error), spec.parameters.max_new_tokens, limits, spec.names)
        raise
    except TokenizerError as error:
        raise ValidationError(f"tokenizer error {error}", param=spec.names.inputs) from error


async def _compile(
    parameters: Parameters, grammars: Grammars | None, names: FieldNames
) -> Grammar | GrammarSpec | None:
    """Compiles the grammar, if there is one; checks rule 17."""
    grammar = parameters.grammar
    if grammar is None:
        return None
    if grammars is None:
        raise ValidationError("grammar is not supported", "unsupported_parameter", names.grammar)
    if not isinstance(grammar, GrammarSpec):
        grammar = parse_grammar(grammar)
    try:
        return await grammars.compile(grammar)
    except GrammarError as error:
        raise ValidationError(f"grammar is not valid: {error}", param=names.grammar) from error


def _answers(request: Request, spec: GenerationSpec) -> list[Request]:
    """Returns the requests of all answers: candidates for the best have a seed each, samples are branches of one seed.
    A beam search is one request.

    Prompt logprobs are computed for the first alone.
    """
    sampling = request.sampling
    requests = [request]
    for number in range(1, 1 if spec.has_beams else spec.num_answers):
        if spec.n > 1 or not sampling.do_sample:
            other = replace(sampling, branch=number)
        else:
            other = replace(sampling, seed=derived_seed(sampling.seed, number))
        requests.append(replace(request, sampling=other, wants_prompt_logprobs=False))
    return requests


def _refuse_if(is_broken: bool, rule: str, code: str = "invalid_value") -> None:
    if is_broken:
        raise ValidationError(rule, code)


def _beyond(
    value: float | None, *, above: float = -math.inf, least: float = -math.inf, below: float = math.inf,
    most: float = math.inf
) -> str | None:
    """Returns OpenAI's word for a value that is there, and is not `above` one bound, at least another, `below` one or
    at most one; None for any other."""
    if value is None or (above < value < below and least <= value <= most):
        return None
    kind = "integer" if isinstance(value, int) else "decimal"
    return f"{kind}_below_min_value" if value <= above or value < least else f"{kind}_above_max_value"


def _refuse_beyond(value: float | None, rule: str, **bounds: float) -> None:
    """Refuses a value that is beyond the bounds that `_beyond` takes."""
    if code := _beyond(value, **bounds):
        raise ValidationError(rule, code)


def _out_of_range(name: str, range_: _Range, value: float, names: FieldNames) -> str:
    """Returns the sentence for a number that is out of its range: TGI's for TGI's names."""
    if names is TGI_NAMES:
        return f"`{name}` must be {range_.tgi}"
    return f"`{name}` must be {range_.openai}. Given: {value if isinstance(value, int) else shortest_float32(value)}"


def _check_sampling(parameters: Parameters, names: FieldNames) -> None:
    """Checks rules 1 to 7, on how tokens are drawn."""
    p = parameters
    has_warper = any(value is not None for value in (p.temperature, p.top_k, p.top_p, p.typical_p, p.min_p))
    for name, number in (("best_of", p.best_of), ("n", p.n)):
        _refuse_if((number or 1) > 1 and not p.do_sample and not has_warper,
                   f"you must use sampling when `{name}` is > 1")
    for name, range_ in _RANGES.items():
        value = getattr(p, name)
        if code := _beyond(value, **range_.bounds):
            raise ValidationError(_out_of_range(name, range_, value, names), code)


def _check_extent(spec: GenerationSpec, limits: Limits) -> None:
    """Checks rules 8 to 13, on how long the prompt and the answer may be."""
    p, names = spec.parameters, spec.names
    _refuse_beyond(p.max_new_tokens, f"`{names.max_new_tokens}` must be strictly positive", above=0)
    _refuse_if(len(p.stop) > limits.max_stop_sequences,
               f"`stop` supports up to {limits.max_stop_sequences} stop sequences. Given: {len(p.stop)}",
               "array_above_max_length")
    _refuse_if("" in p.stop, "`stop` sequences cannot be empty", "empty_string")
    longest = max(map(len, p.stop), default=0)
    _refuse_if(longest > MAX_STOP_CHARACTERS,
               f"`stop` sequences must have <= {MAX_STOP_CHARACTERS} characters. Given: {longest}",
               "string_above_max_length")
    _refuse_if(p.seed is not None and (p.best_of or 1) > 1 and p.n in (None, 1),
               "`seed` must not be set when `best_of` > 1")
    _refuse_beyond(p.top_n_tokens, f"`{names.top_n_tokens}` must be >= 0 and <= {limits.max_top_n_tokens}. "
                                   f"Given: {p.top_n_tokens}", most=limits.max_top_n_tokens)
    _refuse_if(not spec.inputs, f"`{names.inputs}` cannot be empty", "empty_string")
    _refuse_beyond(p.truncate, f"`{names.truncate}` must be strictly positive and less than "
                               f"{limits.max_input_tokens}. Given: {p.truncate}", above=0, most=limits.max_input_tokens)


def _check_length(length: int, given: str, max_new_tokens: int | None, limits: Limits, names: FieldNames) -> None:
    """Checks rules 15 and 16, on the number of tokens, which messages tell as it was `given`."""
    total = limits.max_total_tokens
    wanted = max(0, total - length) if max_new_tokens is None else max_new_tokens
    chunk = min(wanted, _TGI_CHUNK)
    _refuse_if(length + chunk > total, _too_long(given, chunk, wanted, total, names), CONTEXT_LENGTH_EXCEEDED)
    _refuse_if(length > limits.max_input_tokens,
               f"`{names.inputs}` must have less than {limits.max_input_tokens} tokens. Given: {given}",
               CONTEXT_LENGTH_EXCEEDED)


def _check_tokens(
    input_ids: tuple[int, ...], max_new_tokens: int | None, limits: Limits, vocab_size: int, names: FieldNames
) -> None:
    """Checks rules 15 and 16, and that the model has these tokens at all."""
    length = len(input_ids)
    _check_length(length, str(length), max_new_tokens, limits, names)
    _refuse_if(not length, f"`{names.inputs}` cannot be empty", "empty_string")
    largest = max(input_ids)
    _refuse_if(largest >= vocab_size,
               f"`{names.inputs}` must have token ids < {vocab_size}, the model's vocabulary. Given: {largest}")


def _too_long(given: str, chunk: int, wanted: int, total: int, names: FieldNames) -> str:
    """Returns the sentence for a prompt and an answer that exceed the context: TGI's for TGI's names; else one with the
    words by which clients of OpenAI's API know that they must send less."""
    if names is TGI_NAMES:
        return (f"`inputs` tokens + `max_new_tokens` must be <= {total}. "
                f"Given: {given} `inputs` tokens and {chunk} `max_new_tokens`")
    return (f"`{names.inputs}` and `{names.max_new_tokens}` are too long: this model's maximum context length is "
            f"{total} tokens. Given: {given} tokens of `{names.inputs}` and {wanted} of `{names.max_new_tokens}`")


def _check_additions(parameters: Parameters, max_new_tokens: int, vocab_size: int, names: FieldNames) -> None:
    """Checks the rules of parameters that TGI does not have, or ignores."""
    p = parameters
    _refuse_beyond(p.min_tokens, f"`min_tokens` must be <= `{names.max_new_tokens}`. "
                                 f"Given: {p.min_tokens} and {max_new_tokens}", most=max_new_tokens)
    _refuse_if(len(p.stop_token_ids) > MAX_STOP_TOKEN_IDS,
               f"`stop_token_ids` supports up to {MAX_STOP_TOKEN_IDS} token ids. Given: {len(p.stop_token_ids)}",
               "array_above_max_length")
    for bias in (min(p.logit_bias.values(), default=0), max(p.logit_bias.values(), default=0)):
        _refuse_beyond(bias, f"`logit_bias` must have values >= {-MAX_BIAS} and <= {MAX_BIAS}", least=-MAX_BIAS,
                       most=MAX_BIAS)
    for name, ids in (("stop_token_ids", p.stop_token_ids), ("logit_bias", p.logit_bias)):
        largest = max(ids, default=0)
        _refuse_if(largest >= vocab_size,
                   f"`{name}` must have token ids < {vocab_size}, the model's vocabulary. Given: {largest}")


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
        bias_ids=tuple(sorted(p.logit_bias)),
        bias_values=tuple(value for _, value in sorted(p.logit_bias.items())),
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
