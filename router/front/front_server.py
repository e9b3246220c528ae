"""The engine's process, as it serves fronts at a Unix socket."""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.router.adapters.registry import Registry
from penstock.router.engine.request import Request
from penstock.router.errors import GenerationError, RouterError
from penstock.router.explaining.recent import Recent
from penstock.router.front import messages
from penstock.router.front.channel import Channel
from penstock.router.front.remote_stream import RemoteStream
from penstock.router.generation.poison_memory import MAX_REMEMBERED
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.grammar.matcher import Grammar, GrammarError
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.groups.groups import Groups
from penstock.router.rates import Rates
from penstock.router.scheduling.usage import Usage
from penstock.router.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

KINDS_SECONDS = 0.1
"""How often fronts are told which kind of groups their next requests are for, where there are several kinds."""


class FrontServer:
    """Runs on `engine` what fronts submit. `grammars` is None where the server has none; the `tokenizer` is for beams
    that end with stop strings. It keeps the stories of the latest `most_stories` requests."""

    def __init__(
        self, engine: Groups, adapters: Registry, grammars: GrammarCompiler | None, tokenizer: Tokenizer,
        most_stories: int = 0,
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.adapters = adapters
        adapters.followers.append(lambda _: self.tell_adapters())
        self.grammars = grammars
        self.rates = Rates()
        self.stories = Recent(most_stories)
        self._fronts: set[_Front] = set()
        self._poison: deque[bytes] = deque(maxlen=MAX_REMEMBERED)
        self._has_none = asyncio.Event()
        self._has_none.set()
        self._server: asyncio.Server | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self, path: Path) -> None:
        """Listens at `path`, where a process that has ended may have left its socket."""
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Front(self).channel, str(path))
        self._following = asyncio.create_task(self._follow(), name="fronts")

    async def stop(self) -> None:
        """Ends the connections."""
        if self._server is not None:
            self._server.close()
        if self._following is not None:
            self._following.cancel()
        for front in [*self._fronts]:
            front.channel.close()

    async def until_left(self) -> None:
        """Waits until no front is connected."""
        await self._has_none.wait()

    def enter(self, front: "_Front") -> None:
        """Takes a front that has told what it holds."""
        self._fronts.add(front)
        self._has_none.clear()
        front.channel.send(self._state())
        for digest in self._poison:
            front.channel.send(messages.Poison(digest))

    def leave(self, front: "_Front") -> None:
        """Lets a front go that is gone."""
        self._fronts.discard(front)
        if not self._fronts:
            self._has_none.set()

    def tell(self, item: object) -> None:
        """Tells all fronts."""
        for front in self._fronts:
            front.channel.send(item)

    def remember(self, poison: messages.Poison) -> None:
        """Tells all fronts of a request that was given up, and those that connect later."""
        self._poison.append(poison.digest)
        self.tell(poison)

    def tell_adapters(self) -> None:
        """Tells all fronts which adapters there are now."""
        self.tell(messages.KnownAdapters(tuple(self.adapters), self.adapters.removed))

    async def compile(self, spec: GrammarSpec) -> Grammar:
        """Compiles a grammar, unless that was done. Raises GrammarError."""
        if self.grammars is None:
            raise GrammarError("this server has no grammars")
        return await self.grammars.compile(spec)

    def _state(self) -> messages.State:
        engine = self.engine
        return messages.State(engine.facts, tuple(engine.kinds), engine.limits, engine.num_slots, engine.is_healthy,
                              engine.has_group)

    async def _follow(self) -> None:
        """Tells fronts what has changed. Of several kinds of groups the first is the one for the next request, which
        changes with every request, so that is looked at now and then."""
        while True:
            self.engine.changed.clear()
            self.tell(state := self._state())
            with suppress(TimeoutError):
                async with asyncio.timeout(KINDS_SECONDS if len(state.kinds) > 1 else None):
                    await self.engine.changed.wait()


