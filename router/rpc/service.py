"""The calls of protos/penstock.proto."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NoReturn, Protocol

import grpc

from protos import penstock_pb2, penstock_pb2_grpc
from router.api.answer import answering
from router.api.failures import to_router_error
from router.api.service import Service
from router.api.whole import mean_logprob, tokens_of
from router.errors import ValidationError
from router.rpc.wire import decode_request, encode_answers, encode_event, encode_info, encode_text
from router.text.tokenizer import TokenizerError

_CODES = {
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    424: grpc.StatusCode.ABORTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""By the status that the HTTP routes give; INTERNAL for others."""


class Tracer(Protocol):
    """What makes the server span of a call: `router.tracing.Tracing`."""

    def request(
        self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, str | None]
    ) -> AbstractContextManager[object]: ...


class TextGeneration(penstock_pb2_grpc.TextGenerationServicer):
    """Answers as the HTTP routes do. A call that ends before its answer, for whatever reason, frees what it held."""

    def __init__(self, service: Service, tracer: Tracer | None = None) -> None:
        self._service = service
        self._tracer = tracer

    async def Generate(
        self, request: penstock_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> penstock_pb2.GenerateResponse:
        try:
            with self._span("Generate", context):
                asked = decode_request(request)
                async with answering(self._service, [asked], is_stream=False) as answers:
                    tokens = await tokens_of(answers)
        except Exception as error:
            await _fail(context, error)
        each = list(zip(answers.each, tokens, strict=True))
        if asked.parameters.best_of is not None:
            each.sort(key=lambda pair: mean_logprob(pair[1]), reverse=True)
        return encode_answers(each)

    async def GenerateStream(
        self, request: penstock_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> None:
        try:
            with self._span("GenerateStream", context):
                async with answering(self._service, [decode_request(request)], is_stream=True) as answers:
                    async for answer, event in answers:
                        await context.write(encode_event(answer, event))
        except Exception as error:
            await _fail(context, error)

    async def Tokenize(
        self, request: penstock_pb2.TokenizeRequest, context: grpc.aio.ServicerContext
    ) -> penstock_pb2.TokenizeResponse:
        try:
            tokens = await self._service.tokenizer.split(request.text)
        except TokenizerError as error:
            await _fail(context, ValidationError(f"tokenizer error {error}"))
        return await asyncio.to_thread(encode_text, tokens)  # there may be a million

    async def Info(
        self, request: penstock_pb2.InfoRequest, context: grpc.aio.ServicerContext
    ) -> penstock_pb2.InfoResponse:
        return encode_info(self._service)

    @contextmanager
    def _span(self, method: str, context: grpc.aio.ServicerContext) -> Iterator[None]:
        if self._tracer is None:
            span: AbstractContextManager[object] = nullcontext()
        else:
            metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
            name = f"penstock.v1.TextGeneration/{method}"
            span = self._tracer.request(name, metadata, {
                "rpc.system.name": "grpc", "rpc.method": name, "client.address": context.peer()})
        with span:
            yield


async def _fail(context: grpc.aio.ServicerContext, error: Exception) -> NoReturn:
    failure = to_router_error(error)
    await context.abort(_CODES.get(failure.status, grpc.StatusCode.INTERNAL), str(failure))
    raise failure
