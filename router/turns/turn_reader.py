"""Reads one answer to a turn: from its events to the parts that each API writes in its own way."""

import hashlib
import string

from penstock.router.chat.answer_form import AnswerForm
from penstock.router.chat.deltas import CallBegin, Delta
from penstock.router.chat.harmony_parser import HarmonyParser
from penstock.router.chat.thinking_parser import ThinkingParser
from penstock.router.engine.stream import Event
from penstock.router.generation.answer import Answer

_ALPHABET = string.ascii_letters + string.digits


class TurnReader:
    """Takes the events of one answer. What it returns follows from the answer's tokens and its `name` alone, so that a
    stream that goes on elsewhere has the same parts, and the same ids of calls."""

    def __init__(self, answer: Answer, form: AnswerForm, name: str) -> None:
        self.answer = answer
        self.form = form
        self.num_tokens = 0
        self.num_thinking_tokens = 0
        """The number of tokens between the marks of the thinking."""
        self.num_calls = 0
        self._name = name
        self._parser = form.parser()
        self._thinker = self._parser if isinstance(self._parser, ThinkingParser | HarmonyParser) else None
        self._num_held = 0
        """The number of the last tokens that may be the mark behind the thinking."""
        self._num_given = 0
        """The number of characters of the answer that have come with its events."""

    def read(self, event: Event) -> list[Delta]:
        """Takes the answer's next event; returns the parts that it decides, often none."""
        self.num_tokens += 1
        text = event.token.text if event.ending is None else event.ending.text[self._num_given:]
        self._num_given += len(text)
        deltas = self._parser.push(text) if self._thinker is None else self._push(text, self._thinker)
        if event.ending is not None:
            deltas += self._parser.finish()
        if deltas and not self.form.is_plain:
            self.num_calls += sum(isinstance(delta, CallBegin) for delta in deltas)
        return deltas

    def _push(self, text: str, thinker: ThinkingParser | HarmonyParser) -> list[Delta]:
        """Parses the next token's text, and counts the token if it is thought: if it begins before a mark does."""
        was_thinking = thinker.is_thinking
        deltas = thinker.push(text)
        if was_thinking:
            self._num_held = self._num_held + 1 if thinker.is_thinking else 0
            if len(text) > thinker.num_held or not thinker.num_held:
                self.num_thinking_tokens += self._num_held
                self._num_held = 0
        return deltas

    def call_id(self, begin: CallBegin) -> str:
        """Returns the id of a call: the one that the model wrote, or one that follows from the answer's name."""
        if begin.id is not None:
            return begin.id
        digest = hashlib.sha256(f"{self._name}.{begin.index}".encode())
        if self.form.calls is not None and self.form.calls.has_short_ids:
            return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest.digest()[:9])
        return f"call_{digest.hexdigest()[:24]}"
