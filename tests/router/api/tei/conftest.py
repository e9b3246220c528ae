"""Servers of models that make vectors and scores, over a fleet whose numbers follow from the tokens."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.contract.facts import Facts
from tests.fakes import LIMITS
from tests.pooling_fleet import EMBEDDER, PoolingFleet
from tests.router.api.conftest import Server, Start

MOST = 4
"""The most texts of a request, in this server."""
StartPooling = Callable[..., Awaitable[Server]]


@pytest.fixture
def start_pooling(start: Start) -> StartPooling:
    """Starts a server of a model with these facts."""
    async def start_pooling(facts: Facts = EMBEDDER, **settings: Any) -> Server:
        settings.setdefault("limits", replace(LIMITS, max_client_batch_size=MOST))
        return await start(facts=facts, make_fleet=lambda script: PoolingFleet(facts), **settings)

    return start_pooling


async def told(server: Server, path: str, body: object) -> tuple[int, Any]:
    """Status and JSON, or text, of an answer."""
    response = await server.post(path, body)
    return response.status, await (response.json() if response.content_type == "application/json" else response.text())


def refusal(sentence: str, kind: str = "validation") -> dict[str, str]:
    return {"error": f"Input validation error: {sentence}", "error_type": kind}
