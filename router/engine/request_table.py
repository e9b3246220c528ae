"""The table of the requests that have not ended, with the state that the engine keeps for each."""

import logging
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from penstock.contract.plan import Plan
from penstock.router.engine.beams import Beams
from penstock.router.engine.pooled_stream import is_finite
from penstock.router.engine.receiver import Receiver
from penstock.router.engine.request import Request
from penstock.router.errors import GenerationError, RouterError
from penstock.router.grammar.beam_cursor import BeamCursor
from penstock.router.grammar.cursor import GrammarCursor, MaskResult
from penstock.router.scheduling.beam_search import FoundAnswer
from penstock.router.scheduling.confirmed import Candidates, Pooled, Sampled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.guesser import Guesser

log = logging.getLogger(__name__)

_WHOLE = (FinishReason.LENGTH, FinishReason.EOS_TOKEN, FinishReason.STOP_SEQUENCE)


@dataclass(slots=True)
class RequestState:
    """The state of one request from its submission to its last event, apart from its sequence in the scheduler."""

    receiver: Receiver
    cursor: GrammarCursor | None = None
    guesser: Guesser | None = None
    beams: Beams | None = None
    left_at: float | None = None
    """Since when the answer pauses, of `time.monotonic`, if it has moved here and no token has come yet."""
    taken_at: float = field(default_factory=time.monotonic)

    def paused_since(self, lost_at: float | None) -> float:
        """Returns since when the answer pauses that leaves now; `lost_at` is when the group was lost, if it is."""
        if self.left_at is not None:
            return self.left_at
        return time.monotonic() if lost_at is None else max(lost_at, self.taken_at)


