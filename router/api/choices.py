"""The choices of OpenAI's completions: whole, or a chunk a token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from router.api.answer import Answer
from router.api.completion_request import is_prompt_only
from router.api.float32 import shortest_float32
from router.api.openai import finish_reason
from router.api.schemas import CompletionBody
from router.scheduling.plan import Top
from router.stream import Event, Token
from router.text.detokenizer import Detokenizer
from router.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Scored:
    """A token of a choice: its place in the choice's text, and its logprobs. The first of a prompt has none."""

    id: int
    offset: int
    logprob: float | None
    top: Top = ()


class Choice:
    """One of the answers to a completion. `index` counts the choices of all prompts.

    `scores` is the answer that the logprobs of the prompt came with. A choice begins with its prompt, if that is to be
    repeated.
    """

    def __init__(
        self, index: int, answer: Answer, scores: Answer, prompt: str | tuple[int, ...], body: CompletionBody,
        tokenizer: Tokenizer,
    ) -> None:
        self.index = index
        self.num_tokens = 0
        self.answer = answer
        self._scores = scores
        self._body = body
        self._tokenizer = tokenizer
        self._is_prompt_only = is_prompt_only(body)
        self._has_logprobs = body.logprobs is not None
        self._is_plain = not (body.echo or self._has_logprobs or body.return_token_ids)
        text = prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
        self._prompt = text if body.echo else ""
        self._num_given = 0
        """Characters of the answer."""

    @property
    def can_begin(self) -> bool:
        """Whether all that its first chunk needs is there."""
        return self._scores.has_begun or not (self._body.echo and self._has_logprobs)

    def whole(self, tokens: list[Token]) -> dict[str, Any]:
        """With all of the answer."""
        ending = self.answer.ending
        assert ending is not None
        if self._is_prompt_only:
            return self._render([], "", "length", is_first=True)
        self.num_tokens = ending.num_tokens
        return self._render(tokens, ending.text, finish_reason(ending), is_first=True)

    def chunk(self, event: Event) -> dict[str, Any]:
        """With the next token. The last one has what was held for a stop string, and TGI's own word for the reason."""
        token, ending = event.token, event.ending
        is_first, reason = not self.num_tokens, ""
        text = token.text
        self.num_tokens += 1
        if ending is not None:
            text, reason = ending.text[self._num_given:], ending.finish_reason.value
        if self._is_plain:
            self._num_given += len(token.text)
            return {"index": self.index, "text": text, "logprobs": None, "finish_reason": reason}
        if self._is_prompt_only:
            self.num_tokens = 0
            return self._render([], "", reason, is_first=True)
        return self._render([token], text, reason, is_first)

    def _render(self, tokens: Sequence[Token], text: str, reason: str, is_first: bool) -> dict[str, Any]:
        """`text`: of the answer, what comes with `tokens`; the prompt comes first."""
        choice: dict[str, Any] = {
            "index": self.index, "text": self._prompt * is_first + text, "logprobs": None, "finish_reason": reason}
        scored = self._score_answer(tokens)
        if self._has_logprobs:
            prompt = self._score_prompt() if is_first and self._body.echo else ()
            choice["logprobs"] = self._render_logprobs([*prompt, *scored])
        if self._body.return_token_ids:
            choice["token_ids"] = [token.id for token in tokens]
            choice["prompt_token_ids"] = self.answer.request.input_ids if is_first else None
        return choice

    def _score_prompt(self) -> Iterator[_Scored]:
        """Special tokens that the tokenizer adds have no place in the prompt's text."""
        ids, scores = self.answer.request.input_ids, self._scores.prompt_scores
        detokenizer, offset = Detokenizer(self._tokenizer.decode), 0
        logprobs, tops = (None, *scores.logprobs), ((), *scores.top) if scores.top else ((),) * len(ids)
        for token_id, logprob, top in zip(ids, logprobs, tops, strict=True):
            yield _Scored(token_id, offset, logprob, top)
            text = detokenizer.push(token_id)
            if self._prompt.startswith(text, offset):
                offset += len(text)

    def _score_answer(self, tokens: Sequence[Token]) -> list[_Scored]:
        """A token whose text is held for a stop string has its place where the text that was given ends."""
        scored = []
        for token in tokens:
            scored.append(_Scored(token.id, len(self._prompt) + self._num_given, token.logprob, token.top))
            self._num_given += len(token.text)
        return scored

    def _render_logprobs(self, tokens: Sequence[_Scored]) -> dict[str, Any]:
        """In the shape of completions: lists side by side. The chosen token is always among the likeliest."""
        texts = [self._tokenizer.text_of(token.id) for token in tokens]
        return {
            "tokens": texts,
            "token_logprobs": [
                None if token.logprob is None else shortest_float32(token.logprob) for token in tokens],
            "top_logprobs": [self._render_top(token) for token in tokens] if self._body.logprobs else None,
            "text_offset": [token.offset for token in tokens],
        }

    def _render_top(self, token: _Scored) -> dict[str, float] | None:
        """By the tokens' texts; of several tokens with one text the likeliest is told."""
        if token.logprob is None:
            return None
        top: dict[str, float] = {}
        for token_id, logprob in (*token.top, (token.id, token.logprob)):
            top.setdefault(self._tokenizer.text_of(token_id), shortest_float32(logprob))
        return top
