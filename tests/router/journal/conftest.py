"""Servers over a scripted fleet that write a record of each request."""

from tests.router.api.conftest import demo, pytest_asyncio_loop_factories, start

__all__ = ["demo", "pytest_asyncio_loop_factories", "start"]
