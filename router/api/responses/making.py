"""A response while its answer is made: the deltas of the answer become its items and its events."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.router.api.openai.logprobs import token_logprobs
from penstock.router.api.responses import response
from penstock.router.api.responses.bodies import ResponseBody
from penstock.router.api.responses.events import ResponseEvents
from penstock.router.api.responses.output_items import Event, OutputItems
from penstock.router.api.responses.tools import called_as
from penstock.router.chat.deltas import Content
from penstock.router.engine.stream import Event as AnswerPart
from penstock.router.engine.stream import Token
from penstock.router.errors import RouterError
from penstock.router.generation.answers import Answers
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.turns.asked import Asked


class Making:
    """Makes one response; `begun` is the object as it is told at its beginning."""

    def __init__(self, asked: Asked, answers: Answers, body: ResponseBody, begun: Mapping[str, Any]) -> None:
        self._begun = begun
        self._body = body
        [self._reader] = asked.readers(answers)
        self._tokenizer = asked.asking.service.tokenizer
        self._items = OutputItems(begun["id"], self._reader.call_id, called_as(body.tools), body.carries_reasoning)
        self._events = ResponseEvents(begun)
        self._tokens: list[Token] = []
        """The tokens of text that no event has told of yet."""

    @property
    def output(self) -> list[dict[str, Any]]:
        """The items that have come to their end."""
        return self._items.output

    def begin(self) -> Iterator[Event]:
        """Yields the events before the first item."""
        return self._events.begin()

    def take(self, part: AnswerPart) -> Iterator[Event]:
        """Takes the next part of the answer; yields the events that it brings."""
        if self._body.wants_logprobs and not part.token.is_special:
            self._tokens.append(part.token)
        for delta in self._reader.read(part):
            logprobs: list[dict[str, Any]] = []
            if isinstance(delta, Content):
                logprobs = [self._logprobs(token) for token in self._tokens]
            self._tokens = []
            yield from self._events.each(self._items.take(delta, logprobs))
        if part.ending is not None:
            is_cut = part.ending.finish_reason is FinishReason.LENGTH
            self._reader.answer.told("incomplete" if is_cut else "completed")
            yield from self._events.each(self._items.finish(is_whole=not is_cut))

    def end(self, response: Mapping[str, Any]) -> Event:
        """Returns the last event, which tells of the whole response."""
        return self._events.end(response)

    def fail(self, error: RouterError) -> Event:
        """Returns the event of a failure, which takes the place of the last one."""
        return self._events.end(response.failed(self._begun, error, self._items.output))

    def whole(self) -> dict[str, Any]:
        """Returns the response, once its answer has come to its end."""
        answer = self._reader.answer
        assert answer.ending is not None
        usage = response.usage(len(answer.request.input_ids), answer.hit_tokens, answer.ending.num_tokens,
                               self._reader.num_thinking_tokens)
        return response.ended(self._begun, self._items.output, usage, int(time.time()),
                              answer.ending.finish_reason is FinishReason.LENGTH)

    def _logprobs(self, token: Token) -> dict[str, Any]:
        described = token_logprobs(self._tokenizer, token)
        for each in (described, *described["top_logprobs"]):
            each["bytes"] = each["bytes"] or []  # OpenAI's types of responses have no null there
        return described
