"""The events of a streamed response, in their order: its beginning, its items, its end."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.router.api.responses.output_items import Event


class ResponseEvents:
    """Numbers the events of one response; `response` is the object as it is told at its beginning."""

    def __init__(self, response: Mapping[str, Any]) -> None:
        self._response = response
        self._number = 0

    def begin(self) -> Iterator[Event]:
        """Yields the events before the first item."""
        is_queued = self._response["background"]
        begun = {**self._response, "status": "in_progress"}
        first = {**begun, "status": "queued"} if is_queued else begun
        yield self.numbered({"type": "response.created", "response": first})
        if is_queued:
            yield self.numbered({"type": "response.queued", "response": first})
        yield self.numbered({"type": "response.in_progress", "response": begun})

    def each(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yields events with their numbers."""
        return map(self.numbered, events)

    def end(self, response: Mapping[str, Any]) -> Event:
        """Returns the last event, with the whole response."""
        return self.numbered({"type": f"response.{response['status']}", "response": dict(response)})

    def numbered(self, event: Event) -> Event:
        """Returns the next event with its number."""
        numbered = {"type": event["type"], "sequence_number": self._number, **event}
        self._number += 1
        return numbered
