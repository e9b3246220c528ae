"""Receipts by gRPC: trailing metadata with what HTTP has in a field."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import orjson
import pytest

from penstock.bench.replay.asking import ask
from penstock.bench.replay.recorded import Unusable, read, recorded
from penstock.protos import kserve_pb2, penstock_pb2, services
from penstock.router.generation.around import Around
from penstock.router.generation.digests import digest, digest_of_ids
from penstock.system.receipt_signature import Signer, verify
from tests.fakes import LIMITS
from tests.router.api.resuming import SeededFleet
from tests.router.rpc.conftest import Rpc, StartRpc, error_of, request
from tests.signing_keys import make_key

ASKS = (("penstock-receipt", "true"),)
SAMPLED = {"max_new_tokens": 5, "do_sample": True, "details": True, "logit_bias": {7: 0.5}, "temperature": 0.7}


@pytest.fixture
async def rpc(start_rpc: StartRpc, tmp_path: Path) -> Rpc:
    signer = Signer.opened(make_key(tmp_path / "key.pem"))
    return await start_rpc(make_fleet=SeededFleet, make_around=lambda metrics: Around(signer=signer))


async def receipt_of(call: Any) -> dict[str, Any]:
    receipt: dict[str, Any] = orjson.loads(dict(await call.trailing_metadata())["penstock-receipt-bin"])
    return receipt


async def check(rpc: Rpc, receipt: dict[str, Any], ids: list[int]) -> None:
    """It is signed, tells of these tokens, and HTTP gives the same when it is asked again."""
    response = await rpc.server.client.get("/receipt-key")
    verify(receipt, (await response.json())["public_key"].encode())
    assert [answer["sha256"] for answer in receipt["answers"]] == [digest_of_ids(ids)]
    async with aiohttp.ClientSession() as session:
        again = await ask(session, str(rpc.server.client.make_url("")).rstrip("/"), recorded(receipt))
    assert not again.difference
    assert again.receipt is not None
    assert again.receipt["request"] == receipt["request"]


async def test_of_a_whole_answer(rpc: Rpc) -> None:
    call = rpc.stub.Generate(request("Say it", **SAMPLED), metadata=(*ASKS, ("x-request-id", "mine")))
    ids = [token.id for token in (await call).details.tokens]
    receipt = await receipt_of(call)
    assert (receipt["id"], receipt["request"]["path"]) == ("mine", "/generate")
    await check(rpc, receipt, ids)


async def test_of_a_stream(rpc: Rpc) -> None:
    call = rpc.stub.GenerateStream(request("Say it", **SAMPLED), metadata=ASKS)
    ids = [event.token.id async for event in call]
    receipt = await receipt_of(call)
    assert receipt["request"]["path"] == "/generate_stream"
    await check(rpc, receipt, ids)


async def test_a_long_request_is_told_by_its_digest(rpc: Rpc) -> None:
    """Of more than clients take as metadata."""
    call = rpc.stub.Generate(request("a", max_new_tokens=1, stop=["b" * 1024] * 4), metadata=ASKS)
    await call
    receipt = await receipt_of(call)
    body = orjson.dumps({"inputs": "a", "parameters": {"max_new_tokens": 1, "stop": ["b" * 1024] * 4}})
    assert receipt["request"].keys() == {"method", "path", "sha256", "answer"}
    assert receipt["request"]["sha256"] == digest(body)
    [refusal] = read(orjson.dumps(receipt))
    assert isinstance(refusal, Unusable)
    assert "too long for gRPC's metadata" in str(refusal)


async def test_a_receipt_of_many_answers_is_told_to_be_too_long(start_rpc: StartRpc) -> None:
    rpc = await start_rpc(make_fleet=SeededFleet, limits=replace(LIMITS, max_best_of=40))
    asked = request(max_new_tokens=1, do_sample=True, n=40)
    code, message, _ = await error_of(rpc.stub.Generate(asked, metadata=ASKS))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "`penstock-receipt` by gRPC is for fewer answers" in message


@pytest.mark.parametrize("value", ["false", None])
async def test_none_for_those_who_do_not_ask(rpc: Rpc, value: str | None) -> None:
    metadata = () if value is None else (("penstock-receipt", value),)
    call = rpc.stub.Generate(request(max_new_tokens=1), metadata=metadata)
    await call
    assert "penstock-receipt-bin" not in dict(await call.trailing_metadata())


async def test_refusals(rpc: Rpc) -> None:
    code, message, kind = await error_of(rpc.stub.Generate(request(), metadata=(("penstock-receipt", "yes"),)))
    assert (code, kind) == (grpc.StatusCode.INVALID_ARGUMENT, "validation")
    assert message == "Input validation error: `penstock-receipt` must be true or false. Given: 'yes'"
    kserve = services.stub(rpc.channel, kserve_pb2)
    for call in (rpc.stub.Tokenize(penstock_pb2.TokenizeRequest(inputs="a"), metadata=ASKS),
                 kserve.ModelInfer(kserve_pb2.ModelInferRequest(model_name="m"), metadata=ASKS)):
        code, message, _ = await error_of(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert message == ("Input validation error: `penstock-receipt` is for the calls Generate and GenerateStream of "
                           "penstock.v1.TextGeneration")
