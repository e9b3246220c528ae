"""The services of all models of a server, which handlers find by a request."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import web

from penstock.router.adapters.source import AdapterSource
from penstock.router.errors import ModelNotFound, Unhealthy, ValidationError
from penstock.router.foreign.model import ForeignModel
from penstock.router.foreign_settings import Fallback
from penstock.router.generation import request_record
from penstock.router.generation.piped import PIPED, After
from penstock.router.generation.service import Service
from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.shadows import ShadowMetrics
from penstock.router.metrics.sources import SourceMetrics
from penstock.router.routing import header_text

RELOAD_SECONDS = 30
"""For how long a model that could not be loaded is not tried again for a request."""


class NotLoaded(Unhealthy):
    """A model of several that could not be loaded."""

    retry_after = RELOAD_SECONDS


@dataclass(frozen=True, slots=True)
class Listed:
    """Tells of a model in the lists of them: its service where it is loaded, its adapters, and where models can be
    unloaded its state; of one elsewhere its source; of a pipeline the models that its steps ask; or of an alias, which
    models it stands for, each with its share of the requests."""

    name: str
    service: Service | None = None
    adapters: Sequence[AdapterSource] = ()
    state: str | None = None
    source: str | None = None
    steps: Sequence[str] = ()
    targets: Mapping[str, float] = field(default_factory=dict)
    shadows: Mapping[str, float] = field(default_factory=dict)
    """The models that an alias's requests are sent to beside, each with its share of them."""


class Services:
    """Holds the services of all models of a server. The first is always loaded, and also decides for the whole server:
    how much a body may have, and whose manner OpenAI's routes have."""

    def __init__(self, *services: Service) -> None:
        self._services = services

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services)

    @property
    def are_several(self) -> bool:
        """Whether requests choose among models."""
        return len(self._services) > 1

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

    async def take(self, name: str | None, client: str | None = None) -> Service:
        """Returns the service that answers to a name, once its model is loaded, which it stays until the service is
        given back. `client` names whom one version of the model answers. Raises ModelNotFound.
        """
        return self.named(name)

    def resolve(self, name: str | None, client: str | None) -> str | None:
        """Returns the name of the model that a name stands for, now and for this `client`."""
        return name

    def elsewhere(self, name: str | None) -> ForeignModel | None:
        """Returns the model of this name if servers elsewhere answer its requests."""
        return None

    def refuse_unloadable(self, name: str | None) -> None:
        """Raises WrongTask for the name of a model that is none of this server's own: one elsewhere, or a pipeline."""

    @property
    def has_elsewhere(self) -> bool:
        """Whether there are such models."""
        return False

    def fallback_of(self, name: str | None) -> Fallback | None:
        """Returns the models elsewhere that take the place of the model of this name where it fails."""
        return None

    @property
    def has_shadows(self) -> bool:
        """Whether an alias has shadows now."""
        return False

    def shadows_of(self, name: str) -> Mapping[str, float]:
        """Returns the models to which the requests to an alias are sent beside, each with its share of them."""
        return {}

    def take_loaded(self, name: str) -> Service | None:
        """Returns the service of a model as `take` does; None if it is not loaded now."""
        return self.first

    def shadow_metrics(self, name: str) -> ShadowMetrics:
        """Returns the series of a model as a shadow."""
        raise ModelNotFound(name)

    def give_back(self, service: Service) -> None:
        """Notes the end of one use of a service that was taken."""

    @asynccontextmanager
    async def using(self, name: str | None) -> AsyncIterator[Service]:
        """Holds the service that answers to a name while the block runs. Raises ModelNotFound."""
        service = await self.take(name)
        try:
            yield service
        finally:
            self.give_back(service)

    async def load(self, name: str) -> None:
        """Loads a model, if it is not. Raises ModelNotFound, and Unhealthy if it can't be loaded."""
        if name != self.first.info.model_id:
            raise ModelNotFound(name)

    async def unload(self, name: str) -> None:
        """Unloads a model, once its requests are answered. Raises ModelNotFound, and ValidationError for the first
        model."""
        await self.load(name)
        raise ValidationError(f"`model`: {name} is the server's first model, which is always loaded")

    async def point(
        self, alias: str, targets: Mapping[str, float], shadows: Mapping[str, float] | None = None
    ) -> None:
        """Lets an alias stand for models, each of which gets a share of the requests by its weight, as soon as they are
        loaded; a share of them is sent to each of the `shadows`, too. Raises ValidationError and Unhealthy."""
        raise ValidationError(f"`alias`: {alias} can't be one: this server has one model")

    async def run(self) -> None:
        """Does what is to be done beside the requests, until it is cancelled."""

    async def close(self) -> None:
        """Lets go of all models but the first, when the server ends."""

    def listed(self) -> Iterator[Listed]:
        """Yields all models, with what is known of each."""
        for each in self:
            yield Listed(each.info.model_id, each, [*each.adapters])

    def exposition(self) -> bytes:
        """Returns the series of all models, in Prometheus's text format."""
        return self.first.metrics.exposition()


