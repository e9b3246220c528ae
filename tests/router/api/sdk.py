"""OpenAI's own client of a server under test."""

import openai

from tests.router.api.conftest import Server


def openai_client(server: Server, key: str = "unused") -> openai.AsyncOpenAI:
    """Returns a client to use by `async with`. It reads no certificates, which would take longer than most tests."""
    return openai.AsyncOpenAI(base_url=str(server.client.make_url("/v1")), api_key=key, max_retries=0,
                              http_client=openai.DefaultAsyncHttpxClient(verify=False))
