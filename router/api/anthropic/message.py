"""An answer as Anthropic has it: the events of a stream, of which a whole message is made, too."""

from collections.abc import Iterator
from typing import Any

from penstock.router.api.anthropic.blocks import Blocks, Event
from penstock.router.engine.stream import Ending
from penstock.router.engine.stream import Event as TokenEvent
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.turns.turn_reader import TurnReader

_NO_ENTRIES = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}


class MessageEvents:
    """Makes the events of one answer. They follow from its tokens alone, but for the tokens that were found in the
    cache."""

    def __init__(self, reader: TurnReader, head: dict[str, Any], max_tokens: int, shows_thoughts: bool) -> None:
        """`head` has the message's fields that are known before, among them its id; `max_tokens` is what was asked."""
        self._reader = reader
        self._head = head
        self._max_tokens = max_tokens
        self._blocks = Blocks(reader.call_id, shows_thoughts)

    def events(self, event: TokenEvent) -> Iterator[Event]:
        """Yields the events that the answer's next token brings; with the first the message begins, and it ends with
        the last."""
        if not self._reader.num_tokens:
            yield {"type": "message_start", "message": self._begun()}
        yield from self._blocks.push(self._reader.read(event))
        if event.ending is not None:
            yield from self._blocks.close()
            yield from self._end(event.ending)

    def _begun(self) -> dict[str, Any]:
        usage = {**self._usage(), "cache_creation": _NO_ENTRIES, "service_tier": "standard"}
        return {"type": "message", "role": "assistant", **self._head, "content": [], "stop_reason": None,
                "stop_sequence": None, "usage": usage}

    def _end(self, ending: Ending) -> Iterator[Event]:
        reason = self._stop_reason(ending)
        self._reader.answer.told(reason)
        yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": ending.stop},
               "usage": self._usage()}
        yield {"type": "message_stop"}

    def _stop_reason(self, ending: Ending) -> str:
        match ending.finish_reason:
            case FinishReason.LENGTH:
                return "max_tokens" if ending.num_tokens >= self._max_tokens else "model_context_window_exceeded"
            case FinishReason.STOP_SEQUENCE if ending.stop is not None:
                return "stop_sequence"
        return "tool_use" if self._blocks.num_whole_calls else "end_turn"

    def _usage(self) -> dict[str, Any]:
        """Returns the usage so far. Tokens that were found in the cache are no input tokens; nothing is told as the
        making of an entry, for the cache keeps all that is computed by itself."""
        answer, reader = self._reader.answer, self._reader
        num_cached = answer.hit_tokens
        thinks = reader.form.thinking is not None
        thoughts = {"output_tokens_details": {"thinking_tokens": reader.num_thinking_tokens}} if thinks else {}
        return {"input_tokens": len(answer.request.input_ids) - num_cached, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": num_cached, "output_tokens": reader.num_tokens, **thoughts}
