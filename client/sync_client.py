"""The client for programs without an event loop."""

import time
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import httpx2

from penstock.client import settings
from penstock.client.call import StreamCall, TokenIdOf
from penstock.client.errors import Gone
from penstock.client.events import EventDecoder
from penstock.client.replies import ChatChunk, ChatCompletion, Completion, Generated, GeneratedToken, Reply, WholeReply
from penstock.client.settings import Settings

AnyReply = TypeVar("AnyReply", bound=Reply)
AnyWhole = TypeVar("AnyWhole", bound=WholeReply)


class Stream(Generic[AnyReply]):
    """Iterates over the events of one answer, each of which comes once, however often its server dies meanwhile.
    Leaving the `with`, or `close`, ends an answer that is not wanted any more."""

    def __init__(self, http: httpx2.Client, shared: Settings, path: str, call: StreamCall[AnyReply]) -> None:
        self._http = http
        self._settings = shared
        self._path = path
        self._call = call
        self._events = self._attempts()

    @property
    def answer(self) -> str | None:
        """The name of the answer, known once an event has come: a call with `answer=` gets the same again."""
        return self._call.answer

    def close(self) -> None:
        """Ends the stream."""
        self._events.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AnyReply:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _attempts(self) -> Generator[AnyReply]:
        while not self._call.is_whole:
            try:
                yield from self._attempt()
            except (httpx2.TransportError, Gone) as error:
                if not self._call.is_whole:
                    time.sleep(self._call.failed(error))

    def _attempt(self) -> Generator[AnyReply]:
        call = self._call
        with self._http.stream("POST", call.patience.url + self._path, content=call.content, headers=call.headers,
                               timeout=settings.STREAM_TIMEOUT) as response:
            call.begin(response.status_code, response.headers, b"" if response.is_success else response.read())
            settings.limit_silence(response)
            decoder = EventDecoder()
            for chunk in response.iter_bytes():
                for event in decoder.feed(chunk):
                    reply = call.take(event)
                    if reply is not None:
                        self._settings.answered(call.patience)
                        yield reply
            call.end()


class Client:
    """Asks one server, or several that have the same model: the one that answered last, at first the
    first of `urls`.

    A call goes on by itself when its server dies, hangs or ends, here or at another server, for as long as something
    comes of one of them within `max_downtime` seconds; then it raises Unreachable. What a server refuses raises
    another ClientError. In all calls `key` is an idempotency key, by which calls that are the same get the same
    answer, and `answer` the name of an answer that is to be had again. Threads may share a client.
    """

    def __init__(
        self, urls: str | Sequence[str] = "http://localhost:3000", *, api_key: str | None = None,
        max_downtime: float = 120.0, headers: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = Settings(urls, api_key, max_downtime, headers or {})
        self._http = httpx2.Client(
            headers=self._settings.headers, limits=settings.LIMITS,
            transport=httpx2.HTTPTransport(limits=settings.LIMITS, socket_options=settings.SOCKET_OPTIONS))

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def generate(self, inputs: str, *, key: str | None = None, answer: str | None = None, **parameters: Any
                 ) -> Generated:
        """Returns the answer to a prompt, by TGI's route and parameters."""
        return self._whole("/generate", Generated, settings.generate_body(inputs, parameters), key, answer)

    def generate_stream(self, inputs: str, *, key: str | None = None, answer: str | None = None, **parameters: Any
                        ) -> Stream[GeneratedToken]:
        """Returns the tokens of the answer to a prompt as they come, by TGI's route and parameters."""
        return self._stream("/generate_stream", GeneratedToken, settings.token_id_of_tgi,
                            settings.generate_body(inputs, parameters), key, answer)

    def chat(self, messages: Sequence[Mapping[str, Any]], *, key: str | None = None, answer: str | None = None,
             **fields: Any) -> ChatCompletion:
        """Returns the answers to a conversation, by OpenAI's route and fields."""
        return self._whole("/v1/chat/completions", ChatCompletion, {**fields, "messages": messages}, key, answer)

    def chat_stream(self, messages: Sequence[Mapping[str, Any]], *, key: str | None = None, answer: str | None = None,
                    **fields: Any) -> Stream[ChatChunk]:
        """Returns the chunks of the answers to a conversation as they come, by OpenAI's route and fields."""
        body = {**fields, "messages": messages, "stream": True}
        return self._stream("/v1/chat/completions", ChatChunk, settings.token_ids_of_openai(body), body, key, answer)

    def complete(self, prompt: str | Sequence[Any], *, key: str | None = None, answer: str | None = None,
                 **fields: Any) -> Completion:
        """Returns the completions of prompts, by OpenAI's route and fields."""
        return self._whole("/v1/completions", Completion, {**fields, "prompt": prompt}, key, answer)

    def complete_stream(self, prompt: str | Sequence[Any], *, key: str | None = None, answer: str | None = None,
                        **fields: Any) -> Stream[Completion]:
        """Returns the chunks of the completions of prompts as they come, by OpenAI's route and fields."""
        body = {**fields, "prompt": prompt, "stream": True}
        return self._stream("/v1/completions", Completion, settings.token_ids_of_openai(body), body, key, answer)

    def _whole(self, path: str, kind: type[AnyWhole], body: dict[str, Any], key: str | None, answer: str | None
               ) -> AnyWhole:
        call = self._settings.whole(kind, body, key, answer)
        while True:
            try:
                response = self._http.post(call.patience.url + path, content=call.content, headers=call.headers,
                                           timeout=settings.WHOLE_TIMEOUT)
                reply = call.take(response.status_code, response.headers, response.content)
            except (httpx2.TransportError, Gone) as error:
                time.sleep(call.failed(error))
            else:
                self._settings.answered(call.patience)
                return reply

    def _stream(self, path: str, kind: type[AnyReply], token_id_of: TokenIdOf, body: dict[str, Any], key: str | None,
                answer: str | None) -> Stream[AnyReply]:
        call = self._settings.stream(kind, token_id_of, body, key, answer)
        return Stream(self._http, self._settings, path, call)
