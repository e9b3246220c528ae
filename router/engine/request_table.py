"""The requests that have not ended, each with what the engine keeps of it beside its sequence."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.router.engine.stream import Ending, Event, Stream, Token
from penstock.router.errors import GenerationError, RouterError
from penstock.router.grammar.masking import Finding, Guide
from penstock.router.scheduling.plan import FinishReason, PromptLogprobsPart, Sampled
from penstock.router.text.text_path import TextPath

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Running:
    """A request, from its submission to its last event."""

    stream: Stream
    text: TextPath
    guide: Guide | None
    num_tokens: int
    """Generated, the output that the request came with included."""

    def next_event(self, sampled: Sampled) -> Event:
        """A token as the client sees it."""
        piece = self.text.push(sampled.token_id)
        self.num_tokens += 1
        reason = FinishReason.STOP_SEQUENCE if piece.is_stop else sampled.finish_reason
        return Event(
            Token(sampled.token_id, piece.text, sampled.logprob, piece.is_special, sampled.top_logprobs),
            Ending(reason, self.text.text, self.num_tokens) if reason else None)

    def take_prompt_logprobs(self, part: PromptLogprobsPart) -> None:
        """Put logprobs of the prompt in their place. Some may come again, when the prompt is computed again."""
        known, place = self.stream.prompt_logprobs, slice(part.start - 1, part.start - 1 + len(part.logprobs))
        known.logprobs[place] = part.logprobs
        if part.top_logprobs:
            known.top_logprobs[place] = part.top_logprobs


class Requests(dict[int, Running]):
    """By their sequences' ids. `finish` ends a sequence in the scheduler."""

    def __init__(self, finish: Callable[[int, FinishReason], None]) -> None:
        super().__init__()
        self._finish = finish

    def admitted(self, sequence_id: int, now: float, hit_tokens: int) -> None:
        """It begins to run, for the first time or again."""
        running = self.get(sequence_id)
        if running is not None and running.stream.started_at is None:
            running.stream.started_at = now
            running.stream.hit_tokens = hit_tokens

    def trace(self, sequence_id: int, name: str, **facts: int) -> None:
        """Note what happens to it, if it is traced."""
        running = self.get(sequence_id)
        if running is not None and (trace := running.stream.request.trace) is not None:
            trace.note(name, **facts)

    def trace_replays(self) -> None:
        """The group is gone: those that had begun to run are to run anew."""
        for sequence_id, running in self.items():
            if running.stream.started_at is not None:
                self.trace(sequence_id, "replay", generated_tokens=running.num_tokens)

    def deliver(self, sampled: Sampled) -> None:
        """Turn a token into text and hand it on, unless the request has ended. What fails here ends it alone."""
        running = self.get(sampled.sequence_id)
        if running is None:
            return
        try:
            event = running.next_event(sampled)
        except Exception as error:
            log.exception("request %d failed in the text path", sampled.sequence_id)
            self.fail(sampled.sequence_id, f"{type(error).__name__} in the text path")
            return
        running.stream.put(event)
        if event.ending is not None:
            self._end(sampled.sequence_id, event.ending.finish_reason)

    def settle(self, findings: Iterable[Finding]) -> dict[int, bytes]:
        """Deliver the tokens that grammars have seen; returns the masks of those that have not ended."""
        masks = {}
        for finding in findings:
            if finding.error is not None:
                self.fail(finding.sequence_id, f"the grammar can't be followed any further: {finding.error}")
            if finding.sampled is not None:
                self.deliver(finding.sampled)
            if finding.mask is not None and finding.sequence_id in self:
                masks[finding.sequence_id] = finding.mask
        return masks

    def guides(self, sequence_ids: Iterable[int]) -> list[Guide]:
        """Of those that have not ended."""
        return [running.guide for id in sequence_ids if (running := self.get(id)) and running.guide]

    def cancel(self, sequence_id: int) -> None:
        """The client has left."""
        if sequence_id in self:
            self._end(sequence_id, FinishReason.CANCELLED)

    def fail(self, sequence_id: int, cause: str) -> None:
        """End a request, unless it has ended."""
        running = self.get(sequence_id)
        if running is not None:
            running.stream.fail(GenerationError(cause))
            self._end(sequence_id, FinishReason.ERROR)

    def fail_all(self, error: RouterError) -> None:
        """Tell every client, before anything else can fail; then end the sequences."""
        for running in self.values():
            running.stream.fail(error)
        ended = [*self]
        self.clear()
        for sequence_id in ended:
            self._finish(sequence_id, FinishReason.ERROR)

    def _end(self, sequence_id: int, reason: FinishReason) -> None:
        del self[sequence_id]
        self._finish(sequence_id, reason)
