"""TEI's services, of models that make vectors and scores."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from penstock.protos import services
from penstock.protos import tei_pb2 as pb
from penstock.router.api.http.access import Access
from penstock.router.keys import Keys
from tests.eventually import until
from tests.fakes import LIMITS
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, RERANKER, SPARSE, PoolingFleet
from tests.router.rpc.conftest import Rpc, StartRpc, error_of

Code = grpc.StatusCode
INVALID = "Input validation error: "
Status = health_pb2.HealthCheckResponse
COUNT = "tgi_request_count"
StartTei = Callable[..., Awaitable[Rpc]]


@pytest.fixture
def start_tei(start_rpc: StartRpc) -> StartTei:
    """Starts a server of a model with these facts; its stub has the calls of all of TEI's services."""
    async def start_tei(facts: Any = EMBEDDER, **settings: Any) -> Rpc:
        settings.setdefault("limits", replace(LIMITS, max_client_batch_size=4))
        rpc = await start_rpc(facts=facts, make_fleet=lambda script: PoolingFleet(facts), **settings)
        calls: dict[str, Any] = {}
        for service in services.services_of(pb):
            calls |= vars(services.stub(rpc.channel, pb, service.name))
        rpc.stub.__dict__.update(calls)
        return rpc

    return start_tei


async def each(*messages: Any) -> AsyncIterator[Any]:
    for message in messages:
        yield message


async def replies(call: Any) -> list[Any]:
    return [reply async for reply in call]


async def test_tokens_and_their_texts(start_tei: StartTei) -> None:
    stub = (await start_tei()).stub
    tokens = (await stub.Tokenize(pb.EncodeRequest(inputs="def wörld"))).tokens
    assert (tokens[0].start, tokens[-1].stop) == (0, len("def wörld".encode()))
    ids = [token.id for token in tokens]
    assert (await stub.Decode(pb.DecodeRequest(ids=ids))).text == "def wörld"
    texts = ["def wörld", "a", "b c"]
    found = await replies(stub.TokenizeStream(each(*(pb.EncodeRequest(inputs=text) for text in texts))))
    assert [token.id for token in found[0].tokens] == ids
    requests = [pb.DecodeRequest(ids=[token.id for token in one.tokens]) for one in found]
    assert [reply.text for reply in await replies(stub.DecodeStream(each(*requests)))] == texts


async def test_what_is_refused(start_tei: StartTei) -> None:
    stub = (await start_tei()).stub
    told = Code.INVALID_ARGUMENT, INVALID + "`ids` cannot be empty", "empty"
    assert await error_of(stub.Decode(pb.DecodeRequest())) == told
    call = stub.DecodeStream(each(pb.DecodeRequest(ids=[1]), pb.DecodeRequest(), pb.DecodeRequest(ids=[1])))
    assert (await call.read()).text
    assert await error_of(call.read()) == told
    long = pb.EncodeRequest(inputs="a" * 300_000)
    assert (await error_of(stub.Tokenize(long)))[1].startswith(INVALID + "`inputs` must have <= 262144 characters")


async def test_vectors(start_tei: StartTei) -> None:
    """Are those of HTTP, one by one and streamed, and in the order of the texts."""
    rpc = await start_tei()
    texts = [f"text {number}" for number in range(10)]
    vectors = [vector for part in (texts[:4], texts[4:8], texts[8:])
               for vector in await (await rpc.server.post("/embed", {"inputs": part})).json()]
    found = await replies(rpc.stub.EmbedStream(each(*(pb.EmbedRequest(inputs=text) for text in texts))))
    assert [[*reply.embeddings] for reply in found] == vectors
    reply = await rpc.stub.Embed(pb.EmbedRequest(inputs=texts[0]))
    assert [*reply.embeddings] == vectors[0]
    assert (reply.metadata.compute_chars, reply.metadata.compute_tokens) == (6, found[0].metadata.compute_tokens)
    assert reply.metadata.total_time_ns >= reply.metadata.inference_time_ns > 0
    bare = await rpc.stub.Embed(pb.EmbedRequest(inputs=texts[0], normalize=False, dimensions=3))
    assert len(bare.embeddings) == 3
    assert sum(number * number for number in bare.embeddings) != pytest.approx(1)
    tokens = await rpc.stub.EmbedAll(pb.EmbedAllRequest(inputs=texts[0]))
    assert len(tokens.token_embeddings) == tokens.metadata.compute_tokens
    assert await replies(rpc.stub.EmbedAllStream(each())) == []


async def test_costs_come_before_an_answer(start_tei: StartTei) -> None:
    call = (await start_tei()).stub.Embed(pb.EmbedRequest(inputs="a b"))
    headers = dict(await call.initial_metadata())
    assert (headers["x-compute-type"], headers["x-compute-characters"]) == ("2-cpu", "3")


