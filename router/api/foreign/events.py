"""Streams of events, passed on as they come."""

from collections.abc import AsyncIterator

_MOST = 1 << 20
"""The most bytes of an event that are held back until it is whole."""
_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""The empty lines that end an event."""


async def whole_events(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the bytes of `parts`, cut behind events, so that one that tells of a failure can come behind a whole one.
    What follows the last event comes by itself, if all parts came."""
    held = b""
    async for part in parts:
        held += part
        cut = len(held) if len(held) > _MOST else max(_behind(held, end) for end in _ENDS)
        if cut:
            yield held[:cut]
            held = held[cut:]
    if held:
        yield held


def _behind(held: bytes, end: bytes) -> int:
    """Returns the place behind the last `end`; 0 if there is none."""
    found = held.rfind(end)
    return 0 if found < 0 else found + len(end)
