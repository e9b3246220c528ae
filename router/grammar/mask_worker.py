"""A thread beside the event loop that shows tokens to their grammars and computes the masks of the next tokens."""

import asyncio
from collections.abc import Sequence

from penstock.router.grammar.beam_cursor import BeamCursor
from penstock.router.grammar.cursor import GrammarCursor, MaskResult
from penstock.router.scheduling.confirmed import Sampled
from penstock.system.daemon_threads import DaemonThreads


class MaskWorker:
    """Usage: `hold` the tokens of a step, `begin` once it is known who needs masks next, then await `accepted`, the
    results for the tokens held, and `masks`.

    All of it runs in one thread of its own, however cheap a mask may be: most masks take microseconds, some take
    milliseconds, and none says so in advance, while the way to the thread and back costs 30 microseconds a step. A
    second thread would gain nothing for cheap masks, since Python's lock is held. All tokens are shown to their
    grammars before any mask is computed.
    """

    def __init__(self) -> None:
        self._thread = DaemonThreads(1, "masks")
        self._held: list[tuple[GrammarCursor, Sampled]] = []
        self._accepted: asyncio.Future[list[MaskResult]] | None = None
        self._masks: asyncio.Future[list[MaskResult]] | None = None

    def hold(self, cursor: GrammarCursor, sampled: Sampled) -> None:
        """Keeps a token back that its grammar has to see before the client does."""
        self._held.append((cursor, sampled))

    def begin(self, wanted: Sequence[tuple[GrammarCursor | BeamCursor, Sequence[int]]]) -> None:
        """Starts to show the held tokens to their grammars, then to compute the masks `wanted`: of the tokens that come
        next, and behind each of some drafts. Does not wait."""
        assert self._accepted is None
        assert self._masks is None
        loop = asyncio.get_running_loop()
        held, self._held = self._held, []
        if held:
            self._accepted = loop.run_in_executor(
                self._thread, lambda: [cursor.advance(sampled) for cursor, sampled in held])
        if wanted:
            self._masks = loop.run_in_executor(
                self._thread, lambda: [cursor.masks(drafts) for cursor, drafts in wanted])

    async def accepted(self) -> list[MaskResult]:
        """Returns the grammars' verdicts about the tokens that were held."""
        if self._held:
            self.begin(())
        results = await self._accepted if self._accepted is not None else []
        self._accepted = None
        return results

    async def masks(self) -> list[MaskResult]:
        """Returns the masks that `begin` was asked for."""
        results = await self._masks if self._masks is not None else []
        self._masks = None
        return results

    def close(self) -> None:
        """Ends the thread after the work that it has begun."""
        self._thread.close()
