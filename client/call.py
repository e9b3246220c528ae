"""A call of a route, without the sending: what each attempt asks, and what its answer tells."""

import uuid
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Generic

import httpx2
from pydantic_core import from_json, to_json

from penstock.client.errors import (
    AnotherAnswer,
    ClientError,
    Differs,
    Gone,
    Overloaded,
    Refused,
    ServerFault,
    error_of_body,
    error_of_event,
)
from penstock.client.events import ServerEvent
from penstock.client.patience import Patience
from penstock.client.replies import AnyReply, AnyWhole

MAX_IDS_CHARACTERS = 7000
"""The longest list of token ids that is sent: servers and proxies take headers of 8 KB."""

TokenIdOf = Callable[[Any], int | None]
"""Returns the one token that came with an event's content; None if it is not known."""


class Call:
    """One call, in as many attempts as it takes. A `key` or the name of an `answer` decides what is drawn; without
    either the call has a key of its own, so that all its attempts draw the same."""

    def __init__(self, patience: Patience, body: Mapping[str, Any], key: str | None, answer: str | None) -> None:
        self.patience = patience
        self.content = to_json(body)
        self.answer = answer
        """The name of the answer, known once its headers have come."""
        self._is_admitted = False
        """Whether a server may have begun with the answer."""
        self._wish = {"penstock-answer": answer} if answer else {"idempotency-key": key or str(uuid.uuid4())}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the next attempt."""
        return {"content-type": "application/json", **self._wish}

    def failed(self, error: Exception) -> float:
        """Notes that an attempt failed, for its server or connection is gone: returns the seconds to wait before the
        next. Raises Unreachable when the time for that is up."""
        is_sent = not isinstance(error, (Gone, httpx2.ConnectError, httpx2.ConnectTimeout))
        self._is_admitted = self._is_admitted or is_sent
        return self.patience.failed(error)

    def _judged(self, error: Refused | Gone) -> Exception:
        """Returns the error to raise for a server's error. Servers that would give another answer are left out while
        there are others; an answer that was begun waits for a server with room for it."""
        if isinstance(error, AnotherAnswer) and (self._is_admitted or self.patience.has_others):
            return Differs(error)
        return Gone(str(error)) if isinstance(error, Overloaded) and self._is_admitted else error


def _longest_list(ids: list[str]) -> str:
    """Returns the ids, or the first of them, so many as a header takes."""
    text = ",".join(ids[:MAX_IDS_CHARACTERS])
    return text if len(text) <= MAX_IDS_CHARACTERS else text[:MAX_IDS_CHARACTERS + 1].rpartition(",")[0]


class WholeCall(Call, Generic[AnyWhole]):
    """A call whose answer comes when it is whole."""

    def __init__(
        self, patience: Patience, body: Mapping[str, Any], key: str | None, answer: str | None, kind: type[AnyWhole]
    ) -> None:
        super().__init__(patience, body, key, answer)
        self._kind = kind

    def take(self, status: int, headers: Mapping[str, str], body: bytes) -> AnyWhole:
        """Returns the answer. Raises Gone if another server is to be asked, Refused for any other error."""
        if status != 200:
            raise self._judged(error_of_body(body, status))
        try:
            return self._kind.model_validate({**from_json(body), "answer": headers.get("penstock-answer")})
        except (ValueError, TypeError) as error:
            raise ServerFault(f"the answer can't be read: {error}", status) from error


class StreamCall(Call, Generic[AnyReply]):
    """A call whose answer comes in events. Each event comes once, and no event that has come is asked for again."""

    def __init__(
        self, patience: Patience, body: Mapping[str, Any], key: str | None, answer: str | None, kind: type[AnyReply],
        token_id_of: TokenIdOf,
    ) -> None:
        super().__init__(patience, body, key, answer)
        self.is_whole = False
        """Whether the last event has come."""
        self.last_event_id: str | None = None
        """The id of the last event that has come; the answer's name before the first."""
        self._kind = kind
        self._token_id_of = token_id_of
        self._model: dict[str, str] = {}
        """The header that names the model that answers, if its server has several and the name was an alias."""
        self._ids: list[str] | None = []
        self._has_begun = False

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the next attempt: what to go on behind, once that is known."""
        if self.last_event_id is None:
            return {**super().headers, "accept": "text/event-stream"}
        headers = {"content-type": "application/json", "accept": "text/event-stream",
                   "last-event-id": self.last_event_id, **self._model}
        if self._ids:
            headers["penstock-output-ids"] = _longest_list(self._ids)
        return headers

    def begin(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Takes the status and the headers of an attempt, and the body if it is no stream. Raises Gone if another
        server is to be asked, Refused for any other error."""
        if status != 200:
            raise self._judged(error_of_body(body, status))
        if (name := headers.get("penstock-answer")) is not None and self.last_event_id is None:
            self.answer = self.last_event_id = name
            self._model = {"penstock-model": headers["penstock-model"]} if "penstock-model" in headers else {}

    def take(self, event: ServerEvent) -> AnyReply | None:
        """Takes an event: returns what it tells, None for none of the answer's. Raises as `begin` does."""
        if event.data == "[DONE]":
            self.is_whole = True
            return None
        if not event.data:
            return None
        try:
            content = from_json(event.data)
            told = error_of_event(content)
            reply = self._kind.model_validate(content) if told is None else None
        except ValueError as error:
            raise ServerFault(f"an event can't be read: {error}", HTTPStatus.OK) from error
        if told is not None:
            raise self._judged(told)
        self.patience.progress()
        self._note(event, content)
        return reply

    def end(self) -> None:
        """Notes the end of an attempt's response. Raises Gone unless the answer is whole."""
        if not self.is_whole:
            raise Gone("the stream ended before its last event")

    def _note(self, event: ServerEvent, content: Any) -> None:
        self._has_begun = self._is_admitted = True
        self.last_event_id = event.id or None
        token_id = self._token_id_of(content)
        if token_id is None:
            self._ids = None
        elif self._ids is not None:
            self._ids.append(str(token_id))
        self.is_whole = self.is_whole or content.get("generated_text") is not None

    def failed(self, error: Exception) -> float:
        """Does as that of any call. Raises ClientError for a stream whose events have no ids, which can't go on."""
        if self._has_begun and self.last_event_id is None:
            raise ClientError(f"the stream broke off, and its events have no ids to go on behind: {error}") from error
        return super().failed(error)
