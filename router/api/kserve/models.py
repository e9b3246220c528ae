"""The model that a request names, and its version."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from penstock.router.errors import ModelNotFound, Unhealthy
from penstock.router.generation import request_record
from penstock.router.generation.piped import PIPED
from penstock.router.generation.service import Service
from penstock.router.generation.services import SERVICES, TAKEN, Listed, Services, client_of, followed
from penstock.router.versions import split_version


class Named(NamedTuple):
    """A loaded model under the name by which its client knows it, which may be that of an adapter or an alias."""

    service: Service
    name: str

    @property
    def version(self) -> str:
        """The version of the model that answers."""
        return split_version(self.service.info.model_id)[1]

    @property
    def adapter(self) -> str | None:
        """The name of the adapter that is to answer. Raises AdapterNotFound for one that was removed."""
        return self.service.adapters.named(self.name)

    @property
    def is_ready(self) -> bool:
        """Tells whether a request would be computed now."""
        return self.service.engine.is_healthy and self.service.engine.has_group


def versions_of(services: Services, name: str) -> list[str]:
    """Returns the versions of a model, the newest last."""
    found = (split_version(each.name) for each in services.listed() if not each.targets)
    return sorted((version for base, version in found if base == name), key=int)


def id_of(services: Services, name: str, version: str = "") -> str:
    """Returns the name by which the server knows a version of a model; without one that of an alias of this name, or of
    the newest version. Raises ModelNotFound for a version that there is not."""
    names = {each.name for each in services.listed()}
    base, own = split_version(name)
    versions = versions_of(services, base)
    if version and f"{base}@{version}" in names:
        return f"{base}@{version}"
    if version and (version != own or (versions and version not in versions)):
        raise ModelNotFound(f"{base}@{version}")
    return name if name in names or not versions or base != name else f"{name}@{versions[-1]}"


def ids_of(services: Services, name: str) -> list[str]:
    """Returns the names by which the server knows the models that are to be loaded or unloaded: those that an alias
    stands for, or the one of this name. Raises ModelNotFound."""
    wanted = id_of(services, name)
    targets = next((each.targets for each in services.listed() if each.name == wanted), {})
    return [*targets] or [wanted]


def named(services: Services, name: str, version: str = "") -> Named:
    """Returns the model of this name, which must be loaded. Raises ModelNotFound, Unhealthy if it is not loaded, and
    WrongTask if servers elsewhere answer for it."""
    wanted = id_of(services, name, version)
    services.refuse_unloadable(wanted)
    loaded = {each.info.model_id: each for each in services}
    service = next((each for each in loaded.values() if each.serves(wanted)), None)
    if service is not None:
        return Named(service, name)
    listed = next((each for each in services.listed() if each.name == wanted), None)
    if listed is None:
        raise ModelNotFound(name)
    targets = sorted(listed.targets, key=listed.targets.__getitem__, reverse=True)
    service = next((loaded[target] for target in targets if target in loaded), None)
    if service is None:
        raise Unhealthy(f"{name} is not loaded: a request for inference loads it")
    return Named(service, name)


async def take(services: Services, name: str, version: str = "", client: str | None = None) -> Named:
    """Returns the model of this name once it is loaded, which it stays until its service is given back. Raises
    ModelNotFound, and Unhealthy if it can't be loaded."""
    wanted = id_of(services, name, version)
    if not services.are_several and not services.first.serves(wanted):
        raise ModelNotFound(name)
    return Named(await services.take(wanted, client), name)


@asynccontextmanager
async def using(services: Services, name: str, version: str = "") -> AsyncIterator[Named]:
    """Holds the model of this name while the block runs. Raises ModelNotFound, and Unhealthy."""
    found = await take(services, name, version, request_record.current().key)
    try:
        yield found
    finally:
        services.give_back(found.service)


def all_loaded(services: Services) -> list[Named]:
    """Returns all models that are loaded, without their adapters."""
    return [Named(service, split_version(service.info.model_id)[0]) for service in services]


def all_listed(services: Services) -> Iterator[Listed]:
    """Yields all models, loaded or not, without aliases and adapters, and without those of servers elsewhere, which
    other routes are for."""
    return (each for each in services.listed() if not each.targets and each.source is None)


def described(request: web.Request) -> Named:
    """Returns the model that the path of a request names. Raises ModelNotFound, and Unhealthy if it is not loaded."""
    return named(request.app[SERVICES], *_of_path(request))


def pipeline_state(request: web.Request) -> str | None:
    """Returns the state of the pipeline that the path of a request names; None if it names none."""
    name, _ = _of_path(request)
    return next((each.state for each in request.app[SERVICES].listed() if each.steps and each.name == name), None)


async def model_of(request: web.Request) -> Named:
    """Returns the model that the path of a request names, which stays loaded until the request is answered. Raises
    ModelNotFound, and Unhealthy if it can't be loaded."""
    services, client = request.app[SERVICES], client_of(request)
    piped = request.get(PIPED)
    found = (await take(services, *_of_path(request), client) if piped is None
             else Named(await services.take(piped.model, client), piped.pipeline))
    request.setdefault(TAKEN, []).append(found.service)
    return found if piped is None or piped.after is None else found._replace(
        service=followed(found.service, piped.after))


def _of_path(request: web.Request) -> tuple[str, str]:
    path = request.match_info
    return path["model"].removesuffix("/"), path.get("version", "").removesuffix("/")
