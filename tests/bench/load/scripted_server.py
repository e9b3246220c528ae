"""A server in a thread that streams scripted events with known delays, as TGI or OpenAI's routes do."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import uvloop
from aiohttp import web

Event = tuple[float, dict[str, Any] | str]
"""Seconds to wait, then what to send: an object, or text as it is."""


@dataclass
class Script:
    """What the server answers: `events` of a stream, or `whole` in one piece; `requests` are those it was sent."""

    events: Callable[[dict[str, Any]], Sequence[Event]]
    whole: dict[str, Any] | None = None
    status: int = 200
    models: Any = field(default_factory=lambda: {"data": [{"id": "scripted"}]})
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append((request.path, dict(request.headers), body))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._answer(request, body)
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if self.status != 200:
            return web.json_response({"error": "too busy"}, status=self.status)
        if self.whole is not None:
            return web.json_response(self.whole)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for delay, event in self.events(body):
            await asyncio.sleep(delay)
            text = event if isinstance(event, str) else json.dumps(event)
            await response.write(f"data: {text}\n\n".encode())
        return response

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response(self.models)


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """Yields the server's address."""
    started: Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Queue()

    async def serve() -> None:
        app, ended = web.Application(), asyncio.Event()
        for path in ("/generate_stream", "/generate", "/v1/completions", "/v1/chat/completions"):
            app.router.add_post(path, script.answer)
        app.router.add_get("/v1/models", script.list_models)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        started.put((f"http://127.0.0.1:{runner.addresses[0][1]}", asyncio.get_running_loop(), ended))
        await ended.wait()
        await site.stop()
        # A connection that was accepted just now is the runner's only in a moment, and on asyncio's own loop nobody's.
        await asyncio.sleep(0.01)
        await runner.cleanup()

    thread = threading.Thread(target=uvloop.run, args=(serve(),))
    thread.start()
    url, loop, ended = started.get(timeout=30)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


def tgi_events(gaps: Sequence[float], counts: bool = True) -> list[Event]:
    """An event for each gap, of which the last ends the answer."""
    tokens = [(gap, {"index": index + 1, "token": {"id": index, "text": "x"}, "generated_text": None, "details": None})
              for index, gap in enumerate(gaps)]
    details = {"finish_reason": "length", "generated_tokens": len(gaps), "input_length": 5}
    tokens[-1][1].update(generated_text="x" * len(gaps), details=details if counts else None)
    return tokens


def completion_events(gaps: Sequence[float], tokens_each: int = 1, usage: bool = True) -> list[Event]:
    """A chunk for each gap, and the usage in one of its own."""
    chunks: list[Event] = [(gap, {"choices": [{"text": "x" * tokens_each, "finish_reason": None}]}) for gap in gaps]
    chunks.append((0, {"choices": [{"text": "", "finish_reason": "length"}]}))
    if usage:
        chunks.append((0, {"choices": [], "usage": {"completion_tokens": tokens_each * len(gaps), "prompt_tokens": 7}}))
    return [*chunks, (0, "[DONE]")]


def chat_events(gaps: Sequence[float], first: float) -> list[Event]:
    """A chunk that names the role alone, then one for each gap, the first after `first` more seconds."""
    chunks: list[Event] = [(0, {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})]
    chunks += [(gap + (first if index == 0 else 0), {"choices": [{"delta": {"content": "x"}, "finish_reason": None}]})
               for index, gap in enumerate(gaps)]
    chunks.append((0, {"choices": [{"delta": {}, "finish_reason": "stop"}]}))
    return [*chunks, (0, {"choices": [], "usage": {"completion_tokens": len(gaps), "prompt_tokens": 9}}), (0, "[DONE]")]
