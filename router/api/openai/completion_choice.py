"""The choices of OpenAI's completions: whole, or a chunk a token."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.contract.row_result import TopLogprobs
from penstock.router.api.openai.bodies import CompletionBody
from penstock.router.api.openai.completion_spec import echoes_logprobs, is_prompt_only
from penstock.router.api.openai.logprobs import name_of
from penstock.router.api.openai.manner import Manner
from penstock.router.engine.stream import Event, Token
from penstock.router.generation.answer import Answer
from penstock.router.generation.float32 import shortest_float32
from penstock.router.text.detokenizer import Detokenizer
from penstock.router.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _TokenLogprob:
    """A token of a choice: its place in the choice's text, and its logprobs. The first of a prompt has none."""

    id: int
    offset: int
    logprob: float | None
    top_logprobs: TopLogprobs = ()


class Prompt:
    """The beginning of the choices of one prompt, if it is to be repeated: its text and its logprobs.

    `answer` is the one that the logprobs come with.
    """

    def __init__(self, prompt: str | tuple[int, ...], answer: Answer, body: CompletionBody, tokenizer: Tokenizer
                 ) -> None:
        text = prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
        self.text = text if body.echo else ""
        self.logprobs: dict[str, Any] = {}
        """The prompt's logprobs as completions have them, if they are asked for, once they are `read`."""
        self._answer = answer
        self._body = body
        self._tokenizer = tokenizer

    async def read(self) -> None:
        """Reads the logprobs when the answer's first event has come; once, and in a thread, for there may be 100,000
        tokens."""
        if echoes_logprobs(self._body) and not self.logprobs:
            self.logprobs = await asyncio.to_thread(
                lambda: _render_logprobs(list(self._prompt_tokens()), self._body, self._tokenizer))

    def _prompt_tokens(self) -> Iterator[_TokenLogprob]:
        """Yields the prompt's tokens; special tokens that the tokenizer adds have no place in the prompt's text."""
        ids, known = self._answer.request.input_ids, self._answer.prompt_logprobs
        detokenizer, offset = Detokenizer(self._tokenizer.decode), 0
        logprobs = None, *known.logprobs
        tops = ((), *known.top_logprobs) if known.top_logprobs else ((),) * len(ids)
        for token_id, logprob, top in zip(ids, logprobs, tops, strict=True):
            yield _TokenLogprob(token_id, offset, logprob, top)
            text = detokenizer.push(token_id)
            if self.text.startswith(text, offset):
                offset += len(text)


class Choice:
    """One of the answers to a completion. `index` counts the choices of all prompts.

    It begins with its prompt, which has been read when the first part of the choice is made.
    """

    def __init__(
        self, index: int, answer: Answer, prompt: Prompt, body: CompletionBody, tokenizer: Tokenizer, manner: Manner
    ) -> None:
        self.index = index
        self.num_tokens = 0
        self._answer = answer
        self.prompt = prompt
        self._body = body
        self._tokenizer = tokenizer
        self._manner = manner
        self._no_reason = manner.no_reason
        self._is_prompt_only = is_prompt_only(body)
        self._has_logprobs = body.logprobs is not None
        self._is_plain = not (body.echo or self._has_logprobs or body.return_token_ids)
        self._num_given = 0
        """The number of characters of the answer that have been given."""

    def whole(self, tokens: list[Token]) -> dict[str, Any]:
        """Returns the choice with all of the answer."""
        ending = self._answer.ending
        assert ending is not None
        self._answer.told(reason := "length" if self._is_prompt_only else self._manner.reason(ending))
        if self._is_prompt_only:
            return self._render([], "", reason, is_first=True)
        self.num_tokens = ending.num_tokens
        return self._render(tokens, ending.text, reason, is_first=True)

    def chunk(self, event: Event) -> dict[str, Any]:
        """Returns a chunk with the next token. The last has what was held for a stop string, and the reason to end."""
        token, ending = event.token, event.ending
        is_first, reason = not self.num_tokens, self._no_reason
        text = token.text
        self.num_tokens += 1
        if ending is not None:
            text, reason = ending.text[self._num_given:], self._manner.chunk_reason(ending)
            self._answer.told(reason)
        if self._is_plain:
            self._num_given += len(token.text)
            return {"index": self.index, "text": text, "logprobs": None, "finish_reason": reason}
        if self._is_prompt_only:
            self.num_tokens = 0
            return self._render([], "", reason, is_first=True)
        return self._render([token], text, reason, is_first)

    def _render(self, tokens: Sequence[Token], text: str, reason: str | None, is_first: bool) -> dict[str, Any]:
        """Returns a choice with `tokens` and their `text`; the first begins with the prompt."""
        choice: dict[str, Any] = {
            "index": self.index, "text": self.prompt.text * is_first + text, "logprobs": None, "finish_reason": reason}
        own = self._answer_tokens(tokens)
        if self._has_logprobs:
            choice["logprobs"] = _render_logprobs(own, self._body, self._tokenizer)
            if is_first and self.prompt.logprobs:
                choice["logprobs"] = _joined(self.prompt.logprobs, choice["logprobs"])
        if self._body.return_token_ids:
            choice["token_ids"] = [token.id for token in tokens]
            choice["prompt_token_ids"] = self._answer.request.input_ids if is_first else None
        return choice

    def _answer_tokens(self, tokens: Sequence[Token]) -> list[_TokenLogprob]:
        """Returns tokens with their places; one whose text is held for a stop string stands where the given text
        ends."""
        found = []
        for token in tokens:
            offset = len(self.prompt.text) + self._num_given
            found.append(_TokenLogprob(token.id, offset, token.logprob, token.top_logprobs))
            self._num_given += len(token.text)
        return found


def _joined(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Returns the logprobs of tokens followed by those of more tokens; a list that is not asked for is None in both."""
    return {name: None if values is None else values + after[name] for name, values in before.items()}


def _render_logprobs(tokens: Sequence[_TokenLogprob], body: CompletionBody, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns logprobs as completions have them, in parallel lists; the chosen token is always among the top
    logprobs."""
    is_id = bool(body.return_tokens_as_token_ids)
    return {
        "tokens": [name_of(tokenizer, token.id, is_id=is_id) for token in tokens],
        "token_logprobs": [None if token.logprob is None else shortest_float32(token.logprob) for token in tokens],
        "top_logprobs": [_render_top(token, body, tokenizer) for token in tokens] if body.logprobs else None,
        "text_offset": [token.offset for token in tokens],
    }


def _render_top(token: _TokenLogprob, body: CompletionBody, tokenizer: Tokenizer) -> dict[str, float] | None:
    """Returns a token's top logprobs by text; of several tokens with one text it has the likeliest."""
    if token.logprob is None:
        return None
    top: dict[str, float] = {}
    for token_id, logprob in (*token.top_logprobs[:body.logprobs], (token.id, token.logprob)):
        name = name_of(tokenizer, token_id, is_id=bool(body.return_tokens_as_token_ids))
        top.setdefault(name, shortest_float32(logprob))
    return top
