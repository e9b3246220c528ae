"""The router's parts with eyes in them: they do what theirs do, and see that nothing happens that must not."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.router.engine.engine import Engine
from penstock.router.engine.receiver import Receiver
from penstock.router.engine.stream import Queue, Stream
from penstock.router.engine.text_path import TextPath
from penstock.router.engine.transfer import Transfer
from penstock.router.errors import RouterError
from penstock.router.fleet.errors import FleetError
from penstock.router.groups.groups import Groups
from penstock.router.scheduling.confirmed import PromptLogprobsPart, Sampled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.sequence import Status
from tests.router.groups.simulation.asking import Expected
from tests.router.groups.simulation.oracle import Truth, begin

if TYPE_CHECKING:
    from penstock.router.engine.request import Request
    from tests.router.groups.simulation.judge import Judge


class WatchedStream(Stream):
    """Compares each token with the one that must come, before anything else sees it. `serial` counts the requests of
    all clients in the order in which the router took them."""

    def __init__(self, judge: "Judge", expected: Expected, request: "Request", text: TextPath, queue: Queue,
                 serial: int, is_guessed: bool) -> None:
        super().__init__(request, text, queue, is_guessed=is_guessed)
        self.judge = judge
        self.expected = expected
        self.serial = serial
        self.owner: WatchedEngine | None = None
        """The engine that runs it."""
        self.weights = ""
        """Those that began the answer."""
        self.is_ended = False
        self.num_solo_deaths = 0
        self.cleared_at = 0
        self.due_at: float | None = None
        """When its next token must have come, if it moved and all is well where it is."""

    @property
    def is_poison(self) -> bool:
        return self.expected.ask.kills_at is not None

    @property
    def label(self) -> str:
        return f"request {self.expected.ask.number}.{self.expected.branch}"

    def model(self) -> tuple[str, str, str]:
        """Returns what computes it now."""
        assert self.owner is not None
        facts, adapter = self.owner.facts, self.request.adapter
        return facts.weights_digest, facts.numerics, adapter.digest if adapter else "a0"

    def feed(self, token_id: int, reason: FinishReason | None) -> FinishReason | None:
        self.expected.output.append(token_id)
        reason = super().feed(token_id, reason)
        self.is_ended = reason is not None
        return reason

    def push(self, sampled: Sampled) -> FinishReason | None:
        self.judge.pushed(self, sampled)
        reason = super().push(sampled)
        if self.num_tokens >= self.cleared_at:
            self.num_solo_deaths = 0
        if reason is not None:
            self.is_ended, self.owner = True, None
        self.judge.check(reason is self.expected.ask.ending(self.expected.output), lambda: (
            f"{self.label} ends with {reason} behind {self.num_tokens} tokens"))
        return reason

    def take_prompt_logprobs(self, part: PromptLogprobsPart) -> None:
        super().take_prompt_logprobs(part)
        truth = Truth(begin(*self.model()), self.request.input_ids).prompt_logprobs(len(self.request.input_ids))
        self.judge.check([*part.logprobs] == truth[part.start - 1:part.start - 1 + len(part.logprobs)],
                         lambda: f"{self.label} gets other prompt logprobs")

    def fail(self, error: RouterError) -> None:
        self.judge.failed(self, error)
        self.is_ended, self.owner = True, None
        super().fail(error)


class WatchedEngine(Engine):
    """Sees who is taken and released, and counts whom deaths can be blamed on."""

    judge: "Judge"
    away_since = 0.0

    async def run(self) -> None:
        self.away_since = asyncio.get_running_loop().time()
        await super().run()

    def take(self, transfer: Transfer) -> None:
        super().take(transfer)
        stream: Any = transfer.receiver
        self.judge.taken(self, stream, transfer)

    def release(self, sequence_id: int) -> Transfer:
        transfer = super().release(sequence_id)
        self.judge.released(self, transfer)
        return transfer

    def _lose(self, error: FleetError) -> None:
        if not error.is_outside and not self.is_stuck:
            self._blame()
        if self.has_group:
            self.away_since = asyncio.get_running_loop().time()
        self.judge.lost(self)
        super()._lose(error)

    def look(self, step_limit: float) -> None:
        if not self.is_stuck and self._in_flight.are_late(step_limit):
            self._blame()
            self.judge.stuck(self)
        super().look(step_limit)

    def _blame(self) -> None:
        """Counts for whom it is one more death, or one that looks so, with nothing else in flight."""
        named = {sequence for _, rows, _ in self._scheduler._in_flight for sequence, _ in rows
                 if sequence.status is not Status.FINISHED}
        for sequence in named:
            stream: Any = self._requests[sequence.id].receiver
            stream.num_solo_deaths = stream.num_solo_deaths + 1 if len(named) == 1 else 0
            stream.cleared_at = len(sequence.tokens) - sequence.prompt_length + max(1, sequence.promised)

    def streams(self) -> list[WatchedStream]:
        """Returns the requests that it runs, and those that wait in it."""
        return [state.receiver for state in self._requests.values()]  # type: ignore[misc]


class WatchedGroups(Groups):
    """Has the judge look at all groups after each change."""

    judge: "Judge"

    def submit(self, receiver: Receiver, output_so_far: Sequence[int] = ()) -> None:
        try:
            super().submit(receiver, output_so_far)
        except RouterError as error:
            self.judge.refused(receiver, error)  # type: ignore[arg-type]
            raise

    def note(self) -> None:
        super().note()
        self.judge.noted()
