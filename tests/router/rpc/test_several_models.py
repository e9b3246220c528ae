"""Calls choose among models by the metadata."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import grpc

from penstock.protos import penstock_pb2 as pb
from penstock.protos import services
from penstock.protos import tei_pb2 as tei
from penstock.router.generation.service import Service
from penstock.router.generation.services import SERVICES, Services
from tests.pooling_fleet import EMBEDDER, PoolingFleet
from tests.router.api.conftest import INFO
from tests.router.api.test_several_models import second
from tests.router.rpc.conftest import StartRpc, error_of, request

__all__ = ["second"]


async def test_the_metadata_names_the_model(start_rpc: StartRpc, second: Service) -> None:
    rpc = await start_rpc(answer="I am demo.<|im_end|>", others=[second])
    prompt = request("Who?", max_new_tokens=9)
    for name, said in ((None, "I am demo."), ("demo", "I am demo."), ("second", "I am second.")):
        metadata: Any = () if name is None else (("penstock-model", name),)
        assert (await rpc.stub.Generate(prompt, metadata=metadata)).generated_text == said
        events = [event async for event in rpc.stub.GenerateStream(prompt, metadata=metadata)]
        assert "".join(event.token.text for event in events if not event.token.special) == said
        assert (await rpc.stub.Info(pb.InfoRequest(), metadata=metadata)).model_id == (name or "demo")
    code, details, kind = await error_of(rpc.stub.Info(pb.InfoRequest(), metadata=(("penstock-model", "third"),)))
    assert (code, kind) == (grpc.StatusCode.NOT_FOUND, "model_not_found")
    code, details, kind = await error_of(rpc.stub.Generate(prompt, metadata=(("penstock-model", "third"),)))
    assert (code, details, kind) == (
        grpc.StatusCode.NOT_FOUND, "The model `third` does not exist", "model_not_found")


async def test_the_metadata_names_one_that_makes_vectors(start_rpc: StartRpc) -> None:
    embedder = await start_rpc(facts=EMBEDDER, make_fleet=lambda script: PoolingFleet(EMBEDDER))
    app = embedder.server.client.app
    assert app is not None
    vectors = replace(app[SERVICES].first, info=replace(INFO, model_id="vectors"))
    rpc = await start_rpc(make_services=lambda first: Several(first, vectors))
    embed, info = services.stub(rpc.channel, tei, "Embed"), services.stub(rpc.channel, tei, "Info")
    chosen: Any = (("penstock-model", "vectors"),)
    alone = await services.stub(embedder.channel, tei, "Embed").Embed(tei.EmbedRequest(inputs="a b"))
    assert (await embed.Embed(tei.EmbedRequest(inputs="a b"), metadata=chosen)).embeddings == alone.embeddings
    [streamed] = [each async for each in embed.EmbedStream(_once(tei.EmbedRequest(inputs="a b")), metadata=chosen)]
    assert streamed.embeddings == alone.embeddings
    assert (await info.Info(tei.InfoRequest(), metadata=chosen)).model_id == "vectors"
    code, details, _ = await error_of(embed.Embed(tei.EmbedRequest(inputs="a b")))
    assert (code, "the model generates text" in details or "generate" in details) == (
        grpc.StatusCode.FAILED_PRECONDITION, True)


class Several(Services):
    """Services whose engines other servers run."""

    def __iter__(self) -> Iterator[Service]:
        yield self.first

    def named(self, name: str | None) -> Service:
        return self._services[name == "vectors"]


async def _once(message: Any) -> AsyncIterator[Any]:
    yield message