SERVICES = web.AppKey("services", Services)
TAKEN = web.RequestKey("taken", list[Service])
"""The services that a request has taken, which are given back when it is answered."""
COUNTS = web.RequestKey[Metrics | SourceMetrics]("counts")
"""The series that a request counts in for which servers elsewhere are asked."""
MODEL = "penstock-model"
"""The header that names a model where the body has no place for it."""
SESSION = "x-session-id"
"""The header that tells requests of one conversation, which the same version of a model is to answer."""
PATH_MODEL = "served_model"
"""The part of a path that names a model."""


_CHOSEN = web.RequestKey("chosen", str)


def named_in(request: web.Request) -> str | None:
    """Returns the name that the path or the header has."""
    return request.match_info.get(PATH_MODEL) or (header_text(request, MODEL) if MODEL in request.headers else None)


def client_of(request: web.Request) -> str | None:
    """Returns the name of the client that one version of a model is to answer: its conversation, or else its key."""
    session = header_text(request, SESSION) if SESSION in request.headers else None
    return session or request_record.current().key


def name_of(request: web.Request, model: str | None) -> str | None:
    """Returns the name by which a request chooses its model, which may be an alias; `model` is what the body has."""
    return named_in(request) or model


def elsewhere_of(request: web.Request, model: str | None) -> ForeignModel | None:
    """Returns the model for a request if servers elsewhere are to answer it; otherwise `service_of` will find the same
    model, for an alias of several may stand for one or another each time."""
    services = request.app[SERVICES]
    name, piped = name_of(request, model), request.get(PIPED)
    chosen = services.resolve(name, client_of(request)) if piped is None else piped.model
    if chosen is not None:
        request[_CHOSEN] = chosen
    if (found := services.elsewhere(chosen)) is not None:
        request_record.current().model = name
    return found


def chosen_of(request: web.Request) -> str | None:
    """Returns the name of the model that `elsewhere_of` has found for a request, if that names one."""
    return request.get(_CHOSEN)


async def service_of(request: web.Request, model: str | None = None) -> Service:
    """Returns the service for a request, which may name a model in its path, its header or its body, or a pipeline,
    whose last model it is then, with the steps behind that. The model stays loaded until the request is answered.
    Raises ModelNotFound."""
    named, piped = named_in(request), request.get(PIPED)
    chosen = piped.model if piped is not None else request.get(_CHOSEN) or named or model
    service = await request.app[SERVICES].take(chosen, client_of(request))
    if named:
        request_record.current().model = named
    request.setdefault(TAKEN, []).append(service)
    return service if piped is None or piped.after is None else followed(service, piped.after)


def has_steps_behind(request: web.Request) -> bool:
    """Tells whether steps of a pipeline follow the answer to a request, which models of this server alone have."""
    piped = request.get(PIPED)
    return piped is not None and piped.after is not None


def followed(service: Service, after: After) -> Service:
    """Returns the service with steps behind its answers."""
    return replace(service, around=replace(service.around, after=after))


def first_of(request: web.Request) -> Service:
    """Returns the service that decides for the whole server."""
    return request.app[SERVICES].first
