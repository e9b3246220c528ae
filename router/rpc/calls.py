"""The steps of every call: the key, its trace, the counts, and the reply to its client when it fails."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import grpc

from penstock.router import request_id
from penstock.router.api.http.access import Access
from penstock.router.api.http.counting import CACHE
from penstock.router.api.http.failures import to_router_error
from penstock.router.api.http.receipts import HEADER as RECEIPT
from penstock.router.api.http.sse import UNREAD_SECONDS
from penstock.router.errors import Dropped, RouterError, Unauthorized
from penstock.router.generation import request_log
from penstock.router.generation.request_record import Journal, RequestRecord, recording
from penstock.router.generation.service import Service
from penstock.router.generation.services import MODEL, Services
from penstock.router.generation.signer import Signer
from penstock.router.metrics.metrics import Metrics
from penstock.router.rpc.receipts import TRAILER, HttpForm, wants_receipt

if TYPE_CHECKING:
    from penstock.router.tracing.middleware import Tracing

Context: TypeAlias = grpc.aio.ServicerContext
Tell = Callable[[str], None]
"""A function that takes the name of the code that a call ends with."""
_MAX_DETAILS = 2000
"""The most bytes of a message: escaped they may be three times as many, and clients take 8 KB of metadata."""
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    # Not ABORTED, which asks clients to try again: this request has just ended three groups, or the engine failed.
    424: grpc.StatusCode.INTERNAL,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""The gRPC code for each status of HTTP."""


def code_of(error: RouterError) -> grpc.StatusCode:
    """Returns the gRPC code for an error; INTERNAL for what is not in the table."""
    return _CODES.get(error.status, grpc.StatusCode.INTERNAL)


def type_of(error: RouterError) -> str:
    """Returns TGI's type of an error."""
    return error.error_type


class Manner(NamedTuple):
    """How a service tells its clients of errors: by which codes, and by which words for their types."""

    code_of: Callable[[RouterError], grpc.StatusCode] = code_of
    type_of: Callable[[RouterError], str] = type_of


_TGIS = Manner()


class Calls:
    """Wraps calls; `tracing` is None where nothing is traced, `signer` where receipts are not signed."""

    def __init__(self, access: Access, metrics: Metrics, tracing: "Tracing | None",
                 journal: Journal | None = None, signer: Signer | None = None) -> None:
        self._access = access
        self._signer = signer
        self._metrics = metrics
        self._tracing = tracing
        self._journal = journal
        self._num_running = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def until_idle(self) -> None:
        """Waits until no call runs and all answers are sent."""
        await self._is_idle.wait()

    @asynccontextmanager
    async def costly(
        self, context: Context, method: str, manner: Manner = _TGIS, gives_receipts: bool = False
    ) -> AsyncIterator[HttpForm]:
        """Wraps a call that takes the key and is traced; what is raised inside becomes the status of the call. `method`
        has the full name of its service before a slash. One that `gives_receipts` fills in the form that is yielded."""
        metadata = metadata_of(context)
        self._count(context)
        with (request_id.naming(metadata.get(request_id.HEADER)) as name,
              recording(f"/{method}") as record,
              self._traced(method, metadata, context) as tell):
            record.cache_control = metadata.get("cache-control", "")
            trailing: list[tuple[str, str | bytes]] = [(request_id.HEADER, name)]
            context.set_trailing_metadata(trailing)
            error, form = None, HttpForm()
            try:
                if not self._access.may_generate(metadata.get("authorization", "")):
                    raise Unauthorized
                wants = wants_receipt(metadata.get(RECEIPT), gives_receipts)
                yield form
                if wants:
                    trailing.append((TRAILER, await form.receipt(self._signer)))
            except asyncio.CancelledError:
                self._answered(record, Dropped.status)
                tell(_reason_to_end(context).name)
                raise
            except Exception as failure:
                error = to_router_error(failure)
            self._answered(record, error.status if error else 200)
            if record.cache:
                trailing.append((CACHE, record.cache))
            context.set_trailing_metadata(trailing)
            tell(manner.code_of(error).name if error else grpc.StatusCode.OK.name)
        if error is not None:
            await context.abort(manner.code_of(error), details_of(error), (
                ("error_type", manner.type_of(error)), (request_id.HEADER, name)))

    @asynccontextmanager
    async def free(self, context: Context) -> AsyncIterator[None]:
        """Wraps a call that anybody may make; what is raised inside becomes its status."""
        try:
            yield
        except RouterError as error:
            await context.abort(_TGIS.code_of(error), details_of(error), (("error_type", _TGIS.type_of(error)),))

    def check_reader(self, context: Context) -> None:
        """Raises Unauthorized if a client may not read the server's state."""
        if not self._access.may_read_state(metadata_of(context).get("authorization", "")):
            raise Unauthorized

    def _answered(self, record: RequestRecord, status: int) -> None:
        """Counts a call that has ended, and logs it."""
        self._metrics.answered(record.route, status)
        request_log.write(record, status, journal=self._journal)

    def _count(self, context: Context) -> None:
        """Counts a call as running until its client has been sent everything, which is later than its method
        returns."""
        self._num_running += 1
        self._is_idle.clear()
        context.add_done_callback(self._end)

    def _end(self, context: Context) -> None:
        self._num_running -= 1
        if not self._num_running:
            self._is_idle.set()

    @contextmanager
    def _traced(self, method: str, metadata: dict[str, str], context: Context) -> Iterator[Tell]:
        if self._tracing is None:
            yield lambda code: None
            return
        with self._tracing.call(method, metadata, context.peer()) as tell:
            yield tell


def chosen(models: Services, context: Context) -> AbstractAsyncContextManager[Service]:
    """Holds the service of the model that the metadata names, or of the first."""
    return models.using(metadata_of(context).get(MODEL))


def metadata_of(context: Context) -> dict[str, str]:
    """Returns the metadata that is text; of a key that is given twice, the first value."""
    metadata: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            metadata.setdefault(key, value)
    return metadata


def _reason_to_end(context: Context) -> grpc.StatusCode:
    """Returns why a call was cancelled: its deadline has passed, or its client has left."""
    left = context.time_remaining()
    return grpc.StatusCode.CANCELLED if left is None or left > 0 else grpc.StatusCode.DEADLINE_EXCEEDED


async def write(context: Context, message: Any) -> None:
    """Writes a message of a stream; raises Dropped if the client has left, or has not read for too long."""
    try:
        async with asyncio.timeout(UNREAD_SECONDS):
            await context.write(message)
    except (TimeoutError, grpc.aio.InternalError) as error:  # the latter before the call's own task is cancelled
        raise Dropped from error


def details_of(error: RouterError) -> str:
    """Returns the error's message, cut if it is too long to be sent."""
    message = str(error).encode()
    return message.decode() if len(message) <= _MAX_DETAILS else message[:_MAX_DETAILS].decode(errors="ignore") + "…"
