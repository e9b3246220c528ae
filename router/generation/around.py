"""The parts that stand around the generation of answers, each of them off unless it is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.router.checks.checker import Checker
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.engine.request import Request
from penstock.router.generation import request_record
from penstock.router.generation.accounting import Accounting
from penstock.router.generation.explains import Explains
from penstock.router.generation.piped import After
from penstock.router.generation.request_record import Journal, RequestRecord
from penstock.router.generation.signer import Signer
from penstock.router.grants import NOTHING as NOTHING_GRANTED
from penstock.router.grants import Grants
from penstock.router.metrics.caches import HIT, MISS, SHARED, SKIPPED
from penstock.router.rates import AnyRates, Rates
from penstock.router.response_cache.cache import Found, ResponseCache, Submit, Use
from penstock.router.response_cache.key import key_of

_DIRECTIVES = {"no-store": Use.NONE, "no-cache": Use.RENEW}


@dataclass(frozen=True, slots=True)
class Around:
    """Holds the parts; None stands for those that are off."""

    cache: ResponseCache | None = None
    journal: Journal | None = None
    checker: Checker | None = None
    after: After | None = None
    """The steps of the pipeline that one request asks, behind its answer."""
    signer: Signer | None = None
    """Signs the receipts of answers."""
    accounting: Accounting | None = None
    """Refuses those who have spent their budget; it is one of the journals, too."""
    rates: AnyRates = field(default_factory=Rates)
    """Tells how much the keys may use yet."""
    grants_of: Callable[[str], Grants] = lambda name: NOTHING_GRANTED
    """Tells the grants of the keys of a name."""
    explains: Explains | None = None
    """Explains where the time of requests went; it is one of the journals, too."""

    async def close(self) -> None:
        """Ends all that the parts have begun."""
        for part in (self.journal, self.cache, self.checker):
            if part is not None:
                await part.close()

    def attribute(self, record: RequestRecord, key: str | None) -> None:
        """Makes a record, which comes from the server itself, one of those who bear the key of this name."""
        record.key = key
        record.grants = NOTHING_GRANTED if key is None else self.grants_of(key)

    async def take(self, num_requests: int = 0, num_tokens: int = 0) -> None:
        """Counts what a request is about to use among what its key may. Raises TooFast."""
        record = request_record.current()
        if record.grants.has_rates:
            await self.rates.take(record.use(num_requests, num_tokens))

    async def submits(
        self, engine: AnyEngine, requests: Sequence[tuple[Request, str | None]], tokenizer_digest: str
    ) -> list[Submit]:
        """Returns for each request the function by which it is submitted: to the engine, or to the cache, which has
        its answer or asks the engine for it. Beside each is the source of its grammar; None if its answer can't be
        repeated, since its seed was drawn."""
        if self.cache is None:
            return [engine.submit] * len(requests)
        record = request_record.current()
        owner = b"" if self.cache.is_shared else record.owner
        asked = [(request, None if owner is None or grammar is None else key_of(
            request, owner, tokenizer_digest.encode(), grammar.encode(errors="backslashreplace")))
            for request, grammar in requests]
        found = await self.cache.look(engine, asked, use_of(record.cache_control))
        _note(record, [where for _, where in found])
        return [submit for submit, _ in found]


NOTHING = Around()


def use_of(cache_control: str) -> Use:
    """Returns how far a request may use kept answers, by the header `Cache-Control` of its client."""
    words = [word.strip().lower() for word in cache_control.split(",")]
    return next((use for word, use in _DIRECTIVES.items() if word in words), Use.ALL)


def _note(record: RequestRecord, found: Sequence[Found]) -> None:
    """Notes where the answers come from: of several from the slowest place, and by the age of the oldest."""
    outcomes = {each.outcome for each in found}
    outcome = next(each for each in (SKIPPED, MISS, SHARED, HIT) if each in outcomes)
    ages = [each.age for each in found if each.age is not None]
    record.cache = str(Found(outcome, max(ages) if outcome == HIT else None))
