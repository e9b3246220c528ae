"""The gRPC API over the real app and engine and a scripted fleet, called by grpc's own client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from protos import penstock_pb2, penstock_pb2_grpc
from router.api.access import Access
from router.api.service import SERVICE
from router.rpc.server import NAME, RpcServer
from tests.api.conftest import ANSWER, INFO, Server, Start
from tests.fakes import LIMITS

GREETING = ANSWER.removesuffix("<|im_end|>")


class Tracer:
    """Notes what it is asked to make a span of."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any, Any]] = []

    @contextmanager
    def request(self, name, carrier, attributes):
        self.spans.append((name, carrier, attributes))
        yield


@dataclass
class Rpc:
    server: Server
    channel: grpc.aio.Channel
    stub: penstock_pb2_grpc.TextGenerationStub
    port: int


StartRpc = Callable[..., Awaitable[Rpc]]


@pytest.fixture
async def start_rpc(start: Start) -> AsyncIterator[StartRpc]:
    async with AsyncExitStack() as stack:

        async def start_rpc(access: Access | None = None, tracer: Tracer | None = None, **settings: object) -> Rpc:
            server = await start(**settings)
            rpc = await stack.enter_async_context(RpcServer(
                server.client.server.app[SERVICE], access or Access(), payload_limit=10_000, tracer=tracer))
            port = await rpc.start("127.0.0.1", 0)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
            return Rpc(server, channel, penstock_pb2_grpc.TextGenerationStub(channel), port)

        yield start_rpc


def asking(text: str = "Say it", n: int = 0, **parameters: Any) -> penstock_pb2.GenerateRequest:
    return penstock_pb2.GenerateRequest(text=text, n=n, parameters=penstock_pb2.Parameters(**parameters))


async def failure(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value.details()


async def test_generate(start_rpc):
    rpc = await start_rpc()
    [answer] = (await rpc.stub.Generate(asking(max_new_tokens=50))).answers
    assert answer.ending.text == "".join(token.text for token in answer.tokens if not token.special) == GREETING
    assert answer.ending.finish_reason == penstock_pb2.FINISH_REASON_EOS_TOKEN
    assert answer.ending.generated_tokens == len(answer.tokens)
    assert not answer.ending.HasField("seed")
    whole = await rpc.server.generate("Say it", max_new_tokens=50, details=True)
    assert [token.id for token in answer.tokens] == [token["id"] for token in whole["details"]["tokens"]]


async def test_stream(start_rpc):
    rpc = await start_rpc()
    events = [event async for event in rpc.stub.GenerateStream(asking(max_new_tokens=3, top_n_tokens=2))]
    assert [event.HasField("ending") for event in events] == [False, False, True]
    assert events[-1].ending.finish_reason == penstock_pb2.FINISH_REASON_LENGTH
    assert events[-1].ending.text == "".join(event.token.text for event in events)


async def test_several_answers_and_token_ids(start_rpc):
    rpc = await start_rpc()
    ids = await rpc.server.tokenizer.encode("Say it")
    request = penstock_pb2.GenerateRequest(
        token_ids=penstock_pb2.TokenIds(ids=ids), n=3,
        parameters=penstock_pb2.Parameters(do_sample=True, seed=7, max_new_tokens=2, stop=["x"], logit_bias={5: 1.5}))
    answers = (await rpc.stub.Generate(request)).answers
    assert [(answer.ending.seed, answer.ending.prompt_tokens) for answer in answers] == [(7, len(ids))] * 3


async def test_tokenize_and_info(start_rpc):
    rpc = await start_rpc()
    tokens = (await rpc.stub.Tokenize(penstock_pb2.TokenizeRequest(text="wörld"))).tokens
    assert [(tokens[0].start, tokens[-1].stop)] == [(0, 6)]
    info = await rpc.stub.Info(penstock_pb2.InfoRequest())
    assert (info.model_id, info.max_total_tokens) == (INFO.model_id, LIMITS.max_total_tokens)


@pytest.mark.parametrize(("request_", "code", "message"), [
    (asking(temperature=0.0), "INVALID_ARGUMENT", "Input validation error: `temperature` must be strictly positive"),
    (asking(text=""), "INVALID_ARGUMENT", "Input validation error: `inputs` cannot be empty"),
    (penstock_pb2.GenerateRequest(text="a", n=3, parameters=penstock_pb2.Parameters(best_of=2, do_sample=True)),
     "INVALID_ARGUMENT", "Input validation error: `n` and `best_of` cannot both be > 1. Given: 3 and 2"),
    (asking(temperature=float("nan")), "INVALID_ARGUMENT",
     "Input validation error: `temperature`: Input should be a finite number"),
    (asking(grammar=penstock_pb2.Grammar(regex="a")), "INVALID_ARGUMENT",
     "Input validation error: grammar is not supported"),
    (asking(grammar=penstock_pb2.Grammar()), "INVALID_ARGUMENT",
     "Input validation error: grammar is not valid: it must be of a kind"),
    (asking(text="x" * 20_000), "RESOURCE_EXHAUSTED", None),
])
@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
async def test_errors(start_rpc, method, request_, code, message):
    rpc = await start_rpc()

    async def call() -> None:
        if method == "Generate":
            await rpc.stub.Generate(request_)
        else:
            [event async for event in rpc.stub.GenerateStream(request_)]

    found, details = await failure(call())
    assert found.name == code
    assert message in (None, details)


async def test_no_permit(start_rpc):
    rpc = await start_rpc(limits=replace(LIMITS, max_concurrent_requests=1))
    rpc.server.fleet.may_answer.clear()
    first = asyncio.create_task(_wait(rpc.stub.Generate(asking(max_new_tokens=5))))
    await rpc.server.fleet.has_plan.wait()
    assert await failure(rpc.stub.Generate(asking())) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "Model is overloaded")
    rpc.server.fleet.may_answer.set()
    await first


