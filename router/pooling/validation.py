"""Checks requests for vectors and scores, and makes the engine's requests of them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from penstock.contract.facts import Facts
from penstock.contract.pooling import Pooling, Task
from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.errors import EmptyText, NotTokenized, TooLong, ValidationError
from penstock.router.generation.mode import check_priority, given_priority
from penstock.router.generation.refusals import refuse_beyond, refuse_if
from penstock.router.generation.service import Service
from penstock.router.generation.spec import FieldNames
from penstock.router.generation.tasks import check_task
from penstock.router.generation.validation import digest_of
from penstock.router.pooling.questions import ReadQuestion
from penstock.router.pooling.spec import PoolingSpec
from penstock.router.text.cutting import Encoded
from penstock.router.text.encoding import TokenizerError, TooManyTokens

MAX_NUMBERS = 1 << 24
"""The most numbers of the vectors of all tokens of a request."""


def check(spec: PoolingSpec, service: Service, facts: Facts) -> None:
    """Checks the rules that come before a permit. Raises ValidationError and GenerationError."""
    limits, names = service.limits, spec.names
    check_task(facts, spec.task)
    if not (spec.inputs if isinstance(spec.inputs, str) else spec.inputs and spec.inputs[0] != ""):
        raise EmptyText(names.inputs)
    if spec.dimensions is not None:
        size = facts.token_vector_size if spec.task is Task.EMBED_ALL else facts.vector_size
        refuse_if(spec.task not in (Task.EMBED, Task.EMBED_ALL),
                  f"`{names.dimensions}` is for vectors that are not sparse")
        refuse_beyond(spec.dimensions, f"`{names.dimensions}` must be > 0 and <= {size}, the size of the model's "
                                       f"vectors. Given: {spec.dimensions}", above=0, most=size)
    most = limits.max_input_tokens
    refuse_beyond(spec.max_tokens, f"`{names.truncate}` must be > 0 and <= {most}. Given: {spec.max_tokens}", above=0,
                  most=most)
    refuse_if(spec.prompt_name is not None and not _takes_prompt(spec),
              "`prompt_name` is for texts that vectors are made of; token ids and texts that are scored have no prompt")
    prompt_of(spec.prompt_name, service)
    check_priority(spec.priority, limits)
    service.adapters.check(spec.adapter)
    service.poison.check(spec)


def check_size(requests: Sequence[Request], facts: Facts, names: FieldNames) -> None:
    """Refuses texts whose tokens have more vectors altogether than a server should hold for one request."""
    check_numbers(facts.token_vector_size * sum(
        len(each.input_ids) for each in requests if each.pooling is not None and each.pooling.task is Task.EMBED_ALL),
                  names)


def check_numbers(number: int, names: FieldNames) -> None:
    """Refuses texts whose vectors have more numbers altogether than a server should hold for one request."""
    refuse_if(number > MAX_NUMBERS,
              f"`{names.inputs}` must have <= {MAX_NUMBERS} numbers in the vectors of all tokens: send fewer texts at "
              f"once. Given: {number}")


def prompt_of(name: str | None, service: Service) -> str:
    """Returns the prompt before a text whose client gives this name, or none. Raises ValidationError for a name that no
    prompt has."""
    if name is None:
        return service.texts.default_prompt
    if name in service.prompts:
        return service.prompts[name]
    known = ", ".join(f"`{each}`" for each in service.prompts)
    raise ValidationError(f"`prompt_name` must be one of {known}. Given: `{name:.100}`" if known else
                          f"`prompt_name` can't be `{name:.100}`: the checkpoint has no prompts")


@dataclass(frozen=True, slots=True)
class Validated:
    """A request for the engine, and how long it took to find its tokens, in seconds."""

    request: Request
    tokenization: float


async def validate(
    spec: PoolingSpec, service: Service, facts: Facts, question: ReadQuestion | None = None
) -> Validated:
    """Returns the request of a spec that was checked; a pair is read amid the `question` that a language model is
    asked. A ValidationError says which rule its tokens break."""
    began_at = time.monotonic()
    prompt = _prompt(spec, service)
    encoded = await _encoded(spec, service, prompt, question)
    ids = _scored(encoded.ids, facts) if spec.task is Task.CLASSIFY else encoded.ids
    skipped = 0
    if prompt and spec.task is Task.EMBED and not service.texts.includes_prompt:
        skipped = await _num_skipped(spec, service, prompt, encoded.ids)
    took = time.monotonic() - began_at
    largest = max(ids)
    refuse_if(largest >= facts.vocab_size, f"`{spec.names.inputs}` must have token ids < {facts.vocab_size}, the "
                                           f"model's vocabulary. Given: {largest}")
    dimensions = spec.dimensions or (min(service.texts.dimensions, facts.vector_size) if spec.task is Task.EMBED else 0)
    pooling = Pooling(spec.task, skipped, encoded.second, dimensions, spec.normalized)
    request = Request(
        input_ids=ids, sampling=Sampling(), max_new_tokens=0, pooling=pooling, bits=facts.bits,
        priority=given_priority(spec.priority), salt=digest_of(spec.salt),
        adapter=None if spec.adapter is None else await service.adapters.get(spec.adapter))
    return Validated(request, took)


def _scored(ids: tuple[int, ...], facts: Facts) -> tuple[int, ...]:
    """Returns the tokens up to the last that fills nothing up, by which a model scores a text that scores by the last:
    those behind it change nothing. One is left in any case."""
    end = len(ids)
    while end > 1 and ids[end - 1] in facts.pad_token_ids:
        end -= 1
    return ids[:end]


def _takes_prompt(spec: PoolingSpec) -> bool:
    """Tells whether a prompt may stand before the text; none does before token ids, pairs and texts to score."""
    return isinstance(spec.inputs, str) and spec.task is not Task.CLASSIFY


def _prompt(spec: PoolingSpec, service: Service) -> str:
    """Returns the prompt before a text."""
    if not _takes_prompt(spec):
        return ""
    prompt = prompt_of(spec.prompt_name, service)
    return prompt.lower() if service.texts.is_lower_case else prompt


def _most(spec: PoolingSpec, service: Service) -> int:
    return spec.max_tokens or service.limits.max_input_tokens


def _cuts(spec: PoolingSpec, service: Service) -> bool:
    """Tells whether too many tokens are cut off: where the request does not say, also if it has a limit of its own."""
    return service.texts.truncates or spec.max_tokens is not None if spec.truncates is None else spec.truncates


async def _encoded(
    spec: PoolingSpec, service: Service, prompt: str, question: ReadQuestion | None = None
) -> Encoded:
    """Returns the tokens of a text, a pair, or those that are given, cut if there are too many and that is wanted."""
    inputs, most = spec.inputs, _most(spec, service)
    if isinstance(inputs, tuple) and not isinstance(inputs[0], str):
        if len(inputs) > most and not _cuts(spec, service):
            raise _too_long(TooManyTokens(len(inputs)), most, spec)
        return Encoded(inputs[-most:] if spec.keeps_end else inputs[:most])
    if question is not None and not isinstance(inputs, str):
        return await _asked(spec, service, question)
    texts = [prompt + inputs] if isinstance(inputs, str) else [str(text) for text in inputs]
    if service.texts.is_lower_case:
        texts = [text.lower() for text in texts]
    encoded = await _read(texts, spec, service)
    if not encoded.ids:
        raise EmptyText(spec.names.inputs)
    return encoded


async def _asked(spec: PoolingSpec, service: Service, question: ReadQuestion) -> Encoded:
    """Returns the tokens of a pair amid the question that a language model is asked. Too long a text is cut before the
    question's end, as the model has learnt it. Raises ValidationError if there is no room for any text."""
    most, num_fixed = _most(spec, service), len(question.before) + len(question.after)
    refuse_if(most <= num_fixed, f"`{spec.names.truncate}` must be > {num_fixed}, the tokens of the question that is "
                                 f"asked of each pair. Given: {most}")
    query, document = map(str, spec.inputs)
    written = question.question.written(query, document, spec.instruction)
    text = await _read([written], replace(spec, adds_special_tokens=False), service, num_fixed)
    return Encoded((*question.before, *text.ids, *question.after))


