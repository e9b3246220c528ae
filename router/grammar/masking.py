"""What grammars say to the tokens that have come and those that may come next, worked out beside the event loop."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from penstock.router.grammar.matcher import Grammar, GrammarError, Matcher
from penstock.router.scheduling.plan import FinishReason, Sampled

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a sequence's grammar says: to the token that came, or to what may come next. `error` stands in for both.

    A token that the grammar ends with has a finish reason; then nothing may come next, and there is no mask.
    """

    sequence_id: int
    sampled: Sampled | None = None
    mask: bytes | None = None
    error: str | None = None


class Guide:
    """One answer's way through its grammar. `output_so_far` is fed to a matcher when it is first needed."""

    def __init__(self, sequence_id: int, grammar: Grammar, output_so_far: Sequence[int] = ()) -> None:
        self.sequence_id = sequence_id
        self._grammar = grammar
        self._output_so_far = output_so_far
        self._matcher: Matcher | None = None
        self._is_over = False

    def take(self, sampled: Sampled) -> Finding:
        """The next token has come. Never raises."""
        try:
            matcher = self._start()
            matcher.push(sampled.token_id)
            self._is_over = matcher.is_complete
        except Exception as error:
            return self._fail(error)
        return Finding(
            self.sequence_id, replace(sampled, finish_reason=FinishReason.EOS_TOKEN) if self._is_over else sampled)

    def mask(self) -> Finding:
        """What may come after the tokens taken. Never raises."""
        try:
            return Finding(self.sequence_id, mask=None if self._is_over else self._start().mask())
        except Exception as error:
            return self._fail(error)

    def _start(self) -> Matcher:
        if self._matcher is None:
            self._matcher = self._grammar.start()
            for token_id in self._output_so_far:
                self._matcher.push(token_id)
        return self._matcher

    def _fail(self, error: Exception) -> Finding:
        self._is_over = True
        if isinstance(error, GrammarError):
            return Finding(self.sequence_id, error=str(error))
        log.error("request %d failed in its grammar", self.sequence_id, exc_info=error)
        return Finding(self.sequence_id, error=f"{type(error).__name__} in the grammar")


class Masking:
    """`hold` the tokens of a step, `begin` once it is known who needs masks next, then wait for what was `seen` and
    for the `masks`.

    It works in a thread of its own, however cheap a mask may be. Most take microseconds, some milliseconds, and none
    says so in advance; the way to the thread and back costs 30 microseconds a step. One thread is enough: for cheap
    masks Python's lock leaves nothing to gain from a second. All tokens are taken before any mask is worked out.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="masks")
        self._held: list[tuple[Guide, Sampled]] = []
        self._seen: asyncio.Future[list[Finding]] | None = None
        self._masks: asyncio.Future[list[Finding]] | None = None

    def hold(self, guide: Guide, sampled: Sampled) -> None:
        """A token that its grammar has to see before the client does."""
        self._held.append((guide, sampled))

    def begin(self, wanted: Sequence[Guide]) -> None:
        """Let the grammars see the tokens held, then work out what may follow for those `wanted`. Does not wait."""
        assert self._seen is None
        assert self._masks is None
        loop = asyncio.get_running_loop()
        held, self._held = self._held, []
        if held:
            self._seen = loop.run_in_executor(self._thread, lambda: [guide.take(sampled) for guide, sampled in held])
        if wanted:
            self._masks = loop.run_in_executor(self._thread, lambda: [guide.mask() for guide in wanted])

    async def seen(self) -> list[Finding]:
        """What the grammars say to all tokens held."""
        if self._held:
            self.begin(())
        findings = await self._seen if self._seen is not None else []
        self._seen = None
        return findings

    async def masks(self) -> list[Finding]:
        """What may come next, for those wanted."""
        findings = await self._masks if self._masks is not None else []
        self._masks = None
        return findings

    def close(self) -> None:
        """End the thread; what has begun is the last."""
        self._thread.shutdown(wait=False, cancel_futures=True)
