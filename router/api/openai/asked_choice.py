"""A chat's choice with all that its request asks of the form: the text that it continues, and calls in the old form."""

from typing import Any

from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.openai.chat_choice import ChatChoice
from penstock.router.api.openai.functions import in_old_form
from penstock.router.api.openai.manner import Manner
from penstock.router.engine.stream import Event
from penstock.router.text.tokenizer import Tokenizer
from penstock.router.turns.turn_reader import TurnReader


class AskedChoice(ChatChoice):
    """Begins with the last message where that is to be echoed, and has `function_call` for who offers `functions`."""

    def __init__(self, reader: TurnReader, body: ChatBody, tokenizer: Tokenizer, manner: Manner) -> None:
        super().__init__(reader, body, tokenizer, manner)
        self._is_old = bool(body.functions)
        self._echo = _echoed(body)

    def whole(self) -> dict[str, Any]:
        """Returns the choice with all events that were noted."""
        return self._told(super().whole(), "message")

    def chunks(self, event: Event) -> list[dict[str, Any]]:
        """Returns the chunks that the next event brings; the first of all has the echo."""
        return [self._told(chunk, "delta") for chunk in super().chunks(event)]

    def _told(self, choice: dict[str, Any], place: str) -> dict[str, Any]:
        if self._echo:
            choice[place]["content"] = self._echo + (choice[place].get("content") or "")
            self._echo = ""
        return in_old_form(choice) if self._is_old else choice


def _echoed(body: ChatBody) -> str:
    """Returns the last message's text if the answer is to begin with it: if it is the assistant's, too, as in vLLM."""
    last = body.messages[-1]
    if not body.echo or last.role != "assistant" or last.content is None:
        return ""
    if isinstance(last.content, str):
        return last.content
    return "".join(part.text or "" for part in last.content)