async def _read(texts: Sequence[str], spec: PoolingSpec, service: Service, num_others: int = 0) -> Encoded:
    """Returns the tokens of a text or a pair, beside `num_others`. Raises ValidationError."""
    most = _most(spec, service)
    try:
        return await service.tokenizer.encode_whole(
            texts, spec.adds_special_tokens, most - num_others, _cuts(spec, service), spec.keeps_end)
    except TooManyTokens as error:
        raise _too_long(TooManyTokens(error.number + num_others, error.is_least), most, spec) from error
    except TokenizerError as error:
        raise NotTokenized(str(error), spec.names.inputs) from error


def _too_long(given: TooManyTokens, most: int, spec: PoolingSpec) -> TooLong:
    return TooLong(f"`{spec.names.inputs}` must have less than {most} tokens. Given: {given}", given.number, most)


async def _num_skipped(spec: PoolingSpec, service: Service, prompt: str, ids: Sequence[int]) -> int:
    """Returns how many of a text's tokens `ids` no vector covers: those of its prompt, as far as it has not been cut
    off, as sentence-transformers counts them: with those that are added before it, and without the one behind it."""
    tokenizer = service.tokenizer
    own = await tokenizer.encode(prompt, spec.adds_special_tokens)
    number = len(own) - bool(own and tokenizer.is_special(own[-1]))
    if spec.keeps_end and len(ids) == _most(spec, service):
        left = len(ids) - len((await _encoded(spec, service, "")).ids)
        num_added = sum(1 for _ in takewhile(tokenizer.is_special, ids))
        number = min(number, left + num_added) if left else 0
    return min(number, len(ids) - 1)
