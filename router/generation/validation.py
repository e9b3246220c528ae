"""Checks requests by TGI's rules, in TGI's order and words, and makes the engine's requests of them."""

import hashlib
from dataclasses import replace
from typing import NamedTuple, Protocol

from penstock.contract.facts import Facts
from penstock.router.adapters.registry import Adapter, Registry
from penstock.router.engine.request import Request
from penstock.router.errors import TooLong, ValidationError
from penstock.router.generation.bad_words import check_bad_words, encode_bad_words
from penstock.router.generation.beams import beams_of
from penstock.router.generation.float32 import shortest_float32
from penstock.router.generation.mode import given_priority
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.refusals import beyond, refuse_beyond, refuse_if
from penstock.router.generation.request_record import current, waiting
from penstock.router.generation.sampling import sampling_of
from penstock.router.generation.seeds import derived_seed
from penstock.router.generation.spec import TGI_NAMES, FieldNames, GenerationSpec
from penstock.router.grammar.forms import parse_grammar
from penstock.router.grammar.matcher import Grammar, GrammarError
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.limits import Limits
from penstock.router.scheduling.promise import Deadline
from penstock.router.text.encoding import TokenizerError, TooManyTokens
from penstock.router.text.tokenizer import Tokenizer

_TGI_CHUNK = 1024
"""TGI counts no more new tokens than this against the limit on total tokens."""
MAX_STOP_CHARACTERS = 1024
"""The longest stop string; so much of an answer may have to be held back for it."""
MAX_STOP_TOKEN_IDS = 128
MAX_BIAS = 100.0
"""The largest bias, as OpenAI has it; a token with it is certain, or impossible."""


class _Range(NamedTuple):
    """The range of a number, in TGI's words and in those of OpenAI's routes, where a number that changes nothing may
    be given, too; such a one never comes to the rule. `bounds` are those that `beyond` takes."""

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
    is_ours = isinstance(spec.inputs, str) and tokenizer.num_ids <= facts.vocab_size
    _check_tokens(input_ids, spec.least_room, limits, None if is_ours else facts.vocab_size, spec.names)
    room = limits.max_total_tokens - len(input_ids)
    max_new_tokens = room if parameters.max_new_tokens is None else min(parameters.max_new_tokens, room)
    _check_additions(parameters, max_new_tokens, facts.vocab_size, spec.names)
    words = parameters.bad_words
    bad_words = await encode_bad_words(words, tokenizer, facts.vocab_size) if words else ()
    request = Request(
        input_ids=input_ids,
        bits=facts.bits,
        needs_bits=needs_bits,
        sampling=sampling_of(spec, facts.eos_token_ids, seed, bad_words),
        max_new_tokens=max_new_tokens,
        stop=tuple(parameters.stop),
        keep_stop=spec.keep_stop,
        tells_special=spec.tells_special,
        beams=beams_of(parameters) if spec.has_beams else None,
        ignore_eos=parameters.ignore_eos,
        stop_token_ids=frozenset(parameters.stop_token_ids),
        grammar=await _compile(parameters, grammars, spec.names),
        wants_prompt_logprobs=spec.wants_prompt_logprobs,
        side_inputs=spec.side_inputs,
        priority=given_priority(parameters.priority),
        deadline=_deadline(parameters.deadline_ms),
        shown_ids=spec.shown_ids,
        salt=digest_of(parameters.cache_salt),
        adapter=None if spec.adapter is None else adapter or await adapters.get(spec.adapter))
    return _answers(request, spec)


def _deadline(milliseconds: int | None) -> Deadline | None:
    return None if milliseconds is None else Deadline(current().received_at + milliseconds / 1000, milliseconds)


async def _input_ids(spec: GenerationSpec, tokenizer: Tokenizer, limits: Limits) -> tuple[int, ...]:
    truncate = spec.parameters.truncate
    if not isinstance(spec.inputs, str):
        return spec.inputs if truncate is None else spec.inputs[-truncate:]
    try:
        return await tokenizer.encode(spec.inputs, spec.add_special_tokens, truncate, limits.max_input_tokens)
    except TooManyTokens as error:
        _check_length(error.number, str(error), spec.least_room, limits, spec.names)
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
        with waiting("grammar"):
            return await grammars.compile(grammar)
    except GrammarError as error:
        raise ValidationError(f"grammar is not valid: {error}", param=names.grammar) from error


def digest_of(salt: str | None) -> str:
    """Returns a name for a salt, as short for a long one; empty if there is none."""
    return "" if salt is None else hashlib.sha256(salt.encode("utf-8", "surrogatepass")).hexdigest()


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
        refuse_if((number or 1) > 1 and not p.do_sample and not has_warper,
                  f"you must use sampling when `{name}` is > 1")
    for name, range_ in _RANGES.items():
        value = getattr(p, name)
        if code := beyond(value, **range_.bounds):
            raise ValidationError(_out_of_range(name, range_, value, names), code)


