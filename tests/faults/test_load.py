"""Requests of every kind get answers that can be compared, and streams that break off are seen as such."""

import json
import random

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.faults.load import make_asks, read_answer
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import starting


@pytest.mark.parametrize("kind", ["messages", "responses"])
async def test_agents_apis(kind: str) -> None:
    asks = [ask for ask in make_asks(random.Random(1)) if ask.kind == kind]
    assert asks
    async with starting() as start:
        server = await start(template=ChatTemplate({"default": HERMES}, {}), answer="Hello<|im_end|>")
        for ask in asks:
            choice = {"type": "auto"} if kind == "messages" else "auto"
            for is_stream in (False, True):
                texts = []
                for _ in range(2):
                    response = await server.post(ask.path, {**ask.body, "tool_choice": choice, "stream": is_stream})
                    assert response.status == 200, await response.text()
                    texts.append(await response.text())
                first, again = (read_answer(is_stream, text) for text in texts)
                assert first == again
                if not is_stream:
                    assert "Hello" in json.dumps(first)
                else:
                    with pytest.raises(ValueError, match="broke off"):
                        read_answer(True, texts[0][:texts[0].rindex("event: ")])


@pytest.mark.parametrize("event", [{"type": "error", "error": {}}, {"type": "response.failed"}])
def test_failures_are_seen(event: object) -> None:
    with pytest.raises(ValueError, match="ended with an error"):
        read_answer(True, f"event: x\ndata: {json.dumps(event)}\n\n")
