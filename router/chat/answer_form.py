"""The form in which an answer is written: how it thinks, how it calls tools, and which it may call."""

from dataclasses import dataclass

from penstock.router.chat.deltas import AnswerParser, Content, Delta
from penstock.router.chat.harmony_parser import HarmonyParser
from penstock.router.chat.thinking_format import ThinkingFormat
from penstock.router.chat.thinking_parser import ThinkingParser
from penstock.router.chat.tools.call_format import CallFormat
from penstock.router.chat.tools.offer import Offer
from penstock.router.chat.tools.parser import CallParser


class TextParser:
    """Parses answers that are text alone."""

    def push(self, piece: str) -> list[Delta]:
        return [Content(piece)] if piece else []

    def finish(self) -> list[Delta]:
        return []


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of one answer. `calls` tells how calls are written, and `offer` which tools may be called; both are None
    if there can't be any calls. `thinking` tells how thoughts are marked, None if there can't be any; if `is_thinking`
    the answer begins with them, for the prompt has the mark."""

    calls: CallFormat | None = None
    offer: Offer | None = None
    thinking: ThinkingFormat | None = None
    is_thinking: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the answer is thoughts and text alone, so that each of its tokens has an event of its own."""
        return self.calls is None

    def parser(self) -> AnswerParser:
        """Returns a new parser of one answer."""
        if self.thinking is not None and self.thinking.has_channels:
            return HarmonyParser(self.offer, self.is_thinking)
        answer: AnswerParser = TextParser() if self.calls is None else CallParser(self.calls, self.offer)
        return answer if self.thinking is None else ThinkingParser(self.thinking, self.is_thinking, answer)


PLAIN_FORM = AnswerForm()