def _check_extent(spec: GenerationSpec, limits: Limits) -> None:
    """Checks rules 8 to 13, on how long the prompt and the answer may be."""
    p, names = spec.parameters, spec.names
    refuse_beyond(p.max_new_tokens, f"`{names.max_new_tokens}` must be strictly positive", above=0)
    refuse_if(len(p.stop) > limits.max_stop_sequences,
              f"`{names.stop}` supports up to {limits.max_stop_sequences} stop sequences. Given: {len(p.stop)}",
              "array_above_max_length")
    refuse_if("" in p.stop, f"`{names.stop}` sequences cannot be empty", "empty_string")
    longest = max(map(len, p.stop), default=0)
    refuse_if(longest > MAX_STOP_CHARACTERS,
              f"`{names.stop}` sequences must have <= {MAX_STOP_CHARACTERS} characters. Given: {longest}",
              "string_above_max_length")
    refuse_if(p.seed is not None and (p.best_of or 1) > 1 and p.n in (None, 1),
              "`seed` must not be set when `best_of` > 1")
    refuse_beyond(p.top_n_tokens, f"`{names.top_n_tokens}` must be >= 0 and <= {limits.max_top_n_tokens}. "
                                  f"Given: {p.top_n_tokens}", most=limits.max_top_n_tokens)
    refuse_if(not spec.inputs, f"`{names.inputs}` cannot be empty", "empty_string")
    refuse_beyond(p.truncate, f"`{names.truncate}` must be strictly positive and less than "
                              f"{limits.max_input_tokens}. Given: {p.truncate}", above=0, most=limits.max_input_tokens)


def _check_length(length: int, given: str, max_new_tokens: int | None, limits: Limits, names: FieldNames) -> None:
    """Checks rules 15 and 16, on the number of tokens, which messages tell as it was `given`."""
    total = limits.max_total_tokens
    wanted = max(0, total - length) if max_new_tokens is None else max_new_tokens
    chunk = min(wanted, _TGI_CHUNK)
    most = min(total - chunk, limits.max_input_tokens)
    if length + chunk > total:
        raise TooLong(_too_long(given, chunk, wanted, total, names), length, most)
    if length > limits.max_input_tokens:
        raise TooLong(f"`{names.inputs}` must have less than {limits.max_input_tokens} tokens. Given: {given}", length,
                      most)


def _check_tokens(
    input_ids: tuple[int, ...], max_new_tokens: int | None, limits: Limits, vocab_size: int | None, names: FieldNames
) -> None:
    """Checks rules 15 and 16, and that the model has these tokens at all; `vocab_size` is None where it must have."""
    length = len(input_ids)
    _check_length(length, str(length), max_new_tokens, limits, names)
    refuse_if(not length, f"`{names.inputs}` cannot be empty", "empty_string")
    largest = 0 if vocab_size is None else max(input_ids)
    refuse_if(vocab_size is not None and largest >= vocab_size,
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
    refuse_beyond(p.min_tokens, f"`min_tokens` must be <= `{names.max_new_tokens}`. "
                                f"Given: {p.min_tokens} and {max_new_tokens}", most=max_new_tokens)
    refuse_if(len(p.stop_token_ids) > MAX_STOP_TOKEN_IDS,
              f"`stop_token_ids` supports up to {MAX_STOP_TOKEN_IDS} token ids. Given: {len(p.stop_token_ids)}",
              "array_above_max_length")
    for bias in (min(p.logit_bias.values(), default=0), max(p.logit_bias.values(), default=0)):
        refuse_beyond(bias, f"`logit_bias` must have values >= {-MAX_BIAS} and <= {MAX_BIAS}", least=-MAX_BIAS,
                      most=MAX_BIAS)
    if p.bad_words:
        check_bad_words(p.bad_words)
    allowed = p.allowed_token_ids or ()
    refuse_if(len(allowed) > vocab_size, f"`allowed_token_ids` supports up to {vocab_size} token ids, the model's "
                                         f"vocabulary. Given: {len(allowed)}", "array_above_max_length")
    named = {"stop_token_ids": p.stop_token_ids, "logit_bias": p.logit_bias, "allowed_token_ids": allowed}
    for name, ids in named.items():
        largest = max(ids, default=0)
        refuse_if(largest >= vocab_size,
                  f"`{name}` must have token ids < {vocab_size}, the model's vocabulary. Given: {largest}")
