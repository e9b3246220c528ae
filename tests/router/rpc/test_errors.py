"""What a client is told when a call fails, and what a call that is given up leaves: nothing."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest

from penstock.protos import penstock_pb2 as pb
from penstock.router.api.http.access import Access
from penstock.router.errors import RouterError, Unhealthy, ValidationError
from penstock.router.fleet.errors import FleetError
from penstock.router.keys import Keys
from penstock.router.rpc import calls
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.rpc.conftest import Rpc, StartRpc, error_of, request

Code = grpc.StatusCode
KEY = "s3cret"
INVALID = "Input validation error: "


@pytest.mark.parametrize(("inputs", "parameters", "message"), [
    ("", {}, "`inputs` cannot be empty"),
    ("a", {"temperature": -1.0}, "`temperature` must be strictly positive"),
    ("a", {"top_n_tokens": 6}, "`top_n_tokens` must be >= 0 and <= 5. Given: 6"),
    ("a", {"best_of": 3}, "`best_of` must be > 0 and <= 2. Given: 3"),
    ("a", {"adapter_id": "x"}, "`adapter_id` is not supported: this server has no adapters"),
    ("a", {"grammar": pb.Grammar(type="regex", text="a")}, "grammar is not supported")])
async def test_rules_in_the_words_of_http(rpc: Rpc, inputs: str, parameters: dict[str, Any], message: str) -> None:
    told = (Code.INVALID_ARGUMENT, INVALID + message, "validation")
    assert await error_of(rpc.generate(inputs, **parameters)) == told
    if "grammar" not in parameters:
        response = await rpc.server.post("/generate", {"inputs": inputs, "parameters": parameters})
        assert await response.json() == {"error": told[1], "error_type": told[2]}
    if "best_of" not in parameters:
        assert await error_of(rpc.stream(inputs, **parameters)) == told


@pytest.mark.parametrize(("parameters", "message"), [
    ({"temperature": float("nan")}, "parameters.temperature: invalid value: floating point `nan`: Input should be a "
                                    "finite number"),
    ({"logit_bias": {5: float("inf")}}, "parameters.logit_bias[5]: invalid value: floating point `inf`: Input should "
                                        "be a finite number"),
    ({"logit_bias": dict.fromkeys(range(1025), 1.0)}, "parameters.logit_bias: invalid value: an object: "
                                                      "supports up to 1024 token ids. Given: 1025"),
    ({"grammar": pb.Grammar(type="choice", json="[")}, "grammar is not valid: `json` can't be read: unexpected end of "
                                                       "data: line 1 column 2 (char 1)")])
async def test_what_no_body_can_say(rpc: Rpc, parameters: dict[str, Any], message: str) -> None:
    assert await error_of(rpc.generate(**parameters)) == (Code.INVALID_ARGUMENT, INVALID + message, "validation")
    assert rpc.server.series()['penstock_requests{route="/penstock.v1.TextGeneration/Generate",status="422"}'] == 1


async def test_streams_take_one_answer(rpc: Rpc) -> None:
    assert await error_of(rpc.stream(best_of=2)) == (
        Code.INVALID_ARGUMENT, INVALID + "`best_of` != 1 is not supported when streaming tokens", "validation")
    assert "`n` != 1 is not supported when streaming tokens" in (await error_of(rpc.stream(n=2)))[1]


async def test_too_many(rpc: Rpc) -> None:
    async with rpc.server.groups.permit(LIMITS.max_concurrent_requests):
        assert await error_of(rpc.generate()) == (Code.RESOURCE_EXHAUSTED, "Model is overloaded", "overloaded")
    assert await rpc.generate(max_new_tokens=1)


async def test_a_group_that_stays_away(rpc: Rpc) -> None:
    rpc.server.engine.give_up()
    told = Code.UNAVAILABLE, "unhealthy", "healthcheck"
    assert await error_of(rpc.generate()) == told
    assert await error_of(rpc.stream()) == told


async def test_an_engine_that_fails(rpc: Rpc) -> None:
    rpc.server.fleet.failure = ZeroDivisionError("gone")
    assert await error_of(rpc.stream()) == (
        Code.INTERNAL, "Request failed during generation: Server error: gone", "generation")
    await rpc.server.is_to_end.wait()


async def test_a_lost_group_is_not_noticed(start_rpc: StartRpc) -> None:
    rpc = await start_rpc(answer=" b")
    undisturbed = await rpc.generate(details=True, max_new_tokens=6)
    rpc.server.fleet.fail_at("next_result", 3)
    again = await rpc.generate(details=True, max_new_tokens=6)
    assert again.details.tokens == undisturbed.details.tokens
    assert rpc.server.series()["penstock_replays"] == 1


async def test_a_fault_of_ours_is_not_told(
    rpc: Rpc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rpc.server.tokenizer, "split", None)
    call = rpc.stub.Tokenize(pb.TokenizeRequest(inputs="a"))
    assert await error_of(call) == (Code.INTERNAL, "Internal server error", "internal")
    assert "a handler failed" in caplog.text


def test_every_error_has_a_code() -> None:
    def subclasses(kind: type[RouterError]) -> set[type[RouterError]]:
        return {kind}.union(*map(subclasses, kind.__subclasses__()))

    modules = ("penstock.router.errors", "penstock.router.rpc.calls")
    known = {kind for kind in subclasses(RouterError) if kind.__module__ in modules}
    assert {kind.status for kind in known - {RouterError}} == set(calls._CODES)
    assert calls.code_of(RouterError("x")) is Code.INTERNAL


async def test_a_long_message_is_cut(rpc: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise ValidationError("😀" * 3000)

    monkeypatch.setattr("penstock.router.api.tgi.generate.refuse_unsupported", refuse)
    code, message, kind = await error_of(rpc.generate())
    assert (code, kind) == (Code.INVALID_ARGUMENT, "validation")
    assert message.startswith(INVALID + "😀" * 400)
    assert message.endswith("😀…")


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_messages_that_are_too_long(start_rpc: StartRpc, compression: grpc.Compression) -> None:
    rpc = await start_rpc(limits=replace(LIMITS, payload_limit=1000))
    for call in (rpc.stub.Generate(request("a" * 100_000), compression=compression),
                 rpc.stub.Tokenize(pb.TokenizeRequest(inputs="a" * 100_000), compression=compression)):
        code, _, kind = await error_of(call)
        assert (code, kind) == (Code.RESOURCE_EXHAUSTED, None)
    assert await rpc.stub.Tokenize(pb.TokenizeRequest(inputs="a" * 900), compression=compression)


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
async def test_a_call_that_is_cancelled(rpc: Rpc, method: str, has_begun: bool) -> None:
    call = await run_on(rpc, method, has_begun)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await (call if method == "Generate" else call.read())
    await is_dropped(rpc, method)


@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
async def test_a_deadline(rpc: Rpc, method: str) -> None:
    call = await run_on(rpc, method, has_begun=False, seconds=0.2)
    code, _, kind = await error_of(call if method == "Generate" else call.read())
    assert (code, kind) == (Code.DEADLINE_EXCEEDED, None)
    await is_dropped(rpc, method)


async def test_a_client_that_is_gone(rpc: Rpc) -> None:
    call = await run_on(rpc, "GenerateStream", has_begun=True)
    await rpc.channel.close()
    assert call.done()
    await is_dropped(rpc, "GenerateStream", can_ask=False)


async def run_on(rpc: Rpc, method: str, has_begun: bool, seconds: float | None = None) -> Any:
    """A call whose answer goes on for as long as it is let: until its first step is sent, or some tokens have come."""
    fleet = rpc.server.fleet
    if not has_begun:
        fleet.may_answer.clear()
    endless = request("a" * 100, max_new_tokens=900, ignore_eos=True)
    call = getattr(rpc.stub, method)(endless, timeout=seconds)
    await until(lambda: len(fleet.plans) > 4 * has_begun)
    return call


async def is_dropped(rpc: Rpc, method: str, can_ask: bool = True) -> None:
    """Its sequence is gone though it had not ended, and it counts so."""
    await until(lambda: not rpc.server.engine._requests)
    rpc.server.fleet.may_answer.set()
    await rpc.until_no_block_is_held()
    series = rpc.server.series()
    assert series['tgi_request_failure{err="dropped"}'] == 1
    assert series["tgi_request_success"] == 0
    assert series[f'penstock_requests{{route="/penstock.v1.TextGeneration/{method}",status="499"}}'] == 1
    assert not can_ask or await rpc.generate(max_new_tokens=1)


async def test_a_client_that_does_not_read(start_rpc: StartRpc, monkeypatch: pytest.MonkeyPatch) -> None:
    rpc = await start_rpc(options=[("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)])
    monkeypatch.setattr("penstock.router.rpc.calls.UNREAD_SECONDS", 0.1)
    call = rpc.stub.GenerateStream(request(max_new_tokens=1000, ignore_eos=True, top_n_tokens=5))
    assert (await call.read()).index == 1
    await is_dropped(rpc, "GenerateStream")
    call.cancel()


@pytest.mark.parametrize(("value", "is_known"), [
    (f"Bearer {KEY}", True), (f"bearer {KEY}", True), (f"Bearer {KEY.upper()}", False), (f"Bearer {KEY}1", False),
    (KEY, False), (None, False)])
async def test_key(start_rpc: StartRpc, value: str | None, is_known: bool) -> None:
    rpc = await start_rpc(access=Access(Keys([KEY])))
    metadata = (("authorization", value),) if value else None
    calls = {
        "Generate": rpc.stub.Generate(request(max_new_tokens=1), metadata=metadata),
        "GenerateStream": rpc.stub.GenerateStream(request(max_new_tokens=1), metadata=metadata).read(),
        "Tokenize": rpc.stub.Tokenize(pb.TokenizeRequest(inputs="a"), metadata=metadata)}
    for name, call in calls.items():
        if is_known:
            assert await call
        else:
            assert await error_of(call) == (
                Code.UNAUTHENTICATED, "The API key is missing or wrong", "unauthenticated")
            assert rpc.server.series()[
                f'penstock_requests{{route="/penstock.v1.TextGeneration/{name}",status="401"}}'] == 1
    assert bool(rpc.server.fleet.plans) == is_known
    assert (await rpc.stub.Info(pb.InfoRequest())).model_id == "demo"


async def test_a_group_that_is_away_for_long(rpc: Rpc) -> None:
    """Calls that wait are told when their time is over."""
    rpc.server.fleet.may_open.clear()
    rpc.server.fleet.failure = FleetError("gone")
    waiting = asyncio.create_task(error_of(rpc.generate()))
    await until(lambda: not rpc.server.engine.has_group)
    rpc.server.engine._expire()
    assert await waiting == (Code.UNAVAILABLE, str(Unhealthy()), "healthcheck")


async def test_the_id_of_a_call(rpc: Rpc) -> None:
    """Comes back behind an answer, a stream and an error."""
    async def told(call: Any) -> str:
        try:
            await call if hasattr(call, "__await__") else [event async for event in call]
        except grpc.aio.AioRpcError as error:
            return str(dict(error.trailing_metadata() or ())["x-request-id"])
        return str(dict(await call.trailing_metadata())["x-request-id"])

    for given, expected in (("mine", "mine"), ("a b", "req_"), (None, "req_")):
        metadata = (("x-request-id", given),) if given else ()
        for inputs in ("a", ""):
            for method in (rpc.stub.Generate, rpc.stub.GenerateStream):
                assert (await told(method(request(inputs, max_new_tokens=1), metadata=metadata))).startswith(expected)
