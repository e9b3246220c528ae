"""The services that handlers find by a request: for each model the parts of the router that answer."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import web

from penstock.contract.facts import Facts
from penstock.router.adapters.registry import Registry
from penstock.router.chat.given_templates import GivenTemplates
from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.errors import ModelNotFound
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.validation import Grammars
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Tells of a model and its server; `compute_type` is the header `x-compute-type` of every answer."""

    model_id: str
    version: str
    compute_type: str
    model_sha: str | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """Holds the parts of a router that serve one model."""

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
    given_templates: GivenTemplates | None = None
    """Reads the chat templates that clients send; None where they may not."""

    @property
    def limits(self) -> Limits:
        """The limits of requests now."""
        return self.engine.limits

    @property
    def facts(self) -> Facts:
        """Those of the model, as its largest group computes it."""
        return self.engine.facts

    def serves(self, name: str | None) -> bool:
        """Tells whether this is the name of the model or of one of its adapters, loaded or unloaded."""
        return name == self.info.model_id or name in self.adapters or name in self.adapters.removed


class Services:
    """Holds the services of all models of a server. The first also decides for the whole server: how much a body may
    have, and whose manner OpenAI's routes have."""

    def __init__(self, *services: Service) -> None:
        self._services = services

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services)

    @property
    def first(self) -> Service:
        """The service of requests that name no model."""
        return self._services[0]

    def named(self, name: str | None) -> Service:
        """Returns the service of a model or an adapter. A lone model answers to every name, as TGI's does; of several,
        the first answers to `tgi`. Raises ModelNotFound."""
        if name in (None, "tgi") or len(self._services) == 1:
            return self.first
        found = next((each for each in self if each.serves(name)), None)
        if found is None:
            raise ModelNotFound(str(name))
        return found


SERVICES = web.AppKey("services", Services)


def service_of(request: web.Request, model: str | None = None) -> Service:
    """Returns the service for a request, which may name a model. Raises ModelNotFound."""
    return request.app[SERVICES].named(model)
