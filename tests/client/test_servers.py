"""What servers refuse, and servers of which one is gone, overloaded or another."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.bench.programs.children import free_port
from penstock.client import (
    AnotherAnswer,
    AsyncClient,
    GenerationFailed,
    InvalidRequest,
    Overloaded,
    ServerFault,
    Unauthorized,
    Unreachable,
    patience,
    settings,
)
from penstock.router.api.http.access import Access
from penstock.router.chat.template import ChatTemplate
from penstock.router.keys import Keys
from tests.client.cutting_proxy import CuttingProxy
from tests.client.test_broken_connections import told, url_of
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Start
from tests.router.api.openai.chats import HELLO
from tests.router.api.resuming import SeededFleet, with_other_numerics

pytestmark = pytest.mark.usefixtures("short_pauses")


MANY = 200
"""The tokens of an answer that has not ended when the first of them has come."""


async def first_of(stream: Any) -> Any:
    return await anext(stream)


async def rest_of(stream: Any) -> list[int]:
    return [event.index async for event in stream]


async def test_refusals(start: Start, hermes: ChatTemplate) -> None:
    """By status, or by the event of a stream that has begun."""
    server = await start(template=hermes)
    async with AsyncClient(url_of(server)) as client:
        for call, status in ((client.generate("a", top_p=2.0), 422),
                             (first_of(client.generate_stream("a", top_p=2.0)), 422),
                             (first_of(client.complete_stream("a", top_p=2.0)), 400)):
            with pytest.raises(InvalidRequest, match="`top_p` must be") as caught:
                await call
            assert caught.value.status == status
        with pytest.raises(InvalidRequest, match="missing field `inputs`"):
            await client._whole("/generate", None, {}, None, None)  # type: ignore[arg-type, type-var]
        server.groups.take_permits(LIMITS.max_concurrent_requests)
        for call in (client.generate("a"), first_of(client.generate_stream("a")), first_of(client.chat_stream(HELLO))):
            with pytest.raises(Overloaded):
                await call
        server.groups.return_permits(LIMITS.max_concurrent_requests)
        server.fleet.failure = ZeroDivisionError("a fault")
        with pytest.raises(GenerationFailed, match="a fault"):
            await client.generate("a")


async def test_keys(start: Start) -> None:
    server = await start(access=Access(api_keys=Keys(("sesame",))))
    async with AsyncClient(url_of(server)) as client:
        with pytest.raises(Unauthorized):
            await client.generate("a")
    async with AsyncClient(url_of(server), api_key="sesame") as client:
        assert (await client.generate("a", max_new_tokens=2)).generated_text


async def test_what_is_no_server_of_ours(start: Start) -> None:
    server = await start()
    async with AsyncClient(url_of(server)) as client:
        with pytest.raises(ServerFault, match="status 405"):
            await client._whole("/info", None, {}, None, None)  # type: ignore[arg-type, type-var]
    with pytest.raises(ValueError, match="must be one or several that begin with http:// or https://"):
        AsyncClient("localhost:3000")


async def test_the_next_server_is_asked(start: Start) -> None:
    """Where one is away, or has no shards; the one that answered is asked first from then on."""
    server, unhealthy = await start(make_fleet=SeededFleet), await start()
    await until(lambda: unhealthy.engine.has_group)
    unhealthy.engine.is_healthy = False
    urls = [f"http://127.0.0.1:{free_port()}", url_of(unhealthy), url_of(server)]
    async with AsyncClient(urls) as client:
        stream = client.generate_stream("a", max_new_tokens=5)
        assert len([event async for event in stream]) == 5
        assert (await client.generate("a", max_new_tokens=5)).generated_text
        assert client._settings._first == 2


async def test_a_server_that_stays_without_shards_is_given_up(start: Start) -> None:
    """Also by streams, to which it says so in an event."""
    unhealthy = await start()
    await until(lambda: unhealthy.engine.has_group)
    unhealthy.engine.is_healthy = False
    async with AsyncClient(url_of(unhealthy), max_downtime=0.2) as client:
        for call in (client.generate("a"), first_of(client.generate_stream("a"))):
            with pytest.raises(Unreachable):
                await call


async def test_a_server_that_gives_up_its_requests(start: Start) -> None:
    """As one does that is told to end, when the time for it is over: the error means the next server, not the end."""
    first, second = await start(make_fleet=SeededFleet), await start(make_fleet=SeededFleet)
    async with AsyncClient([url_of(first), url_of(second)]) as client:
        undisturbed = [told(event) async for event in client.generate_stream("a", max_new_tokens=MANY, seed=3,
                                                                             ignore_eos=True)]
        stream = client.generate_stream("a", max_new_tokens=MANY, seed=3, ignore_eos=True)
        events = [told(await anext(stream))]
        first.fleet.may_answer.clear()
        first.engine.give_up()
        events += [told(event) async for event in stream]
    assert events == undisturbed
    assert second.series()["penstock_resumed_answers"] == 1


async def test_a_server_of_other_numerics_is_left_out(start: Start) -> None:
    first, other, third = [await start(make_fleet=SeededFleet) for _ in range(3)]
    with_other_numerics(other)
    async with AsyncClient([url_of(first), url_of(other), url_of(third)]) as client:
        stream = client.generate_stream("a", max_new_tokens=MANY, seed=3, ignore_eos=True)
        await anext(stream)
        first.fleet.may_answer.clear()
        first.engine.give_up()
        assert [event.index async for event in stream][-1] == MANY
        answer = stream.answer
    assert third.series()["penstock_resumed_answers"] == 1
    async with AsyncClient(url_of(other)) as client:
        stream = client.generate_stream("a", max_new_tokens=MANY, seed=3, ignore_eos=True, answer=answer)
        with pytest.raises(AnotherAnswer, match="of another model, or of other kernels"):
            await anext(stream)


async def test_an_answer_that_has_begun_waits_for_room(start: Start) -> None:
    first, full = await start(make_fleet=SeededFleet), await start(make_fleet=SeededFleet)
    full.groups.take_permits(LIMITS.max_concurrent_requests)
    async with AsyncClient([url_of(first), url_of(full)]) as client:
        stream = client.generate_stream("a", max_new_tokens=MANY, seed=3, ignore_eos=True)
        events = [await anext(stream)]
        first.fleet.may_answer.clear()
        first.engine.give_up()

        async def read() -> None:
            events.extend([event async for event in stream])

        reading = asyncio.create_task(read())
        await until(lambda: full.series()['tgi_request_failure{err="overloaded"}'] > 0)
        full.groups.return_permits(LIMITS.max_concurrent_requests)
        await reading
    assert [event.index for event in events] == list(range(1, MANY + 1))


async def test_a_server_of_other_numerics_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "DIFFERING_SECONDS", 0.3)
    server = await start(make_fleet=SeededFleet)
    cut = iter([700])
    async with CuttingProxy(server.client.port, lambda: next(cut, None)) as proxy, AsyncClient(proxy.url) as client:
        stream = client.generate_stream("a", max_new_tokens=30, seed=3, ignore_eos=True)
        await anext(stream)
        with_other_numerics(server)
        with pytest.raises(AnotherAnswer):
            [event async for event in stream]


async def test_nobody_is_there() -> None:
    async with AsyncClient([f"http://127.0.0.1:{free_port()}"] * 2, max_downtime=0.2) as client:
        with pytest.raises(Unreachable, match=r"for 0.2 s; at last of http://127.0.0.1:.* ConnectError"):
            await client.generate("a")


async def test_the_strict_server(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing before the first token, however long that takes; a silence behind it is none of a server."""
    monkeypatch.setattr(settings, "SILENT_SECONDS", 0.1)
    server = await start(limits=replace(LIMITS, strict_streaming_errors=True), make_fleet=SeededFleet)
    async with AsyncClient(url_of(server)) as client:
        with pytest.raises(InvalidRequest):
            await anext(client.generate_stream("a", top_p=2.0))
        server.fleet.may_answer.clear()
        stream = client.generate_stream("a", max_new_tokens=MANY, ignore_eos=True)
        first = asyncio.create_task(first_of(stream))
        await asyncio.sleep(0.3)
        assert server.series()["tgi_request_count"] == 2
        server.fleet.may_answer.set()
        assert (await first).index == 1
        server.fleet.may_answer.clear()
        rest = asyncio.create_task(rest_of(stream))
        await until(lambda: server.series()["tgi_request_count"] > 2)
        server.fleet.may_answer.set()
        assert await rest == list(range(2, MANY + 1))
