"""The parts of the router that serve one model, from its load to its unloading."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from penstock.contract.facts import Facts
from penstock.router.config import RouterConfig
from penstock.router.generation.around import NOTHING, Around
from penstock.router.generation.service import Service
from penstock.router.groups.finding import Finding
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.parts import Parts, load_template, load_tokenizer


@dataclass(frozen=True, slots=True)
class Opened:
    """A model that answers: its service, whose engine is driven, and what ends with it."""

    service: Service
    finding: Finding
    parts: Parts
    driving: asyncio.Task[None]

    @classmethod
    async def open(
        cls, config: RouterConfig, count: Callable[[Facts, Limits], Metrics],
        on_end: Callable[[asyncio.Task[None]], None], around: Around = NOTHING,
    ) -> Self:
        """Waits for the model's group and drives it; `count` makes the metrics, and `on_end` hears of the engine's end.
        The parts `around` are the server's. Raises TokenizerError, FleetError, LimitError and InvalidArgument."""
        tokenizer = await asyncio.to_thread(load_tokenizer, config)
        finding = Finding(config)
        try:
            template = await asyncio.to_thread(load_template, config)
            parts = Parts.made(config, finding, await finding.first(), count)
            await parts.warm()
        except BaseException:
            await finding.close()
            tokenizer.close()
            raise
        service = replace(parts.service(tokenizer, template), around=around)
        driving = asyncio.create_task(service.engine.run(), name=f"engine of {service.info.model_id}")
        driving.add_done_callback(on_end)
        return cls(service, finding, parts, driving)

    async def close(self) -> None:
        """Lets go of the group, and of all that the model had here."""
        self.driving.cancel()
        await asyncio.wait([self.driving])
        self.parts.close()
        await self.finding.close()
        self.service.tokenizer.close()
