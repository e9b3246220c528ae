"""Where a call goes next when a server is gone, when, and when it gives up."""

import logging
import random
import time
from collections.abc import Callable, Sequence

from penstock.client.errors import AnotherAnswer, Differs, Gone, Unreachable

log = logging.getLogger("penstock.client")

FIRST_SECONDS, LAST_SECONDS = 0.05, 2.0
"""The longest pause before the first attempt after a failure, and before any: a pause is drawn from none to that, and
the longest doubles with each failure."""
STANDING_SECONDS = 15.0
"""How long a connection must have stood for its server to have worked on the answer."""
DIFFERING_SECONDS = 5.0
"""For how long the last server that would give another answer is asked again: it may be a balancer, behind which others
would not, or have groups that it has not found yet."""


class Patience:
    """Follows one call over servers, from one that `first` counts to.

    It ends when `max_downtime` seconds have passed since a failure behind which nothing came, and no server has worked
    on the answer for STANDING_SECONDS.
    """

    def __init__(
        self, urls: Sequence[str], max_downtime: float, first: int = 0, now: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._urls = list(urls)
        self._place = first % len(urls)
        self._max_downtime = max_downtime
        self._now = now
        self._draw = draw
        self._num_failures = 0
        self._down_since: float | None = None
        self._asked_at = now()
        self._differs_since: float | None = None
        self._refusal: AnotherAnswer | None = None

    @property
    def url(self) -> str:
        """The server that is to be asked."""
        return self._urls[self._place]

    @property
    def has_others(self) -> bool:
        """Whether there are servers but the one that is to be asked."""
        return len(self._urls) > 1

    def progress(self) -> None:
        """Notes that something came."""
        self._num_failures, self._down_since = 0, None

    def failed(self, error: Exception) -> float:
        """Notes a failure: returns the seconds to wait before the next server is asked. Raises Unreachable when the
        time is up, or AnotherAnswer if that is what a server has said."""
        now = self._now()
        if isinstance(error, Differs):
            return self._differs(error.refusal, now)
        has_stood = now - self._asked_at >= STANDING_SECONDS and not isinstance(error, Gone)
        self._down_since = now if self._down_since is None or has_stood else self._down_since
        pause: float = self._draw() * min(LAST_SECONDS, FIRST_SECONDS * 2.0**min(self._num_failures, 20))
        if now + pause - self._down_since >= self._max_downtime:
            if self._refusal is not None:
                raise self._refusal from error
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise Unreachable(f"nothing came of {', '.join(self._urls)} for {self._max_downtime:g} s; at last of "
                              f"{self.url}: {what}") from error
        log.info("%s is gone (%s: %s), asking again in %.2f s", self.url, type(error).__name__, error, pause)
        self._num_failures += 1
        self._place = (self._place + 1) % len(self._urls)
        self._asked_at = now + pause
        return pause

    def _differs(self, refusal: AnotherAnswer, now: float) -> float:
        """Leaves out the server that was asked. The last is asked again for DIFFERING_SECONDS."""
        log.info("%s would give another answer: %s", self.url, refusal)
        self._refusal = refusal
        if self.has_others:
            del self._urls[self._place]
            self._place %= len(self._urls)
            return 0.0
        self._differs_since = now if self._differs_since is None else self._differs_since
        if now - self._differs_since >= DIFFERING_SECONDS:
            raise refusal
        return LAST_SECONDS / 4
