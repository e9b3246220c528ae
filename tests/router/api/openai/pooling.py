"""Requests for vectors and scores."""

from typing import Any

from tests.router.api.conftest import Server


async def ask(server: Server, path: str, body: object) -> Any:
    """The answer to a request that is not refused."""
    response = await server.post(path, body)
    assert response.status == 200, await response.text()
    return await response.json()


async def refusal(server: Server, path: str, body: object) -> dict[str, Any]:
    """The error by which a request is refused, in OpenAI's shape."""
    response = await server.post(path, body)
    assert response.status == 400, await response.text()
    error: dict[str, Any] = (await response.json())["error"]
    return error
