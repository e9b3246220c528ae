"""A request for answers, by whichever API it came: it is counted once when it comes and once when it ends."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Self

from penstock.router.engine.request import Request
from penstock.router.errors import Dropped, RouterError
from penstock.router.generation import request_record
from penstock.router.generation.request_record import AnyStream
from penstock.router.generation.service import Service
from penstock.router.generation.validation import digest_of
from penstock.router.grants import NOTHING
from penstock.router.scheduling.priorities import BACKGROUND


class Asking:
    """Counts one request to `service`. Its block holds all that a handler does for it once the body is read.

    The first failure counts: a RouterError, a fault of the server, or that the client has left. No failure counts once
    all answers have come to their end. One that `is_background`, as those of batches are, gets only what no other
    request waits for, and takes no permits, which others would lack: whoever asks bounds how much it asks for.
    """

    def __init__(self, service: Service, is_background: bool = False) -> None:
        self.service = service
        self.is_background = is_background
        self._has_ended = self._is_counted = False

    def __enter__(self) -> Self:
        self.service.metrics.requested()
        accounting = self.service.around.accounting
        try:
            if accounting is not None:
                accounting.admit(request_record.current())
        except RouterError as error:
            self.failed(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.failed(Dropped() if error is None else error)  # a stream that was left before it began raises nothing

    def permit(self, number: int = 1) -> AbstractAsyncContextManager[None]:
        """Holds `number` of the permits for requests, unless it is in the background. Raises Overloaded when fewer are
        left, and TooFast where its key has sent as many as it may in a time."""
        if self.is_background:
            return nullcontext()
        is_free = not request_record.current().grants.has_rates
        return self.service.engine.permit(number) if is_free else self._counted(number)

    @asynccontextmanager
    async def _counted(self, number: int) -> AsyncIterator[None]:
        if not self._is_counted:
            await self.service.around.take(num_requests=1)
            self._is_counted = True
        async with self.service.engine.permit(number):
            yield

    async def read(self, lengths: Iterable[int]) -> None:
        """Counts the tokens of its prompts among what its key may use in a time. Raises TooFast."""
        if request_record.current().grants.tokens is not None and not self.is_background:
            await self.service.around.take(num_tokens=sum(lengths))

    def made(self, streams: Iterable[AnyStream]) -> None:
        """Counts the tokens of its answers, which have ended, among what its key may use in a time."""
        record = request_record.current()
        if record.grants.tokens is not None and not self.is_background:
            self.service.around.rates.note(record.use(0, sum(each.num_tokens for each in streams)))

    def placed(self, request: Request) -> Request:
        """Returns a request in its place among others: in the background if this is, and for the tenant who asks."""
        record = request_record.current()
        if record.grants is NOTHING and not self.is_background:
            return request
        salt = digest_of(f"{record.key}\n{request.salt}") if record.grants.has_own_salt else request.salt
        return replace(request, tenant=record.grants.tenant(record.key or ""), salt=salt,
                       priority=BACKGROUND if self.is_background else request.priority)

    def failed(self, error: BaseException) -> None:
        """Counts the request as failed, unless it has ended already. An error that nobody foresaw is the server's; a
        cancellation is the client's leaving."""
        if self._has_ended:
            return
        self._has_ended = True
        if not isinstance(error, RouterError):
            error = RouterError() if isinstance(error, Exception) else Dropped()
        self.service.metrics.failed(error)
        request_record.current().failed(error)

    def succeeded(self) -> None:
        """Counts the request as answered."""
        self._has_ended = True
        self.service.metrics.succeeded()
