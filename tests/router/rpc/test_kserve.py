"""KServe's service, with Triton's calls, of models of all kinds."""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import grpc
import pytest

from penstock.protos import kserve_pb2 as pb
from penstock.protos import services
from penstock.router.api.http.access import Access
from penstock.router.keys import Keys
from tests.fakes import LIMITS
from tests.pooling_fleet import EMBEDDER, RERANKER, PoolingFleet
from tests.router.api.kserve.conftest import packed
from tests.router.rpc.conftest import Rpc, StartRpc, error_of

Code = grpc.StatusCode
TEXT = "Hello wörld, 😀 is all."
INVALID = "Input validation error: "


def stub(rpc: Rpc) -> Any:
    return services.stub(rpc.channel, pb)


def message(text: str = "Say it", name: str = "demo", id: str = "", **parameters: object) -> pb.ModelInferRequest:
    """A request in the manner of KServe's client, whose values have types."""
    request = pb.ModelInferRequest(model_name=name, id=id)
    add(request, "text_input", "BYTES", [1], bytes_contents=[text.encode()])
    for key, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
        setattr(request.parameters[key], kind, value)
    return request


def add(request: pb.ModelInferRequest, name: str, datatype: str, shape: Sequence[int], **contents: Any) -> None:
    request.inputs.add(name=name, datatype=datatype, shape=shape, contents=pb.InferTensorContents(**contents))


def raw(text: str = "Say it", id: str = "", **switches: bool) -> pb.ModelInferRequest:
    """A request in the manner of Triton's client, whose values are bytes."""
    request = pb.ModelInferRequest(model_name="demo", id=id, raw_input_contents=[packed(text)])
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    for name, value in switches.items():
        request.inputs.add(name=name, datatype="BOOL", shape=[1])
        request.raw_input_contents.append(bytes([value]))
    return request


async def test_texts_of_texts(rpc: Rpc) -> None:
    response = await stub(rpc).ModelInfer(message(id="7", exclude_input_in_output=True, max_tokens=2))
    assert (response.model_name, response.model_version, response.id) == ("demo", "1", "7")
    [output] = response.outputs
    assert (output.name, output.datatype, [*output.shape]) == ("text_output", "BYTES", [1])
    assert [*output.contents.bytes_contents] == [b"Hello"]
    assert not response.raw_output_contents


async def test_bytes_are_answered_with_bytes(rpc: Rpc) -> None:
    response = await stub(rpc).ModelInfer(raw())
    assert [*response.raw_output_contents] == [packed(f"Say it{TEXT}")]
    assert not response.outputs[0].HasField("contents")


async def streamed(rpc: Rpc, *requests: pb.ModelInferRequest) -> list[pb.ModelStreamInferResponse]:
    async def send() -> Any:
        for request in requests:
            yield request

    return [response async for response in stub(rpc).ModelStreamInfer(send())]


async def test_a_stream_has_a_response_per_token(rpc: Rpc) -> None:
    found = [response.infer_response for response in await streamed(rpc, raw(id="1", stream=True))]
    texts = [response.raw_output_contents[0][4:].decode() for response in found]
    assert "".join(texts) == TEXT
    assert len(texts) > 5
    assert {response.id for response in found} == {"1"}
    finals = [response.parameters["triton_final_response"].bool_param for response in found]
    assert finals == [False] * (len(found) - 1) + [True]
    await rpc.until_no_block_is_held()


async def test_requests_of_a_stream_and_one_that_fails(rpc: Rpc) -> None:
    found = await streamed(rpc, raw(id="1", stream=True), message(id="2", max_tokens=0), message(id="3"),
                           message(id="4", name="other"))
    by_id = {number: [each for each in found if each.infer_response.id == number] for number in "1234"}
    assert "".join(each.infer_response.raw_output_contents[0][4:].decode() for each in by_id["1"]) == TEXT
    assert [each.error_message for each in by_id["2"]] == ["`max_tokens` must be strictly positive"]
    assert by_id["3"][0].infer_response.outputs[0].contents.bytes_contents[0].decode() == f"Say it{TEXT}"
    assert [each.error_message for each in by_id["4"]] == ["The model `other` does not exist"]
    assert rpc.server.series()['penstock_requests_total{route="/inference.GRPCInferenceService/ModelStreamInfer",'
                               'status="200"}'] == 1


