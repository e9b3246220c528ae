"""The fixtures of the API's tests: a server over a scripted fleet."""

from tests.router.api.conftest import demo, pytest_asyncio_loop_factories, server, start

__all__ = ["demo", "pytest_asyncio_loop_factories", "server", "start"]
