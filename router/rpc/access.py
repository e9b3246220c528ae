"""Who may call: the same key as for HTTP. Health and reflection are open, as `/health` and `/docs` are."""

from collections.abc import Awaitable, Callable

import grpc

from router.api.access import Access

_OPEN = ("/grpc.health.v1.Health/", "/grpc.reflection.")


class KeyInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Ends calls without the key before their request is read."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler = await continuation(details)
        given = dict(details.invocation_metadata).get("authorization", "")
        if handler is None or details.method.startswith(_OPEN) or self._access.admits(given):
            return handler
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(_refuse)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_: bytes, context: grpc.aio.ServicerContext) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the key is missing or wrong: authorization: Bearer KEY")
