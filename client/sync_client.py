"""The client for programs without an event loop: an AsyncClient, whose loop has a thread of its own."""

import asyncio
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from penstock.client.async_client import AsyncClient, AsyncStream
from penstock.client.replies import AnyReply, ChatChunk, ChatCompletion, Completion, Generated, GeneratedToken

Result = TypeVar("Result")


class _LoopThread:
    """An event loop in a thread, which begins with the first call, so that processes may fork before, and ends with the
    last that refers to it."""

    def __init__(self) -> None:
        self.is_closed = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Returns the result of a coroutine, which is cancelled if the caller is interrupted."""
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Ends the thread once it has run `last`."""
        future = self._submit(last, is_last=True)
        try:
            future.result()
        finally:
            self._end()

    def _submit(self, work: Coroutine[Any, Any, Result], is_last: bool = False) -> Future[Result]:
        """Has the loop run a coroutine. Raises RuntimeError if it never will."""
        with self._lock:
            try:
                if self.is_closed:
                    raise RuntimeError("the client has been closed")
                if self._loop is None or self._thread is None:
                    self._loop, self._thread = self._begin()
                elif not self._thread.is_alive():
                    raise RuntimeError("the process has forked since the client's first call: make another client")
            except RuntimeError:
                work.close()
                raise
            self.is_closed = is_last
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _begin(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop,), name="penstock-client", daemon=True)
        thread.start()
        self._end = weakref.finalize(self, _end, loop, thread)
        return loop, thread


def _run(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:  # cancels and closes all that is left at its end
        runner.get_loop().run_forever()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()


class Stream(Generic[AnyReply]):
    """Iterates over the events of one answer, each of which comes once, however often its server dies meanwhile.
    Leaving the `with`, or `close`, ends an answer that is not wanted any more."""

    def __init__(self, thread: _LoopThread, stream: AsyncStream[AnyReply]) -> None:
        self._thread = thread
        self._stream = stream

    @property
    def answer(self) -> str | None:
        """The name of the answer, known once an event has come: a call with `answer=` gets the same again."""
        return self._stream.answer

    def close(self) -> None:
        """Ends the stream."""
        if not self._thread.is_closed:
            self._thread.run(self._stream.close())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AnyReply:
        try:
            return self._thread.run(anext(self._stream))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Client:
    """Does all that an AsyncClient does, for callers that wait. Threads may share a client."""

    def __init__(
        self, urls: str | Sequence[str] = "http://localhost:3000", *, api_key: str | None = None,
        max_downtime: float = 120.0, headers: Mapping[str, str] | None = None,
    ) -> None:
        self._client = AsyncClient(urls, api_key=api_key, max_downtime=max_downtime, headers=headers)
        self._thread = _LoopThread()

    def close(self) -> None:
        """Closes the connections, and ends their streams."""
        if not self._thread.is_closed:
            self._thread.close(self._client.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def generate(self, inputs: str, *, key: str | None = None, answer: str | None = None, **parameters: Any
                 ) -> Generated:
        """Returns the answer to a prompt, by TGI's route and parameters."""
        return self._thread.run(self._client.generate(inputs, key=key, answer=answer, **parameters))

    def generate_stream(self, inputs: str, *, key: str | None = None, answer: str | None = None, **parameters: Any
                        ) -> Stream[GeneratedToken]:
        """Returns the tokens of the answer to a prompt as they come, by TGI's route and parameters."""
        return Stream(self._thread, self._client.generate_stream(inputs, key=key, answer=answer, **parameters))

    def chat(self, messages: Sequence[Mapping[str, Any]], *, key: str | None = None, answer: str | None = None,
             **fields: Any) -> ChatCompletion:
        """Returns the answers to a conversation, by OpenAI's route and fields."""
        return self._thread.run(self._client.chat(messages, key=key, answer=answer, **fields))

    def chat_stream(self, messages: Sequence[Mapping[str, Any]], *, key: str | None = None, answer: str | None = None,
                    **fields: Any) -> Stream[ChatChunk]:
        """Returns the chunks of the answers to a conversation as they come, by OpenAI's route and fields."""
        return Stream(self._thread, self._client.chat_stream(messages, key=key, answer=answer, **fields))

    def complete(self, prompt: str | Sequence[Any], *, key: str | None = None, answer: str | None = None,
                 **fields: Any) -> Completion:
        """Returns the completions of prompts, by OpenAI's route and fields."""
        return self._thread.run(self._client.complete(prompt, key=key, answer=answer, **fields))

    def complete_stream(self, prompt: str | Sequence[Any], *, key: str | None = None, answer: str | None = None,
                        **fields: Any) -> Stream[Completion]:
        """Returns the chunks of the completions of prompts as they come, by OpenAI's route and fields."""
        return Stream(self._thread, self._client.complete_stream(prompt, key=key, answer=answer, **fields))