async def test_who_leaves_or_is_late_is_not_computed(start_rpc):
    rpc = await start_rpc()
    rpc.server.fleet.may_answer.clear()
    call = rpc.stub.Generate(asking(max_new_tokens=5))
    task = asyncio.create_task(_wait(call))
    await rpc.server.fleet.has_plan.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    late = await failure(rpc.stub.Generate(asking(max_new_tokens=5), timeout=0.2))
    assert late[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    rpc.server.fleet.may_answer.set()
    await rpc.server.until_idle()


async def test_key(start_rpc):
    rpc = await start_rpc(access=Access(api_key="Secret"))
    for metadata in ((), (("authorization", "Bearer secret"),), (("authorization", "Secret"),)):
        code, _ = await failure(rpc.stub.Info(penstock_pb2.InfoRequest(), metadata=metadata))
        assert code is grpc.StatusCode.UNAUTHENTICATED
        code, _ = await failure(_drain(rpc.stub.GenerateStream(asking(), metadata=metadata)))
        assert code is grpc.StatusCode.UNAUTHENTICATED
    info = await rpc.stub.Info(penstock_pb2.InfoRequest(), metadata=(("authorization", "Bearer Secret"),))
    assert info.model_id == INFO.model_id
    health = health_pb2_grpc.HealthStub(rpc.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING


async def test_health(start_rpc):
    rpc = await start_rpc()
    health = health_pb2_grpc.HealthStub(rpc.channel)
    for service in ("", NAME):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    code, _ = await failure(health.Check(health_pb2.HealthCheckRequest(service="other")))
    assert code is grpc.StatusCode.NOT_FOUND


async def test_reflection(start_rpc):
    rpc = await start_rpc()

    def look() -> tuple[set[str], set[str]]:
        with grpc.insecure_channel(f"127.0.0.1:{rpc.port}") as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            found = database.FindFileContainingSymbol(NAME)
            return set(database.get_services()), {method.name for method in found.service[0].method}

    services, methods = await asyncio.to_thread(look)
    assert {NAME, "grpc.health.v1.Health"} <= services
    assert methods == {"Generate", "GenerateStream", "Tokenize", "Info"}


async def test_tls(start, certificate):
    server = await start()
    async with RpcServer(server.client.server.app[SERVICE], Access(), payload_limit=10_000,
                         certificate=certificate) as rpc:
        port = await rpc.start("127.0.0.1", 0)
        credentials = grpc.ssl_channel_credentials(certificate[0].read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            info = await penstock_pb2_grpc.TextGenerationStub(channel).Info(penstock_pb2.InfoRequest())
        assert info.model_id == INFO.model_id


async def test_a_port_that_is_taken(start_rpc):
    rpc = await start_rpc()
    async with RpcServer(rpc.server.client.server.app[SERVICE], Access(), payload_limit=1) as other:
        with pytest.raises(OSError, match="cannot listen at"):
            await other.start("127.0.0.1", rpc.port)


async def test_grammar(start_rpc, grammars):
    rpc = await start_rpc(grammars=grammars, answer="no")
    code, message = await failure(rpc.stub.Generate(asking(grammar=penstock_pb2.Grammar(json_schema='{"not":{}}'))))
    assert (code.name, message) == (
        "INVALID_ARGUMENT", "Input validation error: grammar is not valid: `not` is not supported")
    request = asking(grammar=penstock_pb2.Grammar(choice=penstock_pb2.Choices(texts=["no", "yes"])))
    [answer] = (await rpc.stub.Generate(request)).answers
    assert answer.ending.text in ("no", "yes")


async def test_the_trace_is_handed_on(start_rpc):
    tracer = Tracer()
    rpc = await start_rpc(tracer=tracer)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await rpc.stub.Generate(asking(max_new_tokens=1), metadata=(("traceparent", parent),))
    [(name, carrier, attributes)] = tracer.spans
    assert name == "penstock.v1.TextGeneration/Generate"
    assert carrier["traceparent"] == parent
    assert attributes["rpc.method"] == name


async def _wait(call: Awaitable[object]) -> object:
    return await call


async def _drain(call: Any) -> None:
    async for _ in call:
        pass
