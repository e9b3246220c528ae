"""Servers over a scripted fleet that have pipelines."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.router.generation.services import Services
from penstock.router.pipeline_settings import PipelineSettings
from tests.router.api.conftest import Server, Start, demo, pytest_asyncio_loop_factories, start

__all__ = ["demo", "pytest_asyncio_loop_factories", "start"]

StartPiped = Callable[..., Awaitable[Server]]
STEPS = Path(__file__).with_name("steps.py")


class Several(Services):
    """Have the routes of several models, though there is one."""

    @property
    def are_several(self) -> bool:
        return True


def settings_of(*steps: dict[str, Any], name: str = "piped") -> PipelineSettings:
    return PipelineSettings.parse(name, {"pipeline": [*steps]}, STEPS.parent)


@pytest.fixture
def start_piped(start: Start) -> StartPiped:
    """Starts a server with the pipeline `piped`, of these steps, whose model is `demo`; others may be `more`."""
    async def start_piped(*steps: dict[str, Any], more: tuple[PipelineSettings, ...] = (), **settings: Any) -> Server:
        return await start(pipelines=(settings_of(*steps), *more), make_services=Several, **settings)

    return start_piped