async def test_sparse_vectors(start_tei: StartTei) -> None:
    rpc = await start_tei(SPARSE)
    [values] = await (await rpc.server.post("/embed_sparse", {"inputs": "a b"})).json()
    reply = await rpc.stub.EmbedSparse(pb.EmbedSparseRequest(inputs="a b"))
    assert [{"index": each.index, "value": each.value} for each in reply.sparse_embeddings] == values
    [streamed] = await replies(rpc.stub.EmbedSparseStream(each(pb.EmbedSparseRequest(inputs="a b"))))
    assert streamed.sparse_embeddings == reply.sparse_embeddings


async def test_texts_are_cut_where_that_is_asked(start_tei: StartTei) -> None:
    stub = (await start_tei(limits=replace(LIMITS, max_input_tokens=4))).stub
    long = "a b c d e f g h"
    told = await error_of(stub.Embed(pb.EmbedRequest(inputs=long)))
    assert told[0] is Code.INVALID_ARGUMENT
    assert told[1].startswith(INVALID + "`inputs` must have less than 4 tokens. Given: ")
    ends = [await stub.Embed(pb.EmbedRequest(inputs=long, truncate=True, truncation_direction=direction))
            for direction in (pb.TRUNCATION_DIRECTION_RIGHT, pb.TRUNCATION_DIRECTION_LEFT)]
    assert [end.metadata.compute_tokens for end in ends] == [4, 4]
    assert ends[0].embeddings != ends[1].embeddings
    assert (await error_of(stub.Embed(pb.EmbedRequest(inputs="a", truncation_direction=cast(Any, 7)))))[1] == (
        INVALID + "`truncation_direction` must be 0, which is right, or 1, which is left. Given: 7")


async def test_scores(start_tei: StartTei) -> None:
    rpc = await start_tei(CLASSIFIER)
    for path, requests in (("Predict", [pb.PredictRequest(inputs="a")]),
                           ("PredictPair", [pb.PredictPairRequest(inputs=["a"]),
                                            pb.PredictPairRequest(inputs=["a", "b"])])):
        for request in requests:
            inputs = request.inputs if path == "Predict" else [*request.inputs]
            expected = await (await rpc.server.post("/predict", {"inputs": inputs})).json()
            reply = await getattr(rpc.stub, path)(request)
            assert [each.label for each in reply.predictions] == [each["label"] for each in expected]
            assert [each.score for each in reply.predictions] == pytest.approx([each["score"] for each in expected])
            [streamed] = await replies(getattr(rpc.stub, f"{path}Stream")(each(request)))
            assert streamed.predictions == reply.predictions
    assert (await error_of(rpc.stub.PredictPair(pb.PredictPairRequest(inputs=["a"] * 3))))[1] == (
        INVALID + "`inputs` must have a single or two elements. Given: 3")


async def test_ranks(start_tei: StartTei) -> None:
    """Of a list, or of texts that come one by one, which may be more than a list has."""
    rpc = await start_tei(RERANKER)
    texts = ["one", "def two", "three three"]
    expected = await (await rpc.server.post("/rerank", {"query": "q", "texts": texts, "return_text": True})).json()
    reply = await rpc.stub.Rerank(pb.RerankRequest(query="q", texts=texts, return_text=True))
    told = [{"index": rank.index, "text": rank.text, "score": pytest.approx(rank.score)} for rank in reply.ranks]
    assert told == expected
    requests = [pb.RerankStreamRequest(query="q", text=text, return_text=number == 0)
                for number, text in enumerate(texts)]
    streamed = await rpc.stub.RerankStream(each(*requests))
    assert streamed.ranks == reply.ranks
    assert streamed.metadata.compute_chars == reply.metadata.compute_chars
    many = await rpc.stub.RerankStream(each(*requests[1:], *requests, *requests))
    assert len(many.ranks) == 8
    assert not any(rank.HasField("text") for rank in many.ranks)
    refused = Code.INVALID_ARGUMENT, INVALID + "`text` cannot be empty", "empty"
    assert await error_of(rpc.stub.RerankStream(each())) == refused


async def test_what_a_stream_keeps_has_a_limit(start_tei: StartTei) -> None:
    rpc = await start_tei(RERANKER, limits=replace(LIMITS, payload_limit=100))
    requests = [pb.RerankStreamRequest(query="q", text="a" * 30, return_text=True)] * 5
    assert (await error_of(rpc.stub.RerankStream(each(*requests))))[1] == (
        INVALID + "`return_text` is for texts of <= 100 characters in all. Given: 120")


