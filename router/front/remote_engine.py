"""The engine as a front sees it, which is in another process."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.contract.facts import Facts
from penstock.router.engine.receiver import Receiver
from penstock.router.engine.request_table import RequestState, RequestTable
from penstock.router.engine.trace import Note, Trace
from penstock.router.errors import GenerationError, KilledGroup, RouterError, Unhealthy
from penstock.router.front import messages
from penstock.router.front.channel import Channel
from penstock.router.front.remote_checks import RemoteAdapters, RemoteGrammars, RemoteRates
from penstock.router.front.remote_stories import RemoteStories
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.limits import Limits
from penstock.router.scheduling.confirmed import Other, Pooled, PromptLogprobsPart, Sampled, Verified
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.usage import Usage

log = logging.getLogger(__name__)

CONNECT_SECONDS = 0.05
"""The pause between two attempts to reach the engine's process."""
MAX_DEATHS = 3
"""How often in a row the engine's process may die before a request got another token, or a question its reply."""
_ENDED_THERE = (FinishReason.LENGTH, FinishReason.EOS_TOKEN, FinishReason.POOLED)
"""The reasons that the engine finds; of others it is told. To hear of the end of a beam search does it no harm."""


@dataclass(slots=True)
class _Asked:
    """A question, and what its reply is awaited by."""

    ask: messages.Ask
    reply: asyncio.Future[Any]
    deaths: int = 0
    """How often the engine's process has died since."""

    def settle(self, value: object) -> None:
        """Gives the reply to who waits for it, if anybody does."""
        if self.reply.done():
            return
        if isinstance(value, Exception):
            self.reply.set_exception(value)
        else:
            self.reply.set_result(value)


