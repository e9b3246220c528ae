"""The calls of `protos/kserve.proto`: each is answered by the functions that answer its HTTP route."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.json_format import ParseDict

from penstock.protos import kserve_pb2 as pb
from penstock.protos import services as protos
from penstock.router.api.http.failures import to_router_error
from penstock.router.api.kserve import generation, metadata
from penstock.router.api.kserve.failures import sentence
from penstock.router.api.kserve.inference import Inference, Inferred
from penstock.router.api.kserve.inferring import infer, streams
from penstock.router.api.kserve.models import Named, all_listed, all_loaded, ids_of, named, using
from penstock.router.errors import Dropped, RouterError
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish
from penstock.router.generation.services import Services
from penstock.router.rpc import calls
from penstock.router.rpc.calls import Calls, Context
from penstock.router.rpc.in_order import MOST_AT_ONCE, PatientAsking
from penstock.router.rpc.kserve_wire import decode_inference, encode_response

SERVICE_NAME: str = protos.service_of(pb).full_name
_Message = TypeVar("_Message")
Send = Callable[[pb.ModelStreamInferResponse], Awaitable[None]]


def serve(server: grpc.aio.Server, services: Services, calls: Calls) -> None:
    """Lets a server answer the calls of KServe's service."""
    protos.serve(server, pb, Inferring(services, calls))


class Inferring:
    """Answers calls, each in a task of its own, which gRPC cancels when the client leaves or the deadline passes."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls

    async def ServerLive(self, request: pb.ServerLiveRequest, context: Context) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=self._services.first.engine.is_healthy)

    async def ServerReady(self, request: pb.ServerReadyRequest, context: Context) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=Named(self._services.first, "").is_ready)

    async def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> pb.ModelReadyResponse:
        return await _told(context, lambda: pb.ModelReadyResponse(ready=self._named(request).is_ready))

    async def ServerMetadata(self, request: pb.ServerMetadataRequest, context: Context) -> pb.ServerMetadataResponse:
        return ParseDict(metadata.server(), pb.ServerMetadataResponse())

    async def ModelMetadata(self, request: pb.ModelMetadataRequest, context: Context) -> pb.ModelMetadataResponse:
        return await _told(context, lambda: ParseDict(
            metadata.model(self._named(request), self._services), pb.ModelMetadataResponse()))

    async def ModelConfig(self, request: pb.ModelConfigRequest, context: Context) -> pb.ModelConfigResponse:
        return await _told(context, lambda: ParseDict(
            {"config": metadata.config(self._named(request))}, pb.ModelConfigResponse()))

    async def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, context: Context
    ) -> pb.ModelStatisticsResponse:
        def tell() -> pb.ModelStatisticsResponse:
            self._calls.check_reader(context)
            models = [self._named(request)] if request.name else all_loaded(self._services)
            return ParseDict(metadata.stats(models), pb.ModelStatisticsResponse())

        return await _told(context, tell)

    def _named(self, request: Any) -> Named:
        return named(self._services, request.name, request.version)

    async def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, context: Context
    ) -> pb.RepositoryIndexResponse:
        async with self._calls.costly(context, f"{SERVICE_NAME}/RepositoryIndex"):
            return ParseDict({"models": metadata.index(all_listed(self._services), request.ready)},
                             pb.RepositoryIndexResponse())

    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: Context
    ) -> pb.RepositoryModelLoadResponse:
        async with self._calls.costly(context, f"{SERVICE_NAME}/RepositoryModelLoad"):
            metadata.check_parameters(request.parameters)
            for name in ids_of(self._services, request.model_name):
                await self._services.load(name)
            return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: Context
    ) -> pb.RepositoryModelUnloadResponse:
        async with self._calls.costly(context, f"{SERVICE_NAME}/RepositoryModelUnload"):
            metadata.check_parameters(request.parameters)
            for name in ids_of(self._services, request.model_name):
                await self._services.unload(name)
            return pb.RepositoryModelUnloadResponse()

    async def ModelInfer(self, request: pb.ModelInferRequest, context: Context) -> pb.ModelInferResponse:
        async with (self._calls.costly(context, f"{SERVICE_NAME}/ModelInfer"),
                    using(self._services, request.model_name, request.model_version) as model):
            inference = decode_inference(request, model)
            with Asking(model.service) as asking:
                _, inferred = await infer(asking, inference, Wish())
                return encode_response(inference, inferred, bool(request.raw_input_contents))

    async def ModelStreamInfer(self, requests: AsyncIterator[pb.ModelInferRequest], context: Context) -> None:
        """Answers the requests of a stream beside each other. One that fails is told of, and the stream goes on."""
        writing, room = asyncio.Lock(), asyncio.Semaphore(MOST_AT_ONCE)

        async def send(message: pb.ModelStreamInferResponse) -> None:
            async with writing:
                await calls.write(context, message)

        async with self._calls.costly(context, f"{SERVICE_NAME}/ModelStreamInfer"):
            try:
                async with asyncio.TaskGroup() as group:
                    async for request in requests:
                        await room.acquire()
                        group.create_task(self._answer(request, send)).add_done_callback(lambda _: room.release())
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from errors

    async def _answer(self, request: pb.ModelInferRequest, send: Send) -> None:
        try:
            async with using(self._services, request.model_name, request.model_version) as model:
                await _answer(decode_inference(request, model), bool(request.raw_input_contents), send)
        except Exception as error:
            failure = to_router_error(error)
            if isinstance(failure, Dropped):
                raise
            response = pb.ModelInferResponse(
                model_name=request.model_name, model_version=request.model_version, id=request.id)
            await send(pb.ModelStreamInferResponse(error_message=sentence(failure), infer_response=response))


async def _answer(inference: Inference, is_raw: bool, send: Send) -> None:
    """Sends the answer to a request of a stream, whole or part by part."""
    encode = partial(encode_response, inference, is_raw=is_raw)
    with PatientAsking(inference.model.service) as asking:
        if not streams(inference, default=False):
            _, inferred = await infer(asking, inference, Wish())
            await send(pb.ModelStreamInferResponse(infer_response=encode(inferred, is_final=True)))
            return
        asked = await generation.read(inference, Wish(), is_stream=True)
        async with aclosing(generation.parts(asking, asked)) as parts:
            async for part in parts:
                if part is not None:
                    response = encode(Inferred(part.tensors), is_final=part.event.ending is not None)
                    await send(pb.ModelStreamInferResponse(infer_response=response))


async def _told(context: Context, tell: Callable[[], _Message]) -> _Message:
    """Returns the message that a function tells; its error becomes the status of the call."""
    try:
        return tell()
    except RouterError as error:
        await context.abort(calls.code_of(error), calls.details_of(error))
        raise  # which is never reached
