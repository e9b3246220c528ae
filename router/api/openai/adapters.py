"""vLLM's routes by which clients load and unload adapters: `/v1/load_lora_adapter` and `/v1/unload_lora_adapter`."""

from pathlib import Path

from aiohttp import web

from penstock.router.adapters.source import AdapterSource
from penstock.router.api.http.body import read_body
from penstock.router.errors import AdaptersFixed, InvalidAdapter
from penstock.router.generation.service import Service
from penstock.router.generation.services import service_of
from penstock.router.shapes import Body

MAX_PATH = 4096
"""The characters of a path, as Linux has it."""


class LoadAdapterBody(Body):
    """The body of `POST /v1/load_lora_adapter`; the path is that of a folder on the server."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False


class UnloadAdapterBody(Body):
    """The body of `POST /v1/unload_lora_adapter`."""

    lora_name: str


async def load(request: web.Request) -> web.Response:
    """Adds an adapter, whose files are read now; the shards load it when it is first used."""
    service = await _service(request)
    body = await read_body(request, LoadAdapterBody)
    if body.load_inplace:
        raise InvalidAdapter("`load_inplace` is not supported: unload the adapter, then load it")
    source = AdapterSource(body.lora_name, _folder(body.lora_path), body.lora_path)
    await service.adapters.add(source)
    return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' added successfully.")


async def unload(request: web.Request) -> web.Response:
    """Removes an adapter: requests that were taken are answered, new ones that name it are refused."""
    service = await _service(request)
    body = await read_body(request, UnloadAdapterBody)
    await service.adapters.remove(body.lora_name)
    return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


def _folder(path: str) -> Path:
    """Returns the folder; whether there is one is seen when its files are read, which may take a while."""
    if len(path) > MAX_PATH:
        raise InvalidAdapter(f"`lora_path` must have at most {MAX_PATH} characters. Given: {len(path)}")
    if not path.startswith("/"):
        raise InvalidAdapter("`lora_path` must be a directory on the server, by its absolute path; adapters of the "
                             "Hugging Face Hub are given to --lora-adapters, at the start")
    return Path(path)


async def _service(request: web.Request) -> Service:
    """Returns the service, if clients may change its adapters; raises AdaptersFixed if not."""
    service = await service_of(request)
    if not service.allows_runtime_adapters:
        raise AdaptersFixed
    return service