class RemoteEngine:
    """Submits requests to the engine's process, which listens at `path`, and gives their tokens to their receivers.

    When that process is lost, requests wait up to `max_downtime` seconds for the next one, and are submitted there with
    the output that their clients have; but not for ever, for one of them may be what it dies of. `connect` comes first:
    it finds the facts and the limits.
    """

    facts: Facts
    kinds: Sequence[Facts]
    limits: Limits
    num_slots: int

    def __init__(self, path: Path, max_downtime: float, poison_seconds: float) -> None:
        self._path = path
        self._max_downtime = max_downtime
        self._downtime: asyncio.TimerHandle | None = None
        self._channel: Channel | None = None
        self._lost = asyncio.Event()
        self._known = asyncio.Event()
        self._requests = RequestTable(self._finish)
        self._outputs: dict[int, list[int]] = {}
        """By request, the tokens that its receiver has."""
        self._next_id = 0
        self._unbilled: dict[int, Receiver] = {}
        """By request, the receiver of what it has used, from its submission on until that is known."""
        self._deaths: Counter[int] = Counter()
        """By request, how often in a row the engine's process has died since it got a token."""
        self._questions: dict[int, _Asked] = {}
        self._next_question = 0
        self._num_permits = 0
        self.adapters = RemoteAdapters(self.ask)
        self.grammars = RemoteGrammars(self.ask)
        self.rates = RemoteRates(self.ask, self._send)
        self.stories = RemoteStories(self._send, self.ask)
        self.poison = PoisonMemory(poison_seconds, tell=lambda digest: self._send(messages.Poison(digest)))
        self.is_healthy = True
        self.has_group = False
        self.changed = asyncio.Event()

    async def connect(self) -> bool:
        """Waits until the engine's process listens and has told of itself, and tells it what runs here; then returns
        True."""
        loop = asyncio.get_running_loop()
        while not self._known.is_set():
            lost = self._lost = asyncio.Event()
            try:
                _, self._channel = await loop.create_unix_connection(
                    partial(Channel, self._take, lost.set), str(self._path))
            except OSError:
                await asyncio.sleep(CONNECT_SECONDS)
                continue
            self._greet()
            waits = [asyncio.create_task(event.wait()) for event in (lost, self._known)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if not self._known.is_set():
                self._channel = None
                await asyncio.sleep(CONNECT_SECONDS)
        return True

    async def run(self) -> None:
        """Follows the engine's process, and connects to the next one when it is lost, until cancelled."""
        try:
            while True:
                await self._lost.wait()
                self._lose()
                await self.connect()
        finally:
            if self._channel is not None:
                self._channel.close()

    @asynccontextmanager
    async def permit(self, number: int = 1) -> AsyncIterator[None]:
        """Holds permits, which belong to the engine's process. Raises Overloaded when fewer are left."""
        if not number:
            yield
            return
        asked = self.ask(messages.TakePermits(number))
        try:
            await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(partial(self._return_unused, number))
            raise
        try:
            yield
        finally:
            self._return_permits(number)

    def submit(self, receiver: Receiver, output_so_far: Sequence[int] = ()) -> None:
        """Submits a request. Raises Unhealthy while the engine takes none."""
        if not self.is_healthy:
            raise Unhealthy
        id = self._next_id
        self._next_id += 1
        receiver.bind(lambda: self._requests.cancel(id))
        self._requests[id] = RequestState(receiver)
        receiver.billing = asyncio.get_running_loop().create_future()
        self._unbilled[id] = receiver
        self._outputs[id] = [*output_so_far]
        self._submit(id)

    async def stalled_seconds(self) -> float:
        """Returns for how long no step has come back, though requests run; 0 while the engine's process is away."""
        return 0.0 if self._channel is None else float(await self.ask(messages.StalledSeconds()))

    def keep_waiting(self, seconds: float | None = None) -> None:
        """Lets requests wait for the whole of `max_downtime` again, which is `seconds` from now on: the next process of
        the engine, too, waits for shards that make progress in loading."""
        if seconds is not None:
            self._max_downtime = seconds
        if self._downtime is not None:
            self._downtime.cancel()
            self._downtime = asyncio.get_running_loop().call_later(self._max_downtime, self._expire)

    def give_up(self) -> None:
        """Fails all requests and questions with Unhealthy, and refuses new ones until the engine's process says that it
        takes some."""
        self.is_healthy = False
        self.changed.set()
        self._requests.fail_all(Unhealthy())
        for asked in self._questions.values():
            asked.settle(Unhealthy())

    def ask(self, ask: messages.Ask) -> asyncio.Future[Any]:
        """Returns the reply of the engine's process, or the error in it: Unhealthy, raised at once or later, if there
        is none for too long."""
        if self._channel is None and not self.is_healthy:
            raise Unhealthy
        asked = self._questions[self._next_question] = _Asked(ask, asyncio.get_running_loop().create_future())
        self._send(messages.Question(self._next_question, ask))
        self._next_question += 1
        return asked.reply

    def _return_unused(self, number: int, asked: asyncio.Future[Any]) -> None:
        """Returns permits that were granted after their client had left."""
        if asked.exception() is None:
            self._return_permits(number)

    def _return_permits(self, number: int) -> None:
        self._num_permits -= number
        self._send(messages.ReturnedPermits(number))

    def _submit(self, id: int, is_again: bool = False) -> None:
        request = self._requests[id].receiver.request
        if is_again and request.deadline is not None:
            request = replace(request, deadline=request.deadline.promised())
        if request.trace is not None:
            request = replace(request, trace=Trace(request.trace.context))
        self._send(messages.Submission(id, request, tuple(self._outputs[id])))

    def _finish(self, id: int, reason: FinishReason) -> None:
        """Forgets a request, and tells the engine's process that it has ended, if that can't know."""
        del self._outputs[id]
        self._deaths.pop(id, None)
        if reason not in _ENDED_THERE:
            self._send(messages.Cancellation(id))
        if self._channel is None:
            self._bill(id, Usage())

    def _bill(self, id: int, usage: Usage) -> None:
        """Takes in the usage of a request that has ended."""
        if (receiver := self._unbilled.pop(id, None)) is not None:
            receiver.usage = usage
            if receiver.billing is not None:
                receiver.billing.set_result(None)
                receiver.billing = None

    def _send(self, item: object) -> None:
        """Sends something, unless the engine's process is away: what the next one must know is in `_greet`."""
        if self._channel is not None:
            self._channel.send(item)

    def _greet(self) -> None:
        self._send(messages.Hello(self._num_permits, tuple(self.adapters), self.adapters.removed))
        self._requests.trace_replays()
        for id in self._requests:
            self._submit(id, is_again=True)
        self._questions = {number: asked for number, asked in self._questions.items() if not asked.reply.done()}
        for number, asked in self._questions.items():
            self._send(messages.Question(number, asked.ask))

    def _lose(self) -> None:
        log.error("the engine's process is gone, with %d requests of this one", len(self._requests))
        self._channel = None
        for id in self._unbilled.keys() - self._requests.keys():
            self._bill(id, Usage())
        self._give_up_deadly()
        self._known.clear()
        self.has_group = False
        self.changed.set()
        self._downtime = asyncio.get_running_loop().call_later(self._max_downtime, self._expire)

    def _give_up_deadly(self) -> None:
        """Fails the requests that may have caused the deaths of the engine's process."""
        self._deaths.update(self._requests.keys())
        for id in [id for id, deaths in self._deaths.items() if deaths >= MAX_DEATHS]:
            self._requests.fail(id, KilledGroup(
                f"Server error: {MAX_DEATHS} times in a row the engine's process died while it ran this request"))
        for asked in self._questions.values():
            asked.deaths += 1
            if isinstance(asked.ask, messages.StalledSeconds):
                asked.settle(0.0)
            elif asked.deaths >= MAX_DEATHS:
                asked.settle(RouterError())

    def _expire(self) -> None:
        self._downtime = None
        log.error("the engine's process is away for %g s: its requests fail", self._max_downtime)
        self.give_up()

    def _take(self, items: list[Any]) -> None:
        for item in items:
            if type(item) is not tuple:
                self._hear(item)
            elif len(item) == 3:
                self._deliver(Sampled(*item))
            else:
                self._note(*item)

    def _deliver(self, sampled: Sampled) -> None:
        if (output := self._outputs.get(sampled.sequence_id)) is not None:
            output.append(sampled.token_id)
            if self._deaths:
                self._deaths.pop(sampled.sequence_id, None)
            self._requests.deliver(sampled)

    def _note(self, id: int, what: object) -> None:
        """Takes a message that is rarer than a token. Messages of a request that has ended are dropped, but for the
        one of what it has used."""
        if isinstance(what, Usage):
            self._bill(id, what)
            return
        state = self._requests.get(id)
        if state is None:
            return
        receiver = state.receiver
        match what:
            case Sampled():
                self._deliver(what._replace(sequence_id=id))
            case messages.Began(at, hit_tokens):
                receiver.begin(at, hit_tokens)
            case messages.FoundAnswers(answers):
                self._requests.found(id, answers)
            case Verified():
                receiver.verified(what)
            case PromptLogprobsPart():
                receiver.take_prompt_logprobs(what)
            case Pooled():
                self._requests.pool(replace(what, sequence_id=id))
            case Other():
                receiver.take_other(what)
            case Note() if receiver.request.trace is not None:
                receiver.request.trace.notes.append(what)
            case RouterError():
                self._requests.fail(id, what)

    def _hear(self, item: object) -> None:
        match item:
            case messages.State():
                self._know(item)
            case messages.KnownAdapters():
                self.adapters.know(item)
            case messages.Poison(digest):
                self.poison.note(digest)
            case messages.Reply(number, value) if number in self._questions:
                self._settle(self._questions.pop(number), value)

    def _settle(self, asked: "_Asked", value: object) -> None:
        """Gives a reply to who has asked; permits for nobody go back."""
        if isinstance(asked.ask, messages.TakePermits) and not isinstance(value, Exception):
            self._num_permits += asked.ask.number
            if asked.reply.done():
                self._return_permits(asked.ask.number)
        asked.settle(value)

    def _know(self, state: messages.State) -> None:
        """Takes the engine's state in. Answers that are under way are given up if another model would go on with
        them."""
        known = getattr(self, "facts", state.facts)
        if conflicts := known.conflicts(state.facts):
            log.error("the engine's process came back with other facts, %s", ", ".join(conflicts))
            self._requests.fail_all(GenerationError("Server error: the server has another model than before"))
        self.facts, self.kinds, self.limits = state.facts, state.kinds, state.limits
        self.num_slots = state.num_slots
        self.is_healthy, self.has_group = state.is_healthy, state.has_group
        if self._downtime is not None:
            self._downtime.cancel()
            self._downtime = None
        self._known.set()
        self.changed.set()
