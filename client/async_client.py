"""The client for programs that run an event loop of asyncio."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Generic, Self

import httpx2

from penstock.client import settings
from penstock.client.call import StreamCall, TokenIdOf, WholeCall
from penstock.client.errors import Gone
from penstock.client.events import EventDecoder
from penstock.client.replies import (
    AnyReply,
    AnyWhole,
    ChatChunk,
    ChatCompletion,
    Completion,
    Generated,
    GeneratedToken,
)
from penstock.client.settings import Settings


class AsyncStream(Generic[AnyReply]):
    """Iterates, by `async for`, over the events of one answer, each of which comes once, however often its server dies
    meanwhile. Leaving the `async with`, or `close`, ends an answer that is not wanted any more."""

    def __init__(self, http: httpx2.AsyncClient, shared: Settings, path: str, call: StreamCall[AnyReply]) -> None:
        self._http = http
        self._settings = shared
        self._path = path
        self._call = call
        self._events = self._attempts()

    @property
    def answer(self) -> str | None:
        """The name of the answer, known once an event has come: a call with `answer=` gets the same again."""
        return self._call.answer

    async def close(self) -> None:
        """Ends the stream."""
        await self._events.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyReply:
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _attempts(self) -> AsyncGenerator[AnyReply]:
        while not self._call.is_whole:
            try:
                async with aclosing(self._attempt()) as events:
                    async for reply in events:
                        yield reply
            except (httpx2.TransportError, Gone) as error:
                if not self._call.is_whole:
                    await asyncio.sleep(self._call.failed(error))

    async def _attempt(self) -> AsyncGenerator[AnyReply]:
        call = self._call
        async with self._http.stream(
                "POST", call.patience.url + self._path, content=call.content, headers=call.headers,
                timeout=settings.STREAM_TIMEOUT) as response:
            call.begin(response.status_code, response.headers, b"" if response.is_success else await response.aread())
            settings.limit_silence(response)
            decoder = EventDecoder()
            async for chunk in response.aiter_bytes():
                for event in decoder.feed(chunk):
                    reply = call.take(event)
                    if reply is not None:
                        self._settings.answered(call.patience)
                        yield reply
            call.end()


class AsyncClient:
    """Asks one server, or several that have the same model: the one that answered last, at first the
    first of `urls`.

    A call goes on by itself when its server dies, hangs or ends, here or at another server, for as long as something
    comes of one of them within `max_downtime` seconds; then it raises Unreachable. What a server refuses raises
    another ClientError. In all calls `key` is an idempotency key, by which calls that are the same get the same
    answer, and `answer` the name of an answer that is to be had again.
    """

    def __init__(
        self, urls: str | Sequence[str] = "http://localhost:3000", *, api_key: str | None = None,
        max_downtime: float = 120.0, headers: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = Settings(urls, api_key, max_downtime, headers or {})
        self._http = httpx2.AsyncClient(
            headers=self._settings.headers, limits=settings.LIMITS,
            transport=httpx2.AsyncHTTPTransport(limits=settings.LIMITS, socket_options=settings.SOCKET_OPTIONS))

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def generate(self, inputs: str, *, key: str | None = None, answer: str | None = None, **parameters: Any
                       ) -> Generated:
        """Returns the answer to a prompt, by TGI's route and parameters."""
        return await self._whole("/generate", Generated, settings.generate_body(inputs, parameters), key, answer)

    def generate_stream(self, inputs: str, *, key: str | None = None, answer: str | None = None, **parameters: Any
                        ) -> AsyncStream[GeneratedToken]:
        """Returns the tokens of the answer to a prompt as they come, by TGI's route and parameters."""
        return self._stream("/generate_stream", GeneratedToken, settings.token_id_of_tgi,
                            settings.generate_body(inputs, parameters), key, answer)

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, key: str | None = None, answer: str | None = None,
                   **fields: Any) -> ChatCompletion:
        """Returns the answers to a conversation, by OpenAI's route and fields."""
        return await self._whole("/v1/chat/completions", ChatCompletion, {**fields, "messages": messages}, key, answer)

    def chat_stream(self, messages: Sequence[Mapping[str, Any]], *, key: str | None = None, answer: str | None = None,
                    **fields: Any) -> AsyncStream[ChatChunk]:
        """Returns the chunks of the answers to a conversation as they come, by OpenAI's route and fields."""
        body = {**fields, "messages": messages, "stream": True}
        return self._stream("/v1/chat/completions", ChatChunk, settings.token_ids_of_openai(body), body, key, answer)

    async def complete(self, prompt: str | Sequence[Any], *, key: str | None = None, answer: str | None = None,
                       **fields: Any) -> Completion:
        """Returns the completions of prompts, by OpenAI's route and fields."""
        return await self._whole("/v1/completions", Completion, {**fields, "prompt": prompt}, key, answer)

    def complete_stream(self, prompt: str | Sequence[Any], *, key: str | None = None, answer: str | None = None,
                        **fields: Any) -> AsyncStream[Completion]:
        """Returns the chunks of the completions of prompts as they come, by OpenAI's route and fields."""
        body = {**fields, "prompt": prompt, "stream": True}
        return self._stream("/v1/completions", Completion, settings.token_ids_of_openai(body), body, key, answer)

    async def _whole(self, path: str, kind: type[AnyWhole], body: dict[str, Any], key: str | None, answer: str | None
                     ) -> AnyWhole:
        call = WholeCall(self._settings.patience(), body, key, answer, kind)
        while True:
            try:
                response = await self._http.post(call.patience.url + path, content=call.content, headers=call.headers,
                                                 timeout=settings.WHOLE_TIMEOUT)
                reply = call.take(response.status_code, response.headers, response.content)
            except (httpx2.TransportError, Gone) as error:
                await asyncio.sleep(call.failed(error))
            else:
                self._settings.answered(call.patience)
                return reply

    def _stream(self, path: str, kind: type[AnyReply], token_id_of: TokenIdOf, body: dict[str, Any], key: str | None,
                answer: str | None) -> AsyncStream[AnyReply]:
        call = StreamCall(self._settings.patience(), body, key, answer, kind, token_id_of)
        return AsyncStream(self._http, self._settings, path, call)
