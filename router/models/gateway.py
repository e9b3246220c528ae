"""A server all of whose models servers elsewhere answer for, so that nothing is computed here."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import tokenizers

from penstock.contract.facts import Facts
from penstock.router.config import RouterConfig
from penstock.router.engine.receiver import Receiver
from penstock.router.errors import ModelNotFound, Unhealthy
from penstock.router.foreign.model import ForeignModel
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import ServerInfo, Service
from penstock.router.generation.services import Listed
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.models.models import Models
from penstock.router.text.tokenizer import Tokenizer
from penstock.system.release import VERSION

_BLOCK, _CONTEXT = 16, 1 << 17
FACTS = Facts(
    model_id="", dtype="", kv_dtype="", block_size=_BLOCK, num_blocks=2 * _CONTEXT // _BLOCK, vocab_size=1,
    eos_token_ids=frozenset(), context_length=_CONTEXT, world_size=0, numerics="", weights_digest="",
    settings_digest="", step_tokens=1, memory_id="", keeps_bits=False)
"""Those of no model: limits that follow from a model's are as of one with a long context."""


class NoEngine:
    """Stands for the engine, and takes no requests."""

    facts = FACTS
    kinds: Sequence[Facts] = (FACTS,)
    num_slots = 0
    is_healthy = has_group = True

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.changed = asyncio.Event()

    @asynccontextmanager
    async def permit(self, number: int = 1) -> AsyncIterator[None]:
        """Holds nothing."""
        yield

    def submit(self, receiver: Receiver, output_so_far: Sequence[int] = ()) -> None:
        """Raises Unhealthy."""
        raise Unhealthy

    async def stalled_seconds(self) -> float:
        """Returns 0, since there are no steps."""
        return 0.0

    async def run(self) -> None:
        """Waits until it is cancelled."""
        await asyncio.Event().wait()

    def keep_waiting(self, seconds: float | None = None) -> None:
        """Does nothing, since no requests wait."""

    def give_up(self) -> None:
        """Does nothing: servers elsewhere may answer yet."""


def no_tokenizer() -> Tokenizer:
    """Returns a tokenizer for which all texts are one token."""
    return Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel({"": 0}, unk_token="")), 1)


def gateway_service(
    config: RouterConfig, tokenizer: Tokenizer, count: Callable[[Facts, Limits], Metrics]
) -> Service:
    """Returns the service that decides for the whole server, and answers no requests."""
    limits = Limits.resolve(config, FACTS)
    return Service(NoEngine(limits), tokenizer, count(FACTS, limits), ServerInfo("", VERSION, ""), PoisonMemory(0.0))


class Gateway(Models):
    """The models of such a server. The first of those elsewhere answers requests that name none."""

    def __iter__(self) -> Iterator[Service]:
        return iter(())

    @property
    def names(self) -> frozenset[str]:
        return super().names - {self.first.info.model_id}

    def named(self, name: str | None) -> Service:
        """Raises WrongTask: all models are elsewhere, or pipelines, and ModelNotFound if there is none of this name."""
        self.refuse_unloadable(name)
        raise ModelNotFound(str(name))

    def elsewhere(self, name: str | None) -> ForeignModel | None:
        return next(iter(self._elsewhere.values())) if name in (None, "tgi") else self._elsewhere.get(name)

    async def load(self, name: str) -> None:
        if self.elsewhere(name) is None and name not in self.names:
            raise ModelNotFound(name)

    def listed(self) -> Iterator[Listed]:
        return (each for each in super().listed() if each.service is not self.first)
