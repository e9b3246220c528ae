"""Server-sent events, from the bytes of a response (HTML Standard, 9.2)."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event, or with neither data nor id a sign of life: a comment, or a time to wait."""

    data: str = ""
    id: str = ""


SIGN_OF_LIFE = ServerEvent()


class EventDecoder:
    """Reads events from bytes that come in any pieces. One that is not whole when they end is none."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yields the events that the next bytes complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            event = self._take(line.removesuffix(b"\r").decode(errors="replace"))
            if event is not None:
                yield event

    def _take(self, line: str) -> ServerEvent | None:
        if not line:
            event = ServerEvent("\n".join(self._data), self._id) if self._data else None
            self._data, self._id = [], ""
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
        else:
            return SIGN_OF_LIFE
        return None