class _Front:
    """A connected front: when it is gone its requests end, and its permits return."""

    def __init__(self, server: FrontServer) -> None:
        self.channel = Channel(self._take, self._lose)
        self._server = server
        self._engine = server.engine
        self._streams: dict[int, RemoteStream] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """The tasks for requests before they are submitted, by the request's id."""
        self._replies: set[asyncio.Task[None]] = set()
        self._num_permits = 0

    def _take(self, items: list[Any]) -> None:
        for item in items:
            match item:
                case messages.Submission():
                    self._submit(item)
                case messages.Cancellation(id):
                    self._cancel(id)
                case messages.ReturnedPermits(number):
                    self._return_permits(number)
                case messages.Question():
                    reply = asyncio.create_task(self._reply(item))
                    self._replies.add(reply)
                    reply.add_done_callback(self._replies.discard)
                case messages.Used(use):
                    self._server.rates.note(use)
                case messages.Poison():
                    self._server.remember(item)
                case messages.Ended(story):
                    self._server.stories.tell(story)
                case messages.Hello():
                    self._engine.take_permits(item.num_permits, may_exceed=True)
                    self._num_permits += item.num_permits
                    self._server.adapters.recall(item.added, item.removed)
                    self._server.enter(self)
                    self._server.tell_adapters()

    def _lose(self) -> None:
        for task in (*self._tasks.values(), *self._replies):
            task.cancel()
        for stream in [*self._streams.values()]:
            stream.cancel()
        self._return_permits(self._num_permits)
        self._server.leave(self)

    def _return_permits(self, number: int) -> None:
        self._engine.return_permits(number)
        self._num_permits -= number

    def _submit(self, submission: messages.Submission) -> None:
        """Submits a request, at once unless it has a grammar, which may have to be compiled."""
        request = submission.request
        if request.adapter is not None:
            request = replace(request, adapter=self._server.adapters.own(request.adapter))
        if not isinstance(request.grammar, GrammarSpec):
            self._start(submission, request)
            return
        task = asyncio.create_task(self._prepare(submission, request, request.grammar))
        self._tasks[submission.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(submission.id, None))

    async def _prepare(self, submission: messages.Submission, request: Request, spec: GrammarSpec) -> None:
        try:
            grammar = await self._server.compile(spec)
        except GrammarError as error:
            self.channel.send((submission.id, GenerationError(f"the grammar can't be compiled any more: {error}")))
        except Exception:
            log.exception("a grammar could not be compiled")
            self.channel.send((submission.id, RouterError()))
        else:
            self._start(submission, replace(request, grammar=grammar))

    def _start(self, submission: messages.Submission, request: Request) -> None:
        stream = RemoteStream(
            submission.id, request, len(submission.output_so_far), self._server.tokenizer, self.channel.send,
            self._forget)
        self._streams[submission.id] = stream
        try:
            self._engine.submit(stream, submission.output_so_far)
        except RouterError as error:
            stream.fail(error)
        except Exception:
            log.exception("a front's request could not be submitted")
            stream.fail(RouterError())

    def _forget(self, id: int) -> None:
        self._streams.pop(id, None)

    def _cancel(self, id: int) -> None:
        if (task := self._tasks.pop(id, None)) is not None:
            task.cancel()
        if (stream := self._streams.pop(id, None)) is not None:
            stream.cancel()
        self.channel.send((id, Usage() if stream is None else stream.usage))

    async def _reply(self, question: messages.Question) -> None:
        try:
            value = await self._find_out(question.ask)
        except (RouterError, GrammarError) as error:
            value = error
        except Exception:
            log.exception("a front's question could not be answered")
            value = RouterError()
        self.channel.send(messages.Reply(question.number, value))

    async def _find_out(self, ask: messages.Ask) -> object:
        match ask:
            case messages.TakePermits(number):
                self._engine.take_permits(number)
                self._num_permits += number
                return None
            case messages.TakeRates(use):
                await self._server.rates.take(use)
                return None
            case messages.CompileGrammar(spec):
                await self._server.compile(spec)
                return None
            case messages.FindAdapter(name):
                return await self._server.adapters.get(name)
            case messages.AddAdapter(source):
                await self._server.adapters.add(source)
                return None
            case messages.RemoveAdapter(name):
                await self._server.adapters.remove(name)
                return None
            case messages.StalledSeconds():
                return await self._engine.stalled_seconds()
            case messages.FindStory(id, owner):
                return await self._server.stories.find(id, owner)
