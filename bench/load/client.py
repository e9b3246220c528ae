"""Sends requests to one server and measures the answers."""

import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from penstock.bench.load.apis import Api, Part, Prompt
from penstock.bench.load.measurement import Failure, Measurement

MAX_LINE = 1 << 22                       # bytes of an event


class ServerError(Exception):
    """The server cannot be used; the message says why."""


class _RequestFailed(Exception):
    """A server's answer to one request is an error, or incomplete."""

    def __init__(self, kind: str, details: str = "") -> None:
        super().__init__(kind)
        self.failure = Failure(kind, details)


@dataclass(frozen=True)
class Target:
    """A server, and how it is asked. `fields` are added to the parameters of each request."""

    url: str
    api: Api
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    is_streamed: bool = True
    timeout: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def session(self) -> aiohttp.ClientSession:
        """Opens a session in which each request has a connection of its own, as those of different users have.

        (llama.cpp's server closes a connection after a stream without saying so.)
        """
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return aiohttp.ClientSession(
            self.url.rstrip("/") + "/", headers=headers, timeout=aiohttp.ClientTimeout(total=self.timeout),
            connector=aiohttp.TCPConnector(limit=0, force_close=True), read_bufsize=MAX_LINE)


class Client:
    """Asks a server over an open session."""

    def __init__(self, target: Target, session: aiohttp.ClientSession, model: str | None = None) -> None:
        self._target = target
        self._session = session
        self._model = model

    @classmethod
    async def connect(cls, target: Target, session: aiohttp.ClientSession) -> "Client":
        """Returns a client that knows the model's name. Raises ServerError if it must be asked for and is not told."""
        needs_model = target.api.needs_model and target.model is None
        return cls(target, session, await _first_model(session, target.url) if needs_model else target.model)

    async def send(self, prompt: Prompt) -> Measurement:
        """Asks once; failures are part of what is measured."""
        start = time.perf_counter()
        try:
            return await self._measure(prompt, start)
        except _RequestFailed as error:
            failure = error.failure
        except TimeoutError:
            failure = Failure("timeout", f"after {self._target.timeout:g} s")
        except aiohttp.ClientConnectorError as error:
            failure = Failure("no connection", str(error.os_error))
        except (aiohttp.ClientError, ValueError, LookupError, TypeError, AttributeError) as error:
            failure = Failure("broken answer", f"{type(error).__name__}: {error}")
        return Measurement(start, time.perf_counter(), failure=failure)

    async def _measure(self, prompt: Prompt, start: float) -> Measurement:
        target = self._target
        body = target.api.body(prompt, self._model, target.is_streamed, target.fields)
        async with self._post(target.api.path(target.is_streamed), body) as response:
            if response.status != 200:
                raise _RequestFailed(f"status {response.status}", (await response.text())[:300])
            if target.is_streamed:
                return await self._read_stream(response, start)
            part = target.api.read(_parse(await response.read()))
        if part.error is not None or part.num_tokens is None:
            raise _RequestFailed("error" if part.error else "no count of tokens", part.error or "")
        return Measurement(start, time.perf_counter(), (), part.num_tokens, part.prompt_tokens)

    async def _read_stream(self, response: aiohttp.ClientResponse, start: float) -> Measurement:
        reader = _StreamReader(self._target.api)
        async for line in response.content:
            if line.startswith(b"data:"):
                reader.add(line[5:].strip(), time.perf_counter())
        return reader.finish(start, time.perf_counter())

    def _post(self, path: str, body: dict[str, Any]) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.post(path.lstrip("/"), data=orjson.dumps(body),
                                  headers={"Content-Type": "application/json"})


class _StreamReader:
    """Gathers the events of one stream."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._times: list[float] = []
        self._end: float | None = None
        self._counts = Part()

    def add(self, data: bytes, now: float) -> None:
        """Takes the next event. Raises _RequestFailed for one that is an error."""
        if data == b"[DONE]":
            return
        part = self._api.read(_parse(data))
        if part.error is not None:
            raise _RequestFailed("error in a stream", part.error)
        if part.has_output:
            self._times.append(now)
        if part.is_end:
            self._end = now
        if part.num_tokens is not None:
            self._counts = part

    def finish(self, start: float, now: float) -> Measurement:
        """Returns the measurement. Raises _RequestFailed if no event ended the answer."""
        if self._end is None:
            raise _RequestFailed("incomplete stream", f"{len(self._times)} events, none of which ends the answer")
        times = self._times or [self._end]           # of tokens that have no text
        if self._counts.num_tokens is None:
            return Measurement(start, now, tuple(times), len(times), counted_by=self._api.counted_by)
        return Measurement(start, now, tuple(times), self._counts.num_tokens, self._counts.prompt_tokens)


def _parse(data: bytes) -> dict[str, Any]:
    """Returns a JSON object. Raises ValueError for anything else."""
    found = orjson.loads(data)
    if not isinstance(found, dict):
        raise ValueError(f"{data[:100]!r} is not a JSON object")
    return found


async def _first_model(session: aiohttp.ClientSession, url: str) -> str:
    """Returns the first model in the server's list."""
    try:
        async with session.get("v1/models") as response:
            if response.status != 200:
                raise ServerError(f"{url}/v1/models answered with status {response.status}; name the model instead")
            return str(_parse(await response.read())["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError) as error:
        raise ServerError(f"{url}/v1/models names no model: {error}") from error
