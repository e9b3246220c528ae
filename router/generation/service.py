"""What all handlers work with: the parts of the router that serve requests."""

from dataclasses import dataclass, field

from aiohttp import web

from penstock.router.adapters.registry import Registry
from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.validation import Grammars
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What the server says of itself; `compute_type` is the header `x-compute-type` of every answer."""

    model_id: str
    version: str
    compute_type: str
    model_sha: str | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a router that serve requests."""

    engine: AnyEngine
    tokenizer: Tokenizer
    metrics: Metrics
    info: ServerInfo
    poison: PoisonMemory
    grammars: Grammars | None = None
    """None where grammars are switched off."""
    template: ChatTemplate | None = None
    """None where the model has no chat template."""
    adapters: Registry = field(default_factory=Registry)
    allows_runtime_adapters: bool = False
    """Whether clients may load and unload adapters."""

    @property
    def limits(self) -> Limits:
        """What a request may ask for now."""
        return self.engine.limits


SERVICE = web.AppKey("service", Service)