async def test_a_client_that_leaves_a_stream(rpc: Rpc) -> None:
    rpc.server.fleet.may_answer.clear()
    call = stub(rpc).ModelStreamInfer(iter([raw(stream=True)]))
    await rpc.server.fleet.has_plan.wait()
    call.cancel()
    rpc.server.fleet.may_answer.set()
    await rpc.until_no_block_is_held()


async def test_a_client_that_leaves_amid_answers(rpc: Rpc, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(8):
        call = stub(rpc).ModelStreamInfer(iter([raw(stream=True)] * 8))
        await call.read()
        call.cancel()
        await rpc.until_no_block_is_held()
    assert "a handler failed" not in caplog.text


async def test_what_breaks_a_rule(rpc: Rpc) -> None:
    both = raw()
    both.inputs[0].contents.bytes_contents.append(b"x")
    twice = message()
    add(twice, "text_input", "BYTES", [1], bytes_contents=[b"x"])
    shared = raw()
    shared.inputs[0].parameters["shared_memory_region"].string_param = "x"
    no_text = message()
    no_text.inputs[0].contents.bytes_contents[0] = b"\xff"
    few = raw()
    few.inputs.add(name="stream", datatype="BOOL", shape=[1])
    half = message()
    add(half, "temperature", "FP16", [1])
    for request, sentence in [
        (message(max_tokens=0), "`max_tokens` must be strictly positive"), (both, "must not have `contents` beside"),
        (twice, "`inputs` must have each name once"), (shared, "`shared_memory_region`"),
        (no_text, "must have texts in UTF-8, which value 0 is not"),
        (few, "`raw_input_contents` must have the data of 2"),
        (half, "`temperature` (FP16 [1]) must have 1 values. Given: 0"), (message(stream=True), "`stream` is for"),
        (message(timeout=5), "`timeout`, other than 0, is not supported"),
    ]:
        code, details, kind = await error_of(stub(rpc).ModelInfer(request))
        assert (code, kind) == (Code.INVALID_ARGUMENT, "validation")
        assert sentence in details, details
    assert (await error_of(stub(rpc).ModelInfer(message(name="other"))))[0] is Code.NOT_FOUND


async def test_the_server_and_its_model(rpc: Rpc) -> None:
    call = stub(rpc)
    assert (await call.ServerLive(pb.ServerLiveRequest())).live
    assert (await call.ServerReady(pb.ServerReadyRequest())).ready
    assert (await call.ModelReady(pb.ModelReadyRequest(name="demo", version="1"))).ready
    assert "binary_tensor_data" in (await call.ServerMetadata(pb.ServerMetadataRequest())).extensions
    metadata = await call.ModelMetadata(pb.ModelMetadataRequest(name="demo"))
    assert [*metadata.versions] == ["1"]
    assert ("text_input", "BYTES", [-1]) in [(each.name, each.datatype, [*each.shape]) for each in metadata.inputs]
    config = (await call.ModelConfig(pb.ModelConfigRequest(name="demo"))).config
    assert config.model_transaction_policy.decoupled
    assert (config.output[0].name, config.output[0].data_type) == ("text_output", pb.TYPE_STRING)
    for ask in (call.ModelReady(pb.ModelReadyRequest(name="other")),
                call.ModelMetadata(pb.ModelMetadataRequest(name="demo", version="2")),
                call.ModelConfig(pb.ModelConfigRequest(name="other")),
                call.ModelStatistics(pb.ModelStatisticsRequest(name="other"))):
        assert (await error_of(ask))[0] is Code.NOT_FOUND


async def test_the_repository(rpc: Rpc) -> None:
    call = stub(rpc)
    [model] = (await call.RepositoryIndex(pb.RepositoryIndexRequest(ready=True))).models
    assert (model.name, model.version, model.state) == ("demo", "1", "READY")
    await call.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="demo"))
    unloading = call.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="demo"))
    assert (await error_of(unloading))[:2] == (
        Code.INVALID_ARGUMENT, f"{INVALID}`model`: demo is the server's first model, which is always loaded")
    loading = call.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="x"))
    assert (await error_of(loading))[:2] == (Code.NOT_FOUND, "The model `x` does not exist")
    request = pb.RepositoryModelLoadRequest(model_name="demo")
    request.parameters["config"].string_param = "{}"
    assert "`config`" in (await error_of(call.RepositoryModelLoad(request)))[1]


