"""What the lines of the key file grant, as clients notice it."""

from pathlib import Path
from typing import Any

import pytest

from penstock.router.api.http.access import Access
from penstock.router.chat.template import ChatTemplate
from penstock.router.generation.around import Around
from penstock.router.keys import Keys
from tests.router.api.conftest import Server, Start


def write(file: Path, lines: str) -> None:
    file.write_text(f"# name: alice\n{lines}\nsk-a\n# name: bob\nsk-b\n")


async def started(start: Start, file: Path, lines: str, **settings: Any) -> tuple[Server, Keys]:
    """A server, and its keys: with these lines before that of alice, and none but a name before that of bob."""
    write(file, lines)
    keys = Keys((), file)
    return await start(access=Access(keys), make_around=lambda metrics: Around(), **settings), keys


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


async def ask(server: Server, path: str, key: str, **body: Any) -> tuple[int, Any, str | None]:
    """The status, the body and the header `retry-after`."""
    response = await server.client.post(path, json=body, headers={"authorization": f"Bearer {key}"})
    return response.status, await response.json(), response.headers.get("retry-after")


async def complete(server: Server, key: str, prompt: str = "a", **body: Any) -> tuple[int, Any, str | None]:
    return await ask(server, "/v1/completions", key, model="tgi", prompt=prompt, **{"max_tokens": 3, **body})


async def test_a_request_is_one_of_the_tenant_whose_key_it_bears(start: Start, file: Path) -> None:
    """Until the file is read again nobody has a share, and nothing is counted."""
    server, keys = await started(start, file, "#")
    shares = server.engine._scheduler._waiting.shares
    assert (await complete(server, "sk-b"))[0] == 200
    assert not shares.is_on
    write(file, "# share: 3")
    keys.reload()
    await complete(server, "sk-b", "b")
    before = {name: lane.served for name, lane in shares._lanes.items()}
    assert (await ask(server, "/generate", "sk-a", inputs="c", parameters={"max_new_tokens": 3}))[0] == 200
    served = {name: lane.served - before.get((False, "bob"), 0) for name, lane in shares._lanes.items()}
    assert before.keys() == {(False, "bob")}
    assert served[False, "alice"] * 3 == pytest.approx(before[False, "bob"]), "the same, for a share of three"


async def test_more_requests_than_a_key_may_send_are_refused(start: Start, file: Path, hermes: ChatTemplate) -> None:
    """On whichever route; those that make no answer do not count."""
    server, _ = await started(start, file, "# rate: 2/h", template=hermes)
    assert (await complete(server, "sk-a"))[0] == 200
    turn = {"messages": [{"role": "user", "content": "a"}], "model": "tgi", "max_tokens": 2}
    assert (await ask(server, "/v1/chat/completions", "sk-a", n=2, **turn))[0] == 200
    assert (await ask(server, "/tokenize", "sk-a", inputs="a"))[0] == 200
    status, body, seconds = await complete(server, "sk-a")
    sentence = f"`alice`, whose key this is, may send 2 requests per h, and has: there is room again in {seconds} s"
    assert (status, body["error"]["message"], body["error"]["code"]) == (429, sentence, "rate_limit_exceeded")
    assert 1700 < int(seconds or 0) <= 1800
    for path, other in (("/generate", {"inputs": "a"}), ("/v1/responses", {"input": "a", "model": "tgi"}),
                        ("/v1/messages", turn)):
        status, _, seconds = await ask(server, path, "sk-a", **other)
        assert (status, int(seconds or 0) > 1700) == (429, True), path
    assert (await complete(server, "sk-b"))[0] == 200


async def test_tokens_of_prompts_and_answers_count(start: Start, file: Path) -> None:
    server, _ = await started(start, file, "# tokens: 12/h")
    used = (await complete(server, "sk-a", max_tokens=8))[1]["usage"]["total_tokens"]
    assert 8 < used < 12
    assert (await complete(server, "sk-a", max_tokens=20))[0] == 200, "a prompt of one token has room yet"
    status, body, _ = await complete(server, "sk-a")
    assert status == 429
    assert body["error"]["message"].startswith("`alice`, whose key this is, may use 12 tokens per h, and has: ")


async def test_a_key_has_a_priority(start: Start, file: Path) -> None:
    server, keys = await started(start, file, "# priority: 5")
    found: list[int] = []
    add = server.engine._scheduler.add
    server.engine._scheduler.add = lambda sequence: found.append(sequence.priority) or add(sequence)
    for body in ({}, {"priority": 7}, {"service_tier": "flex"}):
        assert (await complete(server, "sk-a", **body))[0] == 200
    assert (await complete(server, "sk-b"))[0] == 200
    assert found == [5, 7, 16, 0]
    status, body, _ = await complete(server, "sk-a", priority=4)
    assert status == 400
    assert body["error"]["message"].endswith(
        "`priority` must be >= 5, which its key has: it comes before no request of that priority. Given: 4")
    write(file, "# priority: -5")
    keys.reload()
    assert (await complete(server, "sk-a", priority=-5))[0] == 200


async def test_a_key_has_prefixes_of_its_own(start: Start, file: Path) -> None:
    server, _ = await started(start, file, "# salt: own")
    prompt = "the same long beginning of a prompt, " * 4

    async def num_cached(key: str, **body: Any) -> int:
        usage = (await complete(server, key, prompt, **body))[1]["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert await num_cached("sk-b") == 0
    shared = await num_cached("sk-b")
    assert shared > 0
    assert [await num_cached("sk-a") for _ in range(2)] == [0, shared]
    assert [await num_cached("sk-a", cache_salt="s") for _ in range(2)] == [0, shared]
    assert await num_cached("sk-b", cache_salt="s") == 0
