"""The one way from texts to their vectors and scores, for all routes."""

import asyncio
import time
from collections.abc import Sequence

from penstock.contract.facts import Facts
from penstock.router.engine.pooled_stream import PooledStream
from penstock.router.errors import KilledGroup
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.request_record import Generation
from penstock.router.pooling.numbers import num_permits
from penstock.router.pooling.pooled import Pooled
from penstock.router.pooling.questions import read_question
from penstock.router.pooling.spec import PoolingSpec
from penstock.router.pooling.validation import Validated, check, check_size, validate


async def pooled(asking: Asking, specs: Sequence[PoolingSpec]) -> list[Pooled]:
    """Returns what is computed of each text, in the order of `specs`: checks whether the model is for it, takes
    permits, one for `TEXTS_PER_PERMIT` of them, tokenises and submits. When one fails, or the caller is cancelled, the
    others are cancelled. Raises RouterError."""
    service, received_at = asking.service, time.monotonic()
    generation = request_record.current().begin(specs, is_stream=False)
    generation.model, generation.revision = asking.service.info.model_id, asking.service.info.model_sha
    generation.facts, generation.limits = asking.service.facts, asking.service.limits
    streams: list[PooledStream] = []
    try:
        facts = service.engine.kinds[0]
        for spec in specs:
            check(spec, service, facts)
        async with asking.permit(num_permits(len(specs), service.limits)):
            valid = await _validate_all(asking, specs, facts)
            check_size([each.request for each in valid], facts, specs[0].names)
            await asking.read(len(each.request.input_ids) for each in valid)
            await _run(asking, valid, generation, streams)
    except BaseException as error:
        if isinstance(error, KilledGroup):
            _remember(asking, specs, streams)
        generation.failed()
        asking.failed(error)
        raise
    finally:
        for stream in streams:
            stream.leave()
    asking.succeeded()
    return [_result(asking, stream, received_at, each.tokenization)
            for stream, each in zip(streams, valid, strict=True)]


async def _validate_all(asking: Asking, specs: Sequence[PoolingSpec], facts: Facts) -> list[Validated]:
    """Returns the requests of all texts in order. When one is refused the others are not tokenised any more."""
    question = await read_question(facts, asking.service.tokenizer)
    tasks = [asyncio.ensure_future(validate(spec, asking.service, facts, question)) for spec in specs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _run(
    asking: Asking, valid: Sequence[Validated], generation: Generation, streams: list[PooledStream]
) -> None:
    """Submits requests, whose streams are appended to `streams`, and waits until all have ended. Raises the first
    error."""
    service = asking.service
    ended: asyncio.Queue[PooledStream] = asyncio.Queue()
    requests = [asking.placed(each.request) for each in valid]
    submits = await service.around.submits(
        service.engine, [(request, "") for request in requests], service.tokenizer.digest)
    for each, request, submit in zip(valid, map(generation.followed, requests), submits, strict=True):
        service.metrics.accepted_text(len(request.input_ids), each.tokenization)
        streams.append(PooledStream(request, ended))
        submit(streams[-1], ())
    generation.submitted(streams)
    for _ in streams:
        stream = await ended.get()
        if stream.error is not None:
            raise stream.error


def _remember(asking: Asking, specs: Sequence[PoolingSpec], streams: Sequence[PooledStream]) -> None:
    """Notes the texts that the group has died of."""
    for spec, stream in zip(specs, streams, strict=False):
        if isinstance(stream.error, KilledGroup):
            asking.service.poison.remember(spec)


def _result(asking: Asking, stream: PooledStream, received_at: float, tokenization: float) -> Pooled:
    assert stream.started_at is not None
    assert stream.finished_at is not None
    queue, inference = stream.started_at - stream.submitted_at, stream.finished_at - stream.started_at
    asking.service.metrics.pooled(stream.finished_at - received_at, stream.submitted_at - received_at, queue, inference)
    return Pooled(stream.values, stream.indices, len(stream.request.input_ids), tokenization, queue, inference,
                  stream.request.input_ids)
