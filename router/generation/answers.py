"""The one way from generation specs to the answers' events, for routes that stream and routes that don't."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Self

from penstock.router import request_id
from penstock.router.engine.request import Request
from penstock.router.engine.stream import Event, Queue, Stream, Token
from penstock.router.engine.text_path import TextPath
from penstock.router.errors import KilledGroup, RouterError, ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.after_gate import AfterGate
from penstock.router.generation.answer import Answer
from penstock.router.generation.asking import Asking
from penstock.router.generation.gate import Gate
from penstock.router.generation.identity import Identity
from penstock.router.generation.mode import check_mode
from penstock.router.generation.output_gate import OutputGate
from penstock.router.generation.refusals import refuse_if
from penstock.router.generation.request_record import Generation
from penstock.router.generation.service import Service
from penstock.router.generation.spec import GenerationSpec
from penstock.router.generation.validation import validate
from penstock.router.response_cache.cache import Submit
from penstock.router.scheduling.finish_reason import FinishReason

log = logging.getLogger(__name__)


class Answers:
    """Async iterator of the events of all answers to a request, as they come, each with its answer.

    `each` has the answers in the order of their indices. An answer that fails ends the iteration with its error. A beam
    search may find fewer answers than were asked for: the others have no ending.
    """

    def __init__(
        self, answers: dict[Stream, Answer], queue: Queue, asking: Asking, gates: Sequence[Gate] = ()
    ) -> None:
        self.each = tuple(answers.values())
        self._answers = answers
        self._queue = queue
        self._asking = asking
        self._gates = gates
        self._num_left = len(answers)

    @property
    def is_over(self) -> bool:
        """Tells whether every answer has ended."""
        return not self._num_left

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Answer, Event]:
        if not self._num_left:
            raise StopAsyncIteration
        answer, event = await self._pass(self._gates) if self._gates else self._read(*await self._queue.get())
        answer.note(event)
        if event.ending is not None:
            self._num_left = sum(not each.is_over for each in self._answers)
            self._num_left += sum(gate.num_passed for gate in self._gates)
            if self.is_over:
                self._asking.succeeded()
        return answer, event

    def _read(self, stream: Stream, item: Event | RouterError) -> tuple[Answer, Event]:
        """Returns the event that has come of a stream, and its answer. Raises RouterError."""
        answer = self._answers[stream]
        try:
            return answer, stream.take(item)
        except KilledGroup:
            self._asking.service.poison.remember(answer.spec)
            raise

    async def _pass(self, gates: Sequence[Gate]) -> tuple[Answer, Event]:
        """Returns the next event that has passed the gates. Raises RouterError."""
        if not gates:
            return self._read(*await self._queue.get())
        *before, last = gates
        while (passed := last.next()) is None:
            await last.take(*await self._pass(before))
        return passed


@asynccontextmanager
async def answering(
    asking: Asking, specs: Sequence[GenerationSpec], identity: Identity, is_stream: bool, num_permits: int = 0
) -> AsyncIterator[Answers]:
    """Takes permits, validates and submits, in TGI's order; on leaving cancels what still runs, and counts a failure.

    The caller holds `num_permits` already. Events come of all tokens, also of those that `identity` has: those have no
    logprobs, and are for handlers to count.
    """
    received_at = time.monotonic()
    service = asking.service
    metrics = service.metrics
    running: Answers | None = None
    request_record.name_answer(str(identity.name))
    generation = request_record.current().begin(specs, is_stream)
    generation.answer = str(identity.name)
    generation.model, generation.revision = service.info.model_id, service.info.model_sha
    generation.facts, generation.limits = identity.facts, service.limits
    try:
        for spec in specs:
            check_mode(spec, service.limits, identity.facts, service.adapters, is_stream)
            refuse_if(asking.is_background and spec.parameters.deadline_ms is not None,
                      "`deadline_ms` is for requests that come before those of the background", "unsupported_parameter")
            service.poison.check(spec)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(
                asking.permit(sum(spec.num_sequences for spec in specs) - num_permits))
            requests = await _validate_all(asking, specs, identity)
            await asking.read({id(spec): len(request.input_ids) for spec, request in requests}.values())
            submits = await _submits(service, requests, identity)
            queue: Queue = asyncio.Queue()
            answers: dict[Stream, Answer] = {}
            for (spec, request), submit in zip(requests, submits, strict=True):
                for each in _submitted(service, generation.followed(request), queue, identity, submit):
                    await stack.enter_async_context(each)
                    answers[each] = Answer(len(answers), spec, request, each, received_at, metrics)
            generation.submitted(answers)
            if identity.is_resumed:
                metrics.resumed(len(answers))
            running = Answers(answers, queue, asking, _gates(service, answers, queue, stack, generation))
            yield running
    except BaseException as error:
        if running is None or not running.is_over:
            generation.failed()
            asking.failed(error)
        raise
    finally:
        asking.made(generation.tries)


def _gates(
    service: Service, answers: dict[Stream, Answer], queue: Queue, stack: AsyncExitStack, generation: Generation
) -> list[Gate]:
    """Returns the gates that answers have to pass, in turn; those that are made anew are among `answers`, too, from
    then on."""
    checker, after = service.around.checker, service.around.after

    async def again(answer: Answer, seed: int) -> None:
        deadline = answer.request.deadline and answer.request.deadline.promised()
        request = replace(
            answer.request, sampling=replace(answer.request.sampling, seed=seed), deadline=deadline)
        [stream] = _streams(service, request, queue)
        service.engine.submit(stream)
        answers[await stack.enter_async_context(stream)] = answer
        answer.begin_anew(request, stream)
        latest = {each.index: stream for stream, each in answers.items()}
        generation.submitted(latest[index] for index in sorted(latest))

    return [*([] if checker is None else [OutputGate(checker, again)]), *([] if after is None else [AfterGate(after)])]


async def _validate_all(
    asking: Asking, specs: Sequence[GenerationSpec], identity: Identity
) -> list[tuple[GenerationSpec, Request]]:
    """Returns the requests of all specs in order, each with its spec."""
    service = asking.service
    valid = await asyncio.gather(
        *(validate(spec, service.limits, service.tokenizer, identity.facts, service.grammars, service.adapters,
                   identity.seed_of(prompt), identity.needs_bits, identity.adapter)
          for prompt, spec in enumerate(specs)))
    return [(spec, asking.placed(request))
            for spec, requests in zip(specs, valid, strict=True) for request in requests]


async def _submits(
    service: Service, requests: Sequence[tuple[GenerationSpec, Request]], identity: Identity
) -> list[Submit]:
    """Returns the functions by which the requests are submitted. An answer whose beginning its client has is none that
    a cache knows."""
    if service.around.cache is None or identity.output_ids:
        return [service.engine.submit] * len(requests)
    return await service.around.submits(
        service.engine, [(request, None if identity.draws_seed(spec, request) else repr(spec.parameters.grammar))
                         for spec, request in requests], service.tokenizer.digest)


def _submitted(
    service: Service, request: Request, queue: Queue, identity: Identity, submit: Submit
) -> list[Stream]:
    """Returns the streams of a request's answers, and submits it if its client lacks any part of them."""
    service.metrics.accepted(len(request.input_ids), request.max_new_tokens)
    streams = _streams(service, request, queue)
    _feed(streams[0], identity)
    if streams[0].ending is None:
        submit(streams[0], identity.output_ids)
    log.debug("request %s: %d prompt tokens, at most %d new ones, %s", request_id.current(), len(request.input_ids),
              request.max_new_tokens, request.sampling)
    return streams


