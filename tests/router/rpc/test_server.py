"""The standard services, TLS, the end of the server, traces."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from penstock.contract import side_inputs
from penstock.protos import penstock_pb2 as pb
from penstock.protos import services
from penstock.router.api.http.access import Access
from penstock.router.fleet.errors import FleetError
from penstock.router.generation.services import SERVICES
from penstock.router.keys import Keys
from penstock.router.rpc import kserve
from penstock.router.rpc.server import RpcServer
from penstock.router.tracing.middleware import Tracing
from tests.eventually import until
from tests.router.api.test_traces import PARENT, TRACE, TRACEPARENT, attributes
from tests.router.rpc.conftest import Rpc, StartRpc, error_of, request

NAME = "penstock.v1.TextGeneration"
HEALTH, REFLECTION = "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"
Status = health_pb2.HealthCheckResponse


async def test_reflection_lists_the_services(start_rpc: StartRpc) -> None:
    rpc = await start_rpc(access=Access(Keys(["s3cret"])))
    stub = reflection_pb2_grpc.ServerReflectionStub(rpc.channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    assert [service.name for service in answer.list_services_response.service] == sorted(
        [NAME, kserve.SERVICE_NAME, HEALTH, REFLECTION])
    call.cancel()


async def test_a_client_that_knows_nothing(rpc: Rpc) -> None:
    """It learns the messages from the server, and calls."""

    def call_by_reflection() -> tuple[set[str], str]:
        with grpc.insecure_channel(rpc.target) as channel:
            pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
            service = pool.FindServiceByName(NAME)
            method = service.methods_by_name["Generate"]
            ask, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
            call = channel.unary_unary(
                f"/{NAME}/Generate", request_serializer=ask.SerializeToString, response_deserializer=answer.FromString)
            message = ask(inputs="Say it")
            message.parameters.max_new_tokens = 4
            return {method.name for method in service.methods}, call(message).generated_text

    methods, text = await asyncio.to_thread(call_by_reflection)
    assert methods == {"Generate", "GenerateStream", "Tokenize", "Info"}
    assert text == (await rpc.generate(max_new_tokens=4)).generated_text


async def test_health(start_rpc: StartRpc) -> None:
    rpc = await start_rpc(access=Access(Keys(["s3cret"])))
    stub = health_pb2_grpc.HealthStub(rpc.channel)

    async def status(service: str = "") -> int:
        value: int = (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status
        return value

    watch = stub.Watch(health_pb2.HealthCheckRequest(service=NAME))
    while (await watch.read()).status != Status.SERVING:
        pass
    assert [await status(), await status(NAME)] == [Status.SERVING] * 2
    code, _, _ = await error_of(stub.Check(health_pb2.HealthCheckRequest(service="other")))
    assert code is grpc.StatusCode.NOT_FOUND
    rpc.server.fleet.may_open.clear()
    rpc.server.fleet.failure = FleetError("gone")
    call = rpc.stub.Generate(request(max_new_tokens=1), metadata=(("authorization", "Bearer s3cret"),))
    waiting = asyncio.ensure_future(call)
    assert (await watch.read()).status == Status.NOT_SERVING
    assert [await status(), await status(NAME)] == [Status.NOT_SERVING] * 2
    assert (await rpc.server.client.get("/readyz")).status == 503
    rpc.server.fleet.may_open.set()
    assert (await watch.read()).status == Status.SERVING
    assert await status() == Status.SERVING
    await waiting
    rpc.server.engine.give_up()
    assert (await watch.read()).status == Status.NOT_SERVING
    watch.cancel()


async def test_tls(start_rpc: StartRpc, certificate: tuple[Path, Path]) -> None:
    rpc = await start_rpc(certificate=certificate)
    assert (await rpc.generate(max_new_tokens=1)).generated_text
    async with grpc.aio.insecure_channel(rpc.target) as plain:
        call = services.stub(plain, pb).Info(pb.InfoRequest())
        assert (await error_of(call))[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_server_of_ipv6(start_rpc: StartRpc) -> None:
    assert (await (await start_rpc(hostname="::1")).generate(max_new_tokens=1)).generated_text


async def test_the_end_waits_for_calls_that_run(rpc: Rpc) -> None:
    """But not for those who watch or reflect, and no new call is taken."""
    fleet, health = rpc.server.fleet, health_pb2_grpc.HealthStub(rpc.channel)
    watch = health.Watch(health_pb2.HealthCheckRequest())
    reflecting = reflection_pb2_grpc.ServerReflectionStub(rpc.channel).ServerReflectionInfo()
    await reflecting.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    await reflecting.read()
    while (await watch.read()).status != Status.SERVING:
        pass
    fleet.may_answer.clear()
    running = asyncio.create_task(rpc.stream(max_new_tokens=20, ignore_eos=True))
    whole = asyncio.create_task(rpc.generate(max_new_tokens=20, ignore_eos=True))
    await until(lambda: len(rpc.server.engine._requests) == 2)
    ending = asyncio.create_task(rpc.server.client.close())
    assert (await watch.read()).status == Status.NOT_SERVING
    async with grpc.aio.insecure_channel(rpc.target) as late:
        code, *_ = await error_of(services.stub(late, pb).Info(pb.InfoRequest()))
        assert code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert not ending.done()
    fleet.may_answer.set()
    assert len(await running) == 20
    assert (await whole).generated_text == (await running)[-1].generated_text
    await ending
    assert await watch.code() is not grpc.StatusCode.OK


async def test_a_port_that_is_taken(rpc: Rpc) -> None:
    second = RpcServer(rpc.server.client.app[SERVICES], Access(), None, rpc.target, 0.0)
    with pytest.raises(OSError, match=f"cannot serve gRPC at {rpc.target}"):
        await anext(second.run(None))  # type: ignore[arg-type]


class Traced:
    def __init__(self) -> None:
        self.exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Tracing(provider, "demo")

    async def request(self) -> Any:
        """The span of the only call, once it has ended."""
        await until(lambda: any(span.name.startswith(NAME) for span in self.exporter.get_finished_spans()))
        [span] = [span for span in self.exporter.get_finished_spans() if span.name.startswith(NAME)]
        return span


async def test_a_trace(start_rpc: StartRpc) -> None:
    traced = Traced()
    rpc = await start_rpc(tracing=traced.tracing)
    call = rpc.stub.GenerateStream(
        request(" a" * 30, max_new_tokens=3, seed=7, temperature=0.5), metadata=(("traceparent", TRACEPARENT),))
    assert len([event async for event in call]) == 3
    span = await traced.request()
    assert (span.context.trace_id, span.parent.span_id) == (TRACE, PARENT)
    told = attributes(span)
    assert told.pop("user_agent.original").startswith("grpc-python")
    assert told.pop("penstock.request.id").startswith("req_")
    assert ".7." in told.pop("gen_ai.response.id")
    assert told.pop("gen_ai.response.time_to_first_chunk") > 0
    assert told == {
        "rpc.system.name": "grpc", "rpc.method": f"{NAME}/GenerateStream", "rpc.response.status_code": "OK",
        "client.address": "127.0.0.1",
        "gen_ai.operation.name": "text_completion", "gen_ai.provider.name": "penstock",
        "gen_ai.request.model": "demo", "gen_ai.response.model": "demo", "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 3, "gen_ai.request.temperature": 0.5, "gen_ai.request.seed": 7,
        "gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 3, "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.response.finish_reasons": ("length",)}
    parts = {part.name: part for part in traced.exporter.get_finished_spans() if part is not span}
    assert set(parts) == {"validation", "queue", "prefill", "decode"}
    assert {part.parent.span_id for part in parts.values() if part.parent} == {span.context.span_id}
    firsts = rpc.server.fleet.initial_states
    assert [first.side_inputs[side_inputs.TRACE][:16] for first in firsts] == [TRACE.to_bytes(16, "big")]


@pytest.mark.parametrize(("parameters", "seconds", "kind", "code", "is_error"), [
    ({"temperature": -1.0}, None, "validation", "INVALID_ARGUMENT", False),
    ({}, 0.2, "dropped", "DEADLINE_EXCEEDED", True)])
async def test_a_trace_of_what_fails(
    start_rpc: StartRpc, parameters: dict[str, Any], seconds: float | None, kind: str, code: str, is_error: bool
) -> None:
    traced = Traced()
    rpc = await start_rpc(tracing=traced.tracing)
    rpc.server.fleet.may_answer.clear()
    told, *_ = await error_of(rpc.stub.Generate(request(**parameters), timeout=seconds))
    span = await traced.request()
    assert told.name == attributes(span)["rpc.response.status_code"] == code
    assert attributes(span)["error.type"] == kind
    assert (span.status.status_code is StatusCode.ERROR) == is_error
    rpc.server.fleet.may_answer.set()


async def test_what_is_only_looked_at_has_no_trace(start_rpc: StartRpc) -> None:
    traced = Traced()
    rpc = await start_rpc(tracing=traced.tracing)
    await rpc.stub.Info(pb.InfoRequest())
    await health_pb2_grpc.HealthStub(rpc.channel).Check(health_pb2.HealthCheckRequest())
    assert traced.exporter.get_finished_spans() == ()