async def test_a_stream_ends_with_its_first_failure(start_tei: StartTei) -> None:
    stub = (await start_tei()).stub
    call = stub.EmbedStream(each(*(pb.EmbedRequest(inputs=text) for text in ("a", "b", "", "c", ""))))
    assert (await call.read()).embeddings
    assert (await call.read()).embeddings
    assert await error_of(call.read()) == (Code.INVALID_ARGUMENT, INVALID + "`inputs` cannot be empty", "empty")


async def test_a_stream_waits_where_others_are_refused(start_tei: StartTei) -> None:
    rpc = await start_tei()
    limit = LIMITS.max_concurrent_requests
    async with rpc.server.groups.permit(limit):
        assert await error_of(rpc.stub.Embed(pb.EmbedRequest(inputs="a"))) == (
            Code.RESOURCE_EXHAUSTED, "Model is overloaded", "overloaded")
        call = rpc.stub.EmbedStream(each(*(pb.EmbedRequest(inputs=f"{number}") for number in range(2 * limit))))
        await until(lambda: rpc.server.series()[COUNT] > 1)
    assert len(await replies(call)) == 2 * limit
    await rpc.server.until_idle()


async def test_a_stream_that_is_left(start_tei: StartTei) -> None:
    rpc = await start_tei()
    rpc.server.fleet.may_answer.clear()
    call = rpc.stub.EmbedStream(each(*(pb.EmbedRequest(inputs="a") for _ in range(100))))
    await until(lambda: len(rpc.server.engine._requests) > 10)
    call.cancel()
    await until(lambda: not rpc.server.engine._requests)
    rpc.server.fleet.may_answer.set()
    await rpc.server.until_idle()


async def test_failures_in_teis_words(start_tei: StartTei) -> None:
    rpc = await start_tei()
    rpc.server.fleet.is_nan = lambda row: True
    code, _, kind = await error_of(rpc.stub.Embed(pb.EmbedRequest(inputs="a")))
    assert (code, kind) == (Code.FAILED_PRECONDITION, "backend")
    rpc.server.engine.give_up()
    told = Code.UNAVAILABLE, "unhealthy", "unhealthy"
    assert await error_of(rpc.stub.Embed(pb.EmbedRequest(inputs="a"))) == told


@pytest.mark.parametrize("facts", [EMBEDDER, CLASSIFIER, RERANKER])
async def test_what_the_model_is_not_for(start_tei: StartTei, facts: Any) -> None:
    """Is refused by a sentence, and by its health."""
    rpc = await start_tei(facts)
    health = health_pb2_grpc.HealthStub(rpc.channel)
    requests = {"Embed": pb.EmbedRequest(inputs="a"), "Predict": pb.PredictRequest(inputs="a"),
                "Rerank": pb.RerankRequest(query="a", texts=["b"])}
    fit = {"Embed": {"Embed"}, "Predict": {"Predict"}, "Rerank": {"Predict", "Rerank"}}[
        "Embed" if facts is EMBEDDER else "Predict" if facts is CLASSIFIER else "Rerank"]
    for name, request in requests.items():
        status = (await health.Check(health_pb2.HealthCheckRequest(service=f"tei.v1.{name}"))).status
        assert status == (Status.SERVING if name in fit else Status.NOT_SERVING)
        if name not in fit:
            code, sentence, kind = await error_of(getattr(rpc.stub, name)(request))
            assert (code, kind) == (Code.FAILED_PRECONDITION, "backend")
            assert "the model" in sentence
            assert "; it has /" in sentence


async def test_info(start_tei: StartTei) -> None:
    info = await (await start_tei(RERANKER)).stub.Info(pb.InfoRequest())
    assert (info.model_id, info.model_sha, info.model_type) == ("demo", "abc", pb.MODEL_TYPE_RERANKER)
    assert info.max_client_batch_size == 4
    assert not info.HasField("docker_label")


async def test_key(start_tei: StartTei) -> None:
    stub = (await start_tei(access=Access(Keys(["s3cret"])))).stub
    told = Code.UNAUTHENTICATED, "The API key is missing or wrong", "unauthenticated"
    for call in (stub.Embed(pb.EmbedRequest(inputs="a")), stub.Decode(pb.DecodeRequest(ids=[1])),
                 stub.EmbedStream(each(pb.EmbedRequest(inputs="a"))).read(),
                 stub.RerankStream(each(pb.RerankStreamRequest(query="a", text="b")))):
        assert await error_of(call) == told
    key = (("authorization", "Bearer s3cret"),)
    assert (await stub.Decode(pb.DecodeRequest(ids=[1]), metadata=key)).text


async def test_generators_have_none_of_them(rpc: Rpc) -> None:
    call = services.stub(rpc.channel, pb, "Embed").Embed(pb.EmbedRequest(inputs="a"))
    assert (await error_of(call))[0] is Code.UNIMPLEMENTED
