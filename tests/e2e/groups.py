"""Groups as an operator starts them, by `penstock group`, and an engine that drives them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from penstock.contract.sampling import Sampling
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.engine.engine import Engine
from penstock.router.engine.request import Request
from penstock.router.fleet.fleet import GrpcFleet
from penstock.system.wire_tls import WireTls
from tests.e2e.server import Server, running
from tests.fakes import LIMITS
from tests.paths import DEMO_MODEL
from tests.scripted_engine import running_engine, submit

START_SECONDS = 180.0
Token = tuple[int, float]
"""A token's id and its logprob."""


@contextmanager
def group(folder: Path, *flags: str, on: Sequence[str] = ()) -> Iterator[Server]:
    """Starts the launcher of a group, by the command `on` if there is one; afterwards nothing of it is left."""
    folder.mkdir(exist_ok=True)
    penstock = Path(sys.executable).with_name("penstock")
    command = [*on, str(penstock), "group", str(DEMO_MODEL), "--kv-memory", "64MiB", "--threads", "1", *flags]
    with running(folder, command, 0, is_server=False) as launched:
        yield launched


@asynccontextmanager
async def driving(targets: Sequence[str], tls: WireTls | None) -> AsyncIterator[Engine]:
    """Waits for a group, and drives it by an engine."""
    fleet = GrpcFleet(targets, tls)
    try:
        facts = await asyncio.wait_for(fleet.describe(), START_SECONDS)
        async with running_engine(fleet, depth=2, facts=facts, limits=LIMITS) as engine:
            yield engine
    finally:
        await fleet.close()


async def generate(engine: AnyEngine | Engine, number: int, begun: asyncio.Event | None = None) -> list[Token]:
    """Generates so many tokens; `begun` is set when some have come."""
    request = Request(input_ids=(300, 400, 500), sampling=Sampling(do_sample=True, seed=7), max_new_tokens=number,
                      stop=(), ignore_eos=True)
    found: list[Token] = []
    async with submit(engine, request) as stream:
        async for event in stream:
            found.append((event.token.id, event.token.logprob))
            if begun is not None and len(found) == 20:
                begun.set()
    return found
