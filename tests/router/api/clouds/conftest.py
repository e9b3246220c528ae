"""A server with a chat template, as clouds have it."""

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.router.api.conftest import Server, Start

CHAT = [{"role": "user", "content": "Say it"}]
TEXT = "Hello wörld, 😀 is all."


@pytest.fixture
async def server(start: Start, demo: ChatTemplate) -> Server:
    return await start(template=demo)
