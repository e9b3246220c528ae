"""The services of `protos/tei.proto`, for models that make vectors and scores."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.protos import services
from penstock.protos import tei_pb2 as pb
from penstock.router.api.tei import info
from penstock.router.api.tei.failures import TYPES
from penstock.router.errors import GenerationError, NotTokenized, RouterError, WrongModel
from penstock.router.generation.asking import Asking
from penstock.router.generation.service import Service
from penstock.router.generation.services import Services
from penstock.router.generation.tasks import check_reranks, reranks
from penstock.router.rpc import calls, tei_wire
from penstock.router.rpc.calls import Calls, Context, Manner, chosen
from penstock.router.rpc.in_order import PatientAsking, answer_in_order
from penstock.router.rpc.tei_answers import ANSWERS, Answer, Replied
from penstock.router.rpc.tei_ranks import Ranks

NAMES: dict[str, str] = {service.name: service.full_name for service in services.services_of(pb)}
"""The full names of TEI's services, by their short ones."""


def is_for(facts: Facts, name: str) -> bool:
    """Tells whether the model does what the service of this short name is for."""
    match name:
        case "Embed":
            return not facts.tasks.isdisjoint((Task.EMBED, Task.EMBED_ALL, Task.EMBED_SPARSE))
        case "Predict":
            return Task.CLASSIFY in facts.tasks
        case "Rerank":
            return reranks(facts)
    return True


def serve(server: grpc.aio.Server, models: Services, calls: Calls) -> None:
    """Lets a server answer the calls of all of TEI's services."""
    for name in NAMES:
        services.serve(server, pb, TextEmbeddings(models, calls, name).methods, name=name)


def code_of(error: RouterError) -> grpc.StatusCode:
    """Returns TEI's code for an error."""
    if isinstance(error, WrongModel | NotTokenized | GenerationError):
        return grpc.StatusCode.FAILED_PRECONDITION
    return calls.code_of(error)


class TextEmbeddings:
    """Answers the calls of the service of this short name, each in a task of its own, which gRPC cancels when the
    client leaves or the deadline passes. `methods` has a function for each call. The metadata names the model, or it is
    the first."""

    def __init__(self, models: Services, calls: Calls, name: str) -> None:
        self._models = models
        self._calls = calls
        self._name = NAMES[name]
        self._manner = Manner(code_of, lambda error: TYPES.get(error.error_type, error.error_type))
        self.methods = SimpleNamespace()
        for method, answer in ANSWERS.get(name, {}).items():
            setattr(self.methods, method, partial(self._answer, method, answer))
            setattr(self.methods, f"{method}Stream", partial(self._stream, f"{method}Stream", answer))
        if name == "Rerank":
            self.methods.RerankStream = self._rank
        if name == "Info":
            self.methods.Info = self._info

    @asynccontextmanager
    async def _costly(self, context: Context, method: str) -> AsyncIterator[Service]:
        """Holds the service of the model while a call that takes the key is answered."""
        async with (self._calls.costly(context, f"{self._name}/{method}", self._manner),
                    chosen(self._models, context) as service):
            yield service

    async def _answer(self, method: str, answer: Answer, request: Any, context: Context) -> Any:
        async with self._costly(context, method) as service:
            return await _completed(service, context, await answer(Asking(service), request))

    async def _stream(self, method: str, answer: Answer, requests: AsyncIterator[Any], context: Context) -> None:
        async with self._costly(context, method) as service:
            async def reply(request: Any) -> Any:
                return (await answer(PatientAsking(service), request)).message

            await answer_in_order(requests, reply, partial(calls.write, context))

    async def _rank(self, requests: AsyncIterator[pb.RerankStreamRequest], context: Context) -> Any:
        async with self._costly(context, "RerankStream") as service:
            check_reranks(service.facts, WrongModel)
            ranks = Ranks(service.limits.payload_limit)
            await answer_in_order(
                ranks.noting(requests), lambda request: ranks.answer(PatientAsking(service), request), ranks.add)
            return await _completed(service, context, ranks.replied())

    async def _info(self, request: pb.InfoRequest, context: Context) -> pb.InfoResponse:
        async with self._calls.free(context), chosen(self._models, context) as service:
            return tei_wire.encode_info(info.describe(service))


async def _completed(service: Service, context: Context, replied: Replied) -> Any:
    """Returns the message of an answer, whose costs are told before it."""
    if replied.measures is not None:
        await context.send_initial_metadata(tuple(replied.measures.headers(service).items()))
    return replied.message