def _streams(service: Service, request: Request, queue: Queue) -> list[Stream]:
    """Returns the stream of a request's answer, or those of all answers of a beam search, of which the first is to be
    submitted."""
    number = 1 if request.beams is None else request.beams.num_answers
    streams: list[Stream] = []
    for _ in range(number):
        text = TextPath(service.tokenizer, request)
        streams.append(Stream(request, text, queue, is_guessed=service.engine.limits.speculate > 0))
    streams[0].siblings = streams[1:]
    return streams


def _feed(stream: Stream, identity: Identity) -> None:
    """Gives a stream the tokens that its client has. The last may be the answer's end, of which the client has not
    heard. Raises ValidationError if they can't be the answer's."""
    request, output_ids, facts = stream.request, identity.output_ids, identity.facts
    where = identity.wish.names.output_ids
    largest = max(output_ids, default=0)
    if largest >= facts.vocab_size:
        raise ValidationError(f"`{where}` must have token ids < {facts.vocab_size}, the model's vocabulary. "
                              f"Given: {largest}")
    if len(output_ids) > request.max_new_tokens:
        raise ValidationError(f"`{where}` must have no more token ids than the answer may have, "
                              f"{request.max_new_tokens}. Given: {len(output_ids)}")
    ends = request.stop_token_ids | (frozenset() if request.ignore_eos else facts.eos_token_ids)
    for number, token_id in enumerate(output_ids, 1):
        reason = FinishReason.EOS_TOKEN if token_id in ends else None
        if number == request.max_new_tokens:
            reason = FinishReason.LENGTH
        if stream.feed(token_id, reason) and number < len(output_ids):
            raise ValidationError(f"`{where}` must not go on behind the answer's end. Given: {token_id}")


async def tokens_of(answers: Answers) -> list[list[Token]]:
    """Waits until all answers have ended, and returns the tokens of each, in the order of their indices."""
    tokens: list[list[Token]] = [[] for _ in answers.each]
    async for answer, event in answers:
        tokens[answer.index].append(event.token)
    return tokens
