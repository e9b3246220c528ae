"""Answers over connections that break off anywhere: nothing is lost, and nothing comes twice."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client import AsyncClient, Client, ClientError, Unreachable
from penstock.router.chat.template import ChatTemplate
from tests.client.cutting_proxy import CuttingProxy
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO, TIME, WEATHER
from tests.router.api.openai.test_chat_tools import CALLS
from tests.router.api.resuming import SeededFleet

pytestmark = pytest.mark.usefixtures("short_pauses")

Ask = Callable[[AsyncClient], Any]
LENGTH = {"max_tokens": 12}
STREAMS: dict[str, Ask] = {
    "generate": lambda client: client.generate_stream("Say: ", do_sample=True, details=True),
    "greedy": lambda client: client.generate_stream("Say: ", max_new_tokens=12, details=True),
    "chat": lambda client: client.chat_stream(HELLO, **LENGTH),
    "chats": lambda client: client.chat_stream(
        HELLO, n=3, stream_options={"include_usage": True}, return_token_ids=True, **LENGTH),
    "tools": lambda client: client.chat_stream(HELLO, tools=[WEATHER, TIME], temperature=0),
    "ids": lambda client: client.chat_stream(HELLO, return_token_ids=True, logprobs=True, **LENGTH),
    "tools and ids": lambda client: client.chat_stream(
        HELLO, tools=[WEATHER, TIME], temperature=0, return_token_ids=True),
    "completions": lambda client: client.complete_stream(["a", "b"], n=2, return_token_ids=True, **LENGTH),
    "prompts": lambda client: client.complete_stream(["a", "b"], return_token_ids=True, **LENGTH),
    "echo": lambda client: client.complete_stream("ab", echo=True, logprobs=1, return_token_ids=True, **LENGTH),
}
WHOLE: dict[str, Ask] = {
    "generate": lambda client: client.generate("Say: ", do_sample=True, details=True),
    "chat": lambda client: client.chat(HELLO, n=2, **LENGTH),
    "completions": lambda client: client.complete(["a", "b"], **LENGTH),
}


@pytest.fixture
async def server(start: Start, hermes: ChatTemplate) -> Server:
    return await start(template=hermes, make_fleet=SeededFleet, answer="Let me see.\n" + CALLS + "<|im_end|>")


def url_of(server: Server) -> str:
    return str(server.client.make_url("")).rstrip("/")


def cuts(dice: random.Random, number: int) -> Callable[[], int | None]:
    """Breaks so many answers off, near their beginnings for the most part."""
    places = [int(dice.choice((1, 300, 1200, 4000)) * dice.random()) + 1 for _ in range(number)]
    return lambda: places.pop() if places else None


def told(event: Any) -> Any:
    """An event without what tells of when and where it was computed."""
    content = event.model_dump(exclude={"created", "answer"})
    for part in (content.get("usage"), content.get("details")):
        for name in ("prompt_tokens_details", "prefix_hit_tokens"):
            (part or {}).pop(name, None)
    return content


def by_choice(events: list[Any]) -> dict[int, list[Any]]:
    """Answers of one request may be told in another order to each other."""
    found: dict[int, list[Any]] = {}
    for event in events:
        choices = getattr(event, "choices", None)
        found.setdefault(choices[0].index if choices else -1, []).append(told(event))
    return found


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
async def test_streams(server: Server, name: str, seed: int) -> None:
    """Undisturbed by name, the answer is the one that came in pieces."""
    ask, dice = STREAMS[name], random.Random(f"{name} {seed}")
    async with CuttingProxy(server.client.port, cuts(dice, 6)) as proxy, AsyncClient(proxy.url) as client, \
            AsyncClient(url_of(server)) as direct:
        stream = ask(client)
        events = [event async for event in stream]
        assert proxy.num_cuts > 0
        undisturbed = ask(direct)
        undisturbed._call._wish = {"penstock-answer": stream.answer}
        assert by_choice(events) == by_choice([event async for event in undisturbed])


@pytest.mark.parametrize("name", WHOLE)
async def test_whole_answers(server: Server, name: str) -> None:
    ask, dice = WHOLE[name], random.Random(name)
    async with CuttingProxy(server.client.port, cuts(dice, 4)) as proxy, AsyncClient(proxy.url) as client:
        reply = await ask(client)
        assert proxy.num_cuts > 0
    name_of, seeds = reply.answer, {state.sampling.seed for state in server.fleet.initial_states}
    assert name_of.split(".")[1] in map(str, seeds)
    assert len(seeds) <= (2 if name == "completions" else 1), "all attempts draw the same"


async def test_the_client_without_an_event_loop(server: Server) -> None:
    dice = random.Random(5)
    async with CuttingProxy(server.client.port, cuts(dice, 6)) as proxy:

        def ask(url: str, answer: str | None) -> tuple[list[Any], str | None, Any]:
            with Client(url) as client, client.generate_stream("a", do_sample=True, max_new_tokens=12, answer=answer
                                                               ) as stream:
                events = [told(event) for event in stream]
                assert list(stream) == []
                return events, stream.answer, told(client.generate("b", max_new_tokens=5))

        events, answer, whole = await asyncio.to_thread(ask, proxy.url, None)
        assert proxy.num_cuts > 0
        again, _, same = await asyncio.to_thread(ask, url_of(server), answer)
        assert (events, whole) == (again, same)


async def test_a_stream_that_is_left_ends_at_the_server(server: Server) -> None:
    async with AsyncClient(url_of(server)) as client:
        stream = client.generate_stream("a", max_new_tokens=900, ignore_eos=True)
        await anext(stream)
        await stream.close()
        await server.until_idle()


async def test_patience_ends(server: Server) -> None:
    """Here after a moment of a server that breaks off whatever it is asked."""
    async with CuttingProxy(server.client.port, lambda: 1) as proxy, AsyncClient(proxy.url, max_downtime=0.3) as client:
        for call in (client.generate("a"), anext(client.chat_stream(HELLO))):
            with pytest.raises(Unreachable, match=rf"nothing came of {proxy.url} for 0.3 s; at last of {proxy.url}: "):
                await call
        assert proxy.num_cuts > 4


async def test_events_without_ids_are_not_asked_for_again(server: Server) -> None:
    """Or all would come again, from behind a proxy that drops the header `accept`."""
    async with CuttingProxy(server.client.port, lambda: 900, b"accept: text/event-stream\r\n") as proxy, \
            AsyncClient(proxy.url) as client:
        stream = client.generate_stream("a", max_new_tokens=900, ignore_eos=True)
        await anext(stream)
        with pytest.raises(ClientError, match="have no ids to go on behind"):
            [event async for event in stream]
        assert proxy.num_cuts == 1
