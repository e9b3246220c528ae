"""Servers over a scripted fleet that check their answers."""

from tests.router.api.conftest import demo, pytest_asyncio_loop_factories, start

__all__ = ["demo", "pytest_asyncio_loop_factories", "start"]
