"""The choices of a chat: whole, or in chunks. Both come from the same deltas of the answer's text."""

from collections.abc import Sequence
from typing import Any

from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.openai.logprobs import token_logprobs
from penstock.router.api.openai.manner import Manner
from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta, Thinking
from penstock.router.engine.stream import Ending, Event, Token
from penstock.router.text.tokenizer import Tokenizer
from penstock.router.turns.turn_reader import TurnReader


class ChatChoice:
    """One of the answers to a conversation."""

    def __init__(self, reader: TurnReader, body: ChatBody, tokenizer: Tokenizer, manner: Manner) -> None:
        self._reader = reader
        self._answer = reader.answer
        self._body = body
        self._tokenizer = tokenizer
        self._manner = manner
        self._has_role = True
        is_for_tgis_client = body.model in (None, "tgi")
        self._repeats_role = manner.is_tgi or is_for_tgis_client
        self._no_calls = {"tool_calls": None} if is_for_tgis_client and not manner.is_tgi else {}
        self._tokens: list[Token] = []
        """The tokens that no chunk has told of yet."""
        self._deltas: list[Delta] = []

    def note(self, event: Event) -> None:
        """Takes the next event of an answer that is sent whole."""
        self._tokens.append(event.token)
        self._deltas += self._read(event)

    @property
    def num_tokens(self) -> int:
        """How many of the answer's tokens have come."""
        return self._reader.num_tokens

    @property
    def num_thinking_tokens(self) -> int:
        """How many of them are thoughts."""
        return self._reader.num_thinking_tokens

    @property
    def has_ended(self) -> bool:
        """Whether the answer has come; a beam search may find fewer than were asked for."""
        return self._answer.ending is not None

    def whole(self) -> dict[str, Any]:
        """Returns the choice with all events that were noted."""
        contents = [delta.text for delta in self._deltas if isinstance(delta, Content)]
        calls = [self._begin_call(delta) for delta in self._deltas if isinstance(delta, CallBegin)]
        for delta in self._deltas:
            if isinstance(delta, Arguments):
                calls[delta.index]["function"]["arguments"] += delta.text
        refusal = {} if self._manner.is_tgi else {"refusal": None}
        message: dict[str, Any] = {"role": "assistant", "content": "".join(contents), **refusal}
        message.update(_thoughts("".join(delta.text for delta in self._deltas if isinstance(delta, Thinking))))
        if calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = [{key: call[key] for key in ("id", "type", "function")} for call in calls]
        assert self._answer.ending is not None
        return self._render({"message": message}, self._tokens, self._reason(self._answer.ending), is_first=True)

    def chunks(self, event: Event) -> list[dict[str, Any]]:
        """Returns the chunks that the next event brings, a delta each; none while it is not known if a call begins. An
        event of an answer that can't call has one chunk, so that clients know the tokens that they have.

        The last one has the reason to end. Logprobs come with the next chunk there is. The first has the role; to TGI's
        clients, which ask for the model `tgi`, each has it, and null where it has no calls, for `text_generation`
        needs both, while OpenAI's client joins all that come.
        """
        is_first = not self.num_tokens
        self._tokens.append(event.token)
        deltas = [self._render_delta(delta) for delta in self._read(event) if not isinstance(delta, CallEnd)]
        if len(deltas) > 1 and self._reader.form.is_plain:
            deltas = [_joined(deltas)]
        if not deltas and (self._reader.form.is_plain or event.ending is not None):
            deltas.append(self._render_delta(Content("")))
        chunks = []
        for number, delta in enumerate(deltas, 1):
            reason = None
            if event.ending is not None and number == len(deltas):
                reason = self._reason(event.ending)
            chunks.append(self._render({"delta": delta}, self._tokens, reason, is_first))
            self._tokens, is_first = [], False
        return chunks

    def _read(self, event: Event) -> list[Delta]:
        """Returns the parts that the next event decides, without thoughts that are not wanted."""
        deltas = self._reader.read(event)
        if self._body.include_reasoning is False:
            return [delta for delta in deltas if not isinstance(delta, Thinking)]
        return deltas

    def _render(
        self, content: dict[str, Any], tokens: Sequence[Token], reason: str | None, is_first: bool
    ) -> dict[str, Any]:
        choice = {"index": self._answer.index, **content, "logprobs": None, "finish_reason": reason}
        if self._body.logprobs:
            refusal = {} if self._manner.is_tgi else {"refusal": None}
            told = [token_logprobs(self._tokenizer, token, self._body.top_logprobs or 0,
                                   by_ids=bool(self._body.return_tokens_as_token_ids)) for token in tokens]
            choice["logprobs"] = {"content": told, **refusal}
        if self._body.return_token_ids:
            choice["token_ids"] = [token.id for token in tokens]
            choice["prompt_token_ids"] = self._answer.request.input_ids if is_first else None
        return choice

    def _reason(self, ending: Ending) -> str:
        reason = self._manner.reason(ending, has_calls=self._reader.num_calls > 0)
        self._answer.told(reason)
        return reason

    def _render_delta(self, delta: Delta) -> dict[str, Any]:
        rendered: dict[str, Any] = {"role": "assistant"} if self._has_role else {}
        self._has_role = self._repeats_role
        match delta:
            case Thinking():
                rendered.update(_thoughts(delta.text))
                if self._no_calls:
                    rendered.update({"content": "", **self._no_calls})
            case Content():
                rendered.update({"content": delta.text, **self._no_calls})
            case CallBegin():
                rendered["tool_calls"] = [self._begin_call(delta)]
            case Arguments():
                rendered["tool_calls"] = [{"index": delta.index, "function": {"arguments": delta.text}}]
        return rendered

    def _begin_call(self, begin: CallBegin) -> dict[str, Any]:
        return {"index": begin.index, "id": self._reader.call_id(begin), "type": "function",
                "function": {"name": begin.name, "arguments": ""}}


def _thoughts(text: str) -> dict[str, str]:
    """Returns thoughts under both of the names that clients read."""
    return {"reasoning_content": text, "reasoning": text} if text else {}


def _joined(deltas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns several deltas as one."""
    joined: dict[str, Any] = {}
    for delta in deltas:
        for key, value in delta.items():
            both = isinstance(value, str) and key in joined and key != "role"
            joined[key] = joined[key] + value if both else value
    return joined
