"""A server elsewhere that answers requests to a model."""

import asyncio
import os
import ssl
import time
from collections.abc import Mapping

import aiohttp
from yarl import URL

from penstock.router.foreign.answer import Answer
from penstock.router.foreign.attempt import Attempt, Outcome
from penstock.router.foreign_settings import ForeignSettings

SKIP_SECONDS = 10.0
"""For how long a server that failed is asked after the others."""
_OUTCOMES = {401: Outcome.UNAUTHORIZED, 403: Outcome.UNAUTHORIZED, 407: Outcome.UNAUTHORIZED, 429: Outcome.OVERLOADED}
"""The statuses below 500 after which another server is asked."""


class SourceError(Exception):
    """A server has not begun to answer; `answer` is what it has said instead, where a client may read that."""

    def __init__(self, outcome: Outcome, reason: str, answer: Answer | None = None) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.answer = answer


class Source:
    """Asks the server at `url`."""

    def __init__(self, url: str, settings: ForeignSettings, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.has_answered: bool | None = None
        """Whether it has answered the last request; None before the first."""
        self._settings = settings
        self._session = session
        self._skipped_until = 0.0

    @property
    def is_skipped(self) -> bool:
        """Whether it failed a short while ago."""
        return time.monotonic() < self._skipped_until

    def note(self, outcome: Outcome) -> None:
        """Notes the outcome of a request."""
        if outcome in (Outcome.ANSWERED, Outcome.REFUSED):
            self.has_answered, self._skipped_until = True, 0.0
        elif outcome is not Outcome.LEFT:
            self.has_answered, self._skipped_until = False, time.monotonic() + SKIP_SECONDS

    async def ask(self, path: str, body: bytes, headers: Mapping[str, str], attempt: Attempt) -> Answer:
        """Sends a request, and returns its answer once that has begun. Raises SourceError."""
        try:
            async with asyncio.timeout(self._settings.first_timeout):
                return await self._ask(path, body, headers, attempt)
        except aiohttp.ConnectionTimeoutError as error:
            raise SourceError(Outcome.UNREACHABLE,
                              f"no connection within {self._settings.connect_timeout:g} s") from error
        except TimeoutError as error:
            raise SourceError(Outcome.TIMEOUT, f"no answer within {self._settings.first_timeout:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise SourceError(Outcome.UNREACHABLE, f"no connection: {_reason(error.os_error)}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise SourceError(Outcome.FAILED, "the connection broke off before the answer") from error

    async def _ask(self, path: str, body: bytes, headers: Mapping[str, str], attempt: Attempt) -> Answer:
        key = {} if self._settings.api_key is None else {"authorization": f"Bearer {self._settings.api_key}"}
        response = await self._session.post(
            URL(self.url + path, encoded=True), data=body, headers={**headers, **key}, allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_timeout))
        answer: Answer | None = None
        try:
            answer = await Answer.begun(attempt, response, self._settings.pause_timeout)
            if answer.is_stream and answer.is_whole and not answer.first.strip():
                raise SourceError(Outcome.FAILED, "a stream without an event")
            if outcome := answer.failure:
                await answer.finish()
                raise SourceError(outcome, "an error as the first event", answer)
            if outcome := _failure(response.status):
                is_shown = answer.is_json and answer.is_whole and outcome is not Outcome.UNAUTHORIZED
                raise SourceError(outcome, f"status {response.status}", answer if is_shown else None)
            return answer
        except BaseException:
            response.close()
            raise


def _reason(error: OSError) -> str | None:
    """Returns the system's words for an error, to which asyncio adds the address; those of TLS and of names are as they
    come."""
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", None) or error.reason
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror


def _failure(status: int) -> Outcome | None:
    """Returns the outcome for a status with which another server is asked; None for an answer. Who follows a
    redirection sends the key elsewhere."""
    return _OUTCOMES.get(status) or (Outcome.FAILED if status >= 500 or 300 <= status < 400 else None)
