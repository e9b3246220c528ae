"""The log's line of each call."""

import asyncio
import logging

import grpc
import pytest

from penstock.router.api.http.access import Access
from penstock.router.keys import Keys
from penstock.router.logs import REQUESTS
from tests.eventually import until
from tests.router.api.test_request_log import NOT_COMPARED, Lines
from tests.router.rpc.conftest import Rpc, StartRpc, error_of, request


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, REQUESTS)
    return Lines(caplog)


async def test_a_call(rpc: Rpc, lines: Lines) -> None:
    await rpc.generate("a", max_new_tokens=2)
    told = lines.one()
    assert told.pop("route").endswith("/Generate")
    assert told == {"status": 200, "stream": False, "answers": 1, "input_tokens": 1, "cached_tokens": 0,
                    "output_tokens": 2, "finish_reason": "length"}


async def test_a_stream_and_its_id(rpc: Rpc, lines: Lines) -> None:
    call = rpc.stub.GenerateStream(request("a", max_new_tokens=2), metadata=(("x-request-id", "mine-1"),))
    assert len([event async for event in call]) == 2
    [told] = lines.all
    assert (told["request_id"], told["stream"], told["output_tokens"]) == ("mine-1", True, 2)
    assert set(told) > NOT_COMPARED


async def test_a_refused_call(start_rpc: StartRpc, lines: Lines) -> None:
    rpc = await start_rpc(access=Access(Keys(["s3cret"])))
    await error_of(rpc.stub.Generate(request("a")))
    await error_of(rpc.stub.Generate(request(""), metadata=(("authorization", "Bearer s3cret"),)))
    assert [(each["status"], each["error"], each.get("key")) for each in lines.all] == [
        (401, "unauthenticated", None), (422, "validation", "key-1")]


async def test_a_client_that_leaves(rpc: Rpc, lines: Lines) -> None:
    rpc.server.fleet.may_answer.clear()
    call = rpc.stub.Generate(request("a"))
    await until(lambda: bool(rpc.server.fleet.plans))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await lines.until(1)
    told = lines.one()
    assert (told["status"], told["error"]) == (499, "dropped")
    assert await call.code() is grpc.StatusCode.CANCELLED
    rpc.server.fleet.may_answer.set()