async def test_statistics(rpc: Rpc) -> None:
    await stub(rpc).ModelInfer(message())
    await error_of(stub(rpc).ModelInfer(message(max_tokens=0)))
    for request in (pb.ModelStatisticsRequest(), pb.ModelStatisticsRequest(name="demo")):
        [found] = (await stub(rpc).ModelStatistics(request)).model_stats
        assert (found.name, found.version, found.inference_count) == ("demo", "1", 1)
        assert found.execution_count > 5
        assert (found.inference_stats.success.count, found.inference_stats.fail.count) == (1, 1)
        assert found.inference_stats.compute_infer.ns > 0


async def test_keys(start_rpc: StartRpc) -> None:
    rpc = await start_rpc(access=Access(Keys(["secret"]), Keys(["metrics"])))
    call = stub(rpc)
    for ask in (call.ModelInfer(message()), call.RepositoryIndex(pb.RepositoryIndexRequest()),
                call.ModelStatistics(pb.ModelStatisticsRequest())):
        assert (await error_of(ask))[0] is Code.UNAUTHENTICATED
    assert await call.ModelInfer(message(), metadata=(("authorization", "Bearer secret"),))
    assert await call.ModelStatistics(pb.ModelStatisticsRequest(), metadata=(("authorization", "Bearer metrics"),))
    assert (await call.ModelReady(pb.ModelReadyRequest(name="demo"))).ready


async def test_requests_of_a_stream_wait_for_room(start_rpc: StartRpc) -> None:
    rpc = await start_rpc(limits=replace(LIMITS, max_concurrent_requests=2))
    found = await streamed(rpc, *(message(id=str(number)) for number in range(9)))
    assert {each.infer_response.id for each in found} == {str(number) for number in range(9)}
    assert not any(each.error_message for each in found)


@pytest.mark.parametrize("is_raw", [False, True])
async def test_vectors(start_rpc: StartRpc, is_raw: bool) -> None:
    rpc = await start_rpc(facts=EMBEDDER, make_fleet=lambda script: PoolingFleet(EMBEDDER))
    response = await stub(rpc).ModelInfer(raw("A text") if is_raw else message("A text"))
    [output] = response.outputs
    assert (output.name, output.datatype, [*output.shape]) == ("embedding", "FP32", [1, 8])
    values = struct.unpack("<8f", response.raw_output_contents[0]) if is_raw else output.contents.fp32_contents
    expected = await (await rpc.server.post("/embed", {"inputs": "A text"})).json()
    assert [*values] == pytest.approx(expected[0])
    found = await streamed(rpc, message("A text", id="1"))
    assert [*found[0].infer_response.outputs[0].shape] == [1, 8]


async def test_ranks(start_rpc: StartRpc) -> None:
    rpc = await start_rpc(facts=RERANKER, make_fleet=lambda script: PoolingFleet(RERANKER))
    request = pb.ModelInferRequest(model_name="demo")
    add(request, "query", "BYTES", [1], bytes_contents=[b"What?"])
    add(request, "texts", "BYTES", [2], bytes_contents=[b"This", b"That"])
    [output] = (await stub(rpc).ModelInfer(request)).outputs
    assert (output.name, [*output.shape], len(output.contents.fp32_contents)) == ("scores", [2, 1], 2)


async def test_calls_beside_each_other(rpc: Rpc) -> None:
    responses = await asyncio.gather(*(stub(rpc).ModelInfer(message(f"Say {number}")) for number in range(20)))
    assert [response.outputs[0].contents.bytes_contents[0].decode() for response in responses] == [
        f"Say {number}{TEXT}" for number in range(20)]
