"""A request for answers, by whichever API it came: it is counted once when it comes and once when it ends."""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Self

from penstock.router.engine.request import Request
from penstock.router.errors import Dropped, RouterError
from penstock.router.generation import request_record
from penstock.router.generation.service import Service
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
        self._has_ended = False

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
        left."""
        return nullcontext() if self.is_background else self.service.engine.permit(number)

    def placed(self, request: Request) -> Request:
        """Returns a request in its place among others: in the background if this is, and for the tenant who asks."""
        record = request_record.current()
        if record.grants is NOTHING and not self.is_background:
            return request
        return replace(request, tenant=record.grants.tenant(record.key or ""),
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
