"""How much the keys may use in a time: each has a bucket of requests and one of tokens, which fill at its rates."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from penstock.router.errors import RouterError
from penstock.router.grants import Rate


class TooFast(RouterError):
    """The bearer of a key uses more in a time than it may."""

    status: ClassVar[int] = 429
    error_type: ClassVar[str] = "overloaded"
    metric: ClassVar[str] = "overloaded"
    code = "rate_limit_exceeded"

    def __init__(self, tenant: str, verb: str, rate: Rate, noun: str, seconds: float) -> None:
        self.retry_after = max(1, math.ceil(seconds))
        super().__init__(f"`{tenant}`, whose key this is, may {verb} {rate.number} {noun} per {rate.unit}, and has: "
                         f"there is room again in {self.retry_after} s")


@dataclass(frozen=True, slots=True)
class Use:
    """Tells how many requests and tokens a tenant uses, of those that it may."""

    tenant: str
    request_rate: Rate | None
    token_rate: Rate | None
    num_requests: int = 0
    num_tokens: int = 0


class AnyRates(Protocol):
    """The buckets of all tenants, wherever they are."""

    async def take(self, use: Use) -> None:
        """Takes a use that is to be made. Raises TooFast, and takes nothing, where the rates do not allow it yet."""

    def note(self, use: Use) -> None:
        """Takes a use that was made, also one beyond the rates: the tenant waits the longer then."""


class Rates:
    """Holds the buckets. A full one has as much as a tenant may use in the time of its rate. A request of more tokens
    than that may begin when it is full. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._levels: dict[tuple[str, str], tuple[float, float]] = {}
        """By tenant and noun, how much there was in a bucket, and when."""

    async def take(self, use: Use) -> None:
        """Takes a use that is to be made. Raises TooFast, and takes nothing, where the rates do not allow it yet."""
        self._check(use.tenant, use.request_rate, "send", "requests", use.num_requests)
        self._check(use.tenant, use.token_rate, "use", "tokens", max(1, use.num_tokens))
        self.note(use)

    def note(self, use: Use) -> None:
        """Takes a use that was made, also one beyond the rates."""
        for rate, noun, number in ((use.request_rate, "requests", use.num_requests),
                                   (use.token_rate, "tokens", use.num_tokens)):
            if rate is not None and number:
                self._levels[use.tenant, noun] = self._level(use.tenant, rate, noun) - number, self._clock()

    def _check(self, tenant: str, rate: Rate | None, verb: str, noun: str, number: int) -> None:
        if rate is None:
            return
        missing = min(number, rate.number) - self._level(tenant, rate, noun)
        if missing > 0:
            raise TooFast(tenant, verb, rate, noun, missing * rate.seconds / rate.number)

    def _level(self, tenant: str, rate: Rate, noun: str) -> float:
        now = self._clock()
        level, then = self._levels.get((tenant, noun), (rate.number, now))
        return min(rate.number, level + (now - then) * rate.number / rate.seconds)