class RequestTable(dict[int, RequestState]):
    """Maps sequence ids to the states of their requests; all beams of a search have one state. `finish` ends a sequence
    in the scheduler; `resumed` is told for how many seconds an answer has paused that has moved here, and `answered`
    how many seconds are left of the deadline of an answer that is whole."""

    def __init__(
        self, finish: Callable[[int, FinishReason], None], resumed: Callable[[float], None] = lambda seconds: None,
        answered: Callable[[float], None] = lambda left: None,
    ) -> None:
        super().__init__()
        self._finish = finish
        self._resumed = resumed
        self._answered = answered

    @property
    def each(self) -> list[tuple[int, RequestState]]:
        """All requests, each once, with the id of a sequence."""
        return [(id, state) for id, state in self.items() if state.beams is None or state.beams.ids[0] == id]

    @property
    def number(self) -> int:
        """How many requests have not ended."""
        return len({id(state) for state in self.values()})

    def planned(self, plan: Plan, now: float) -> None:
        """Notes which requests begin to run, which is no news after a preemption or a loss, and which are preempted."""
        for each in plan.admitted:
            log.debug("sequence %d begins to run in step %d, with %d cached tokens", each.sequence_id, plan.step_id,
                      each.hit_tokens)
            if (state := self.get(each.sequence_id)) is not None:
                state.receiver.begin(now, each.hit_tokens)
        for sequence_id, start, count in plan.chunks:
            self.trace(sequence_id, "prefill_chunk", start=start, tokens=count)
        for sequence_id in plan.preempted:
            log.debug("sequence %d lets go of its blocks before step %d", sequence_id, plan.step_id)
            self.trace(sequence_id, "preempted")

    def trace(self, sequence_id: int, name: str, **facts: int) -> None:
        """Notes an event in the request's trace, if the request is traced."""
        if (state := self.get(sequence_id)) is not None:
            state.receiver.note(name, **facts)

    def trace_replays(self) -> None:
        """Notes in the traces of all requests that had begun to run that they will be computed again."""
        for sequence_id, state in self.each:
            if state.receiver.started_at is not None:
                number = state.receiver.num_tokens if state.beams is None else state.beams.length
                self.trace(sequence_id, "replay", generated_tokens=number)

    def deliver(self, sampled: Sampled) -> None:
        """Gives a token to its receiver; an exception on the way ends this request alone.

        Does nothing if the request has ended.
        """
        state = self.get(sampled.sequence_id)
        if state is None:
            return
        self._goes_on(state)
        try:
            reason = state.receiver.push(sampled)
        except Exception as error:
            self._fail_in_text(sampled.sequence_id, error)
            return
        if reason is not None:
            self._end(sampled.sequence_id, reason)

    def pool(self, pooled: Pooled) -> None:
        """Gives a part of a vector or scores to its receiver; an exception on the way ends this request alone. Does
        nothing if the request has ended."""
        state = self.get(pooled.sequence_id)
        if state is None:
            return
        self._goes_on(state)
        request = state.receiver.request
        if request.pooling is not None and not is_finite(pooled.value, request.pooling.task):
            self.fail_nan(pooled.sequence_id)
            return
        try:
            state.receiver.take_pooled(pooled)
        except Exception as error:
            log.error("what was made of request %d can't be read", pooled.sequence_id, exc_info=error)
            self.fail(pooled.sequence_id, GenerationError(f"{type(error).__name__} in the shards' result"))
            return
        if pooled.finish_reason is not None:
            self._end(pooled.sequence_id, pooled.finish_reason)

    def consider(self, found: Candidates) -> None:
        """Gives candidates to the search of their beam. Once all are there it goes on, or its answers end the request.
        An exception on the way ends this request alone."""
        state = self[found.sequence_id]
        assert state.beams is not None
        if not state.beams.take(found):
            return
        before = state.beams.ids
        try:
            answers = state.beams.advance()
        except Exception as error:
            log.exception("request %d failed in its beam search", found.sequence_id)
            state.receiver.fail(GenerationError(f"{type(error).__name__} in the beam search"))
            for sequence_id in {*before, *state.beams.ids}:  # some beams may have changed before, and others not yet
                self.pop(sequence_id, None)
                self._finish(sequence_id, FinishReason.ERROR)
            return
        if answers is not None:
            self.found(found.sequence_id, answers)
            return
        self._goes_on(state)
        for sequence_id in before:
            del self[sequence_id]
        self.update(dict.fromkeys(state.beams.ids, state))

    def found(self, sequence_id: int, answers: Items[FoundAnswer]) -> None:
        """Gives its answers to the receiver of a beam search, which end it; an exception on the way ends this request
        alone. Does nothing if the request has ended."""
        state = self.get(sequence_id)
        if state is None:
            return
        self._goes_on(state)
        if not answers:
            self.fail(sequence_id, GenerationError("Server error: no answer follows the grammar any further"))
            return
        try:
            state.receiver.take_answers(answers)
        except Exception as error:
            self._fail_in_text(sequence_id, error)
            return
        self._end(sequence_id, answers[0].finish_reason)

    def _fail_in_text(self, sequence_id: int, error: Exception) -> None:
        log.error("request %d failed in the text path", sequence_id, exc_info=error)
        self.fail(sequence_id, GenerationError(f"{type(error).__name__} in the text path"))

    def _goes_on(self, state: RequestState) -> None:
        """Notes for how long an answer has paused that has moved here."""
        if state.left_at is not None:
            self._resumed(time.monotonic() - state.left_at)
            state.left_at = None

    def settle(self, results: Iterable[MaskResult]) -> dict[int, bytes]:
        """Delivers the tokens that the grammars have accepted; returns the masks of requests that have not ended."""
        masks = {}
        for result in results:
            if result.error is not None:
                self.fail(result.sequence_id, GenerationError(
                    f"the grammar can't be followed any further: {result.error}"))
            if result.sampled is not None:
                self.deliver(result.sampled)
            if result.sampled is not None and (state := self.get(result.sequence_id)) and state.guesser:
                state.guesser.force(result.forced)
            if result.masks is not None and result.sequence_id in self:
                masks[result.sequence_id] = result.masks
        return masks

    def cursors(
        self, masked: Iterable[tuple[int, int, tuple[int, ...]]]
    ) -> list[tuple[GrammarCursor | BeamCursor, tuple[int, ...]]]:
        """Returns the grammar cursors and the drafts of a plan's `masked` rows, of those requests that have not ended.
        """
        return [(cursor, drafts) for _, id, drafts in masked if (cursor := self._cursor(id))]

    def _cursor(self, sequence_id: int) -> GrammarCursor | BeamCursor | None:
        state = self.get(sequence_id)
        if state is None:
            return None
        return state.cursor if state.beams is None else state.beams.cursor(sequence_id)

    def leaving(self, sequence_ids: Items[int]) -> list[tuple[int, Request]]:
        """Returns those of the requests that have all of their sequences among these, in the order of these, each with
        the id of one."""
        able = {*sequence_ids}
        return [(id, state.receiver.request) for id in sequence_ids if (state := self.get(id)) and (
            state.beams is None or (state.beams.ids[0] == id and able.issuperset(state.beams.ids)))]

    def remove(self, sequence_id: int) -> RequestState:
        """Takes a request out, with all of its sequences, which go on in the scheduler."""
        state = self[sequence_id]
        for id in (sequence_id,) if state.beams is None else state.beams.ids:
            del self[id]
        return state

    def cancel(self, sequence_id: int) -> None:
        """Ends a request whose client has left."""
        if sequence_id in self:
            self._end(sequence_id, FinishReason.CANCELLED)

    def fail(self, sequence_id: int, error: RouterError) -> None:
        """Ends a request with an error. Does nothing if the request has ended."""
        state = self.get(sequence_id)
        if state is not None:
            state.receiver.fail(error)
            self._end(sequence_id, FinishReason.ERROR)

    def fail_nan(self, sequence_id: int) -> None:
        """Ends a request for which the model computed something that is not a number."""
        log.error("request %d fails: the model computed something that is not a number (NaN)", sequence_id)
        self.fail(sequence_id, GenerationError("Server error: the model computed something that is not a number (NaN)"))

    def adapters(self) -> set[int]:
        """Returns the numbers of the adapters that are to answer requests."""
        adapters = (state.receiver.request.adapter for state in self.values())
        return {adapter.number for adapter in adapters if adapter is not None}

    def fail_adapter(self, number: int, error: RouterError) -> None:
        """Ends all requests that an adapter is to answer with an error."""
        for sequence_id, state in list(self.items()):
            adapter = state.receiver.request.adapter
            if adapter is not None and adapter.number == number:
                self.fail(sequence_id, error)

    def fail_bound(self, bits: tuple[str, ...]) -> int:
        """Ends all requests that need other bits than these, which the group computes now; returns how many go on that
        were to have others."""
        others = [(sequence_id, state.receiver.request) for sequence_id, state in self.each
                  if state.receiver.request.bits not in ((), bits)]
        for sequence_id, request in others:
            if request.needs_bits:
                self.fail(sequence_id, GenerationError(
                    "Server error: the group has other kernels or number formats now, by which the answer that was "
                    "begun would go on as another one"))
        return sum(not request.needs_bits for _, request in others)

    def fail_all(self, error: RouterError) -> None:
        """Tells every client of the error before anything else can fail, then ends the sequences."""
        for _, state in self.each:
            state.receiver.fail(error)
        ended = [*self]
        self.clear()
        for sequence_id in ended:
            self._finish(sequence_id, FinishReason.ERROR)

    def _end(self, sequence_id: int, reason: FinishReason) -> None:
        state = self.remove(sequence_id)
        beams, deadline = state.beams, state.receiver.request.deadline
        if deadline is not None and reason in _WHOLE:
            self._answered(deadline.due_at - time.monotonic())
        for id in (sequence_id,) if beams is None else beams.ids:
            self._finish(id, reason)
