"""The gate at which steps of a pipeline make other texts of answers."""

from dataclasses import dataclass, replace

from penstock.router.engine.stream import Event
from penstock.router.generation.answer import Answer
from penstock.router.generation.gate import Gate
from penstock.router.generation.piped import After


@dataclass(slots=True)
class _Pieces:
    """How much of an answer was taken piece by piece, and what was made of it."""

    num_taken: int = 0
    made: str = ""


class AfterGate(Gate):
    """Holds the events of each answer until it is whole, unless the steps take it piece by piece. Of a whole one the
    last token has the text that they have made, and the others have none."""

    def __init__(self, after: After) -> None:
        super().__init__()
        self._after = after
        self._pieces: dict[int, _Pieces] = {}

    async def take(self, answer: Answer, event: Event) -> None:
        """Takes an event. Raises RouterError where a step fails."""
        if self._after.streams:
            self._passed.append((answer, await self._of_piece(answer, event)))
            return
        held = self._whole(answer, event)
        if event.ending is None:
            return
        text = await self._after.made_of(event.ending.text)
        self._passed.extend((answer, Event(each.token._replace(text=""))) for each in held[:-1])
        self._passed.append((answer, Event(event.token._replace(text=text), replace(event.ending, text=text))))

    async def _of_piece(self, answer: Answer, event: Event) -> Event:
        """Returns the event with what the steps make of its text; a special token's stays."""
        token, ending = event
        pieces = self._pieces.setdefault(answer.index, _Pieces())
        text = "" if token.is_special else token.text
        if ending is not None:
            text = ending.text[pieces.num_taken:]
        pieces.num_taken += len(text)
        made = await self._after.made_of(text) if text else ""
        pieces.made += made
        if ending is not None:
            ending = replace(ending, text=pieces.made)
        return Event(token if token.is_special and not text else token._replace(text=made), ending)
