"""Events as clients cut them into lines."""

import json

import pytest
from huggingface_hub import AsyncInferenceClient

from penstock.router.api.http.sse import one_line
from penstock.router.chat.template import ChatTemplate
from tests.router.api.conftest import Server, Start

BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
TEXT = f"a{'b'.join(BREAKS)}c"


def test_one_line() -> None:
    """All that `str.splitlines` takes for a line break is escaped, and nothing else is changed."""
    found = {chr(point) for point in range(0x110000) if len(f"a{chr(point)}b".splitlines()) > 1}
    assert found == set(BREAKS)
    text = "".join(map(chr, [*range(0xd800), *range(0xe000, 0x30000)]))
    data = one_line(json.dumps(text, ensure_ascii=False).encode())
    assert json.loads(data) == text
    assert len(data.decode().splitlines()) == 1
    assert one_line("«…»".encode()) == "«…»".encode()


@pytest.fixture
async def breaking(start: Start, demo: ChatTemplate) -> Server:
    """A server whose answers are full of line breaks."""
    return await start(answer=f"{TEXT}<|im_end|>", template=demo)


async def test_line_breaks_of_unicode_come_through_huggingface_hub(breaking: Server) -> None:
    async with AsyncInferenceClient(str(breaking.client.make_url("/"))) as client:
        tokens = [event async for event in await client.text_generation(
            "a", stream=True, details=True, return_full_text=False, max_new_tokens=40)]
        chat = [event async for event in await client.chat_completion(
            [{"role": "user", "content": "a"}], stream=True, max_tokens=40)]
    assert tokens[-1].generated_text == TEXT
    assert "".join(event.choices[0].delta.content or "" for event in chat) == TEXT


@pytest.mark.parametrize(("path", "body"), [
    ("/generate_stream", {"inputs": "a", "parameters": {"top_n_tokens": 2}}),
    ("/v1/completions", {"prompt": "a", "stream": True, "logprobs": 2, "max_tokens": 40}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "stream": True, "max_tokens": 40})])
async def test_each_line_of_a_stream_is_one(breaking: Server, path: str, body: object) -> None:
    text = await (await breaking.post(path, body)).text()
    assert text.splitlines() == text.split("\n")[:-1]
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: {")]
    assert all(not isinstance(event.get("error"), dict) for event in events)
    assert "\\u2028" in text
