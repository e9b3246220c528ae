"""What grammars say to the tokens that have come and those that may come next, worked out beside the event loop."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from router.grammar.matcher import Grammar, GrammarError, Matcher
from router.scheduling.plan import FinishReason, Sampled

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a sequence's grammar says: to the token that came, if one did, and what may come next, if that was asked.

    The token has a finish reason if the grammar ends with it. `error` stands in for all else.
    """

    sequence_id: int
    sampled: Sampled | None = None
    mask: bytes | None = None
    error: str | None = None


class Guide:
    """One answer's way through its grammar. `output_so_far` is fed to a matcher when it is first asked."""

    def __init__(self, grammar: Grammar, output_so_far: Sequence[int] = ()) -> None:
        self._grammar = grammar
        self._output_so_far = output_so_far
        self._matcher: Matcher | None = None

    def look(self, sequence_id: int, sampled: Sampled | None, wants_mask: bool) -> Finding:
        """Take the next token, then see what may follow it. Never raises."""
        try:
            if self._matcher is None:
                self._matcher = self._grammar.start()
                for token_id in self._output_so_far:
                    self._matcher.push(token_id)
            if sampled is not None:
                self._matcher.push(sampled.token_id)
                if self._matcher.is_complete:
                    return Finding(sequence_id, replace(sampled, finish_reason=FinishReason.EOS_TOKEN))
            return Finding(sequence_id, sampled, self._matcher.mask() if wants_mask else None)
        except GrammarError as error:
            return Finding(sequence_id, error=str(error))
        except Exception as error:
            log.exception("request %d failed in its grammar", sequence_id)
            return Finding(sequence_id, error=f"{type(error).__name__} in the grammar")


class Masking:
    """One look at a time: `hold` the tokens of a step, `begin` once the rows of the next are known, `end` it.

    A look runs in a thread of its own, however cheap it may be. Most matchers need microseconds, some need
    milliseconds, and none says so in advance; the way to the thread and back takes 30 microseconds once a step.
    One thread is enough: for cheap masks Python's lock leaves nothing to gain from a second.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[Guide, Sampled]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="masks")
        self._look: asyncio.Future[list[Finding]] | None = None

    def hold(self, guide: Guide, sampled: Sampled) -> None:
        """A token that its grammar has to see before anyone else does."""
        self._held[sampled.sequence_id] = guide, sampled

    def begin(self, wanted: Mapping[int, Guide]) -> None:
        """Look at the tokens held, and at what may follow in the sequences `wanted`; does not wait."""
        assert self._look is None
        looks = [partial(guide.look, sequence_id, sampled, sequence_id in wanted)
                 for sequence_id, (guide, sampled) in self._held.items()]
        looks += [partial(guide.look, sequence_id, None, wants_mask=True)
                  for sequence_id, guide in wanted.items() if sequence_id not in self._held]
        self._held.clear()
        if looks:
            self._look = asyncio.get_running_loop().run_in_executor(self._thread, lambda: [look() for look in looks])

    async def end(self) -> list[Finding]:
        """Wait for the look, if there is one, and for tokens that are still held."""
        if self._look is None and self._held:
            self.begin({})
        if self._look is None:
            return []
        findings = await self._look
        self._look = None
        return findings

    def close(self) -> None:
        """End the thread; a look that has begun is the last."""
        self._thread.shutdown(wait=False, cancel_futures=True)
