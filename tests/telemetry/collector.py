"""A collector: takes spans by OTLP over gRPC, and keeps them."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class Received:
    """A span, with the attributes of the process that sent it."""

    resource: dict[str, Any]
    span: trace_pb2.Span

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def attributes(self) -> dict[str, Any]:
        return plain(self.span.attributes)

    @property
    def process(self) -> str:
        """`router` or `shard-N`."""
        return str(self.resource["service.instance.id"]).rpartition("-")[0]


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.endpoint = ""
        self.metadata: set[tuple[str, str | bytes]] = set()
        """All that came beside spans."""
        self._received: list[Received] = []
        self._lock = threading.Lock()

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: Any
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.metadata.update((key, value) for key, value in context.invocation_metadata())
        with self._lock:
            for resource in request.resource_spans:
                self._received += [Received(plain(resource.resource.attributes), span)
                                   for scope in resource.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def trace(self, trace_id: bytes) -> list[Received]:
        """What has come of one trace."""
        with self._lock:
            return [received for received in self._received if received.span.trace_id == trace_id]

    def until(self, is_so: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait for what comes from other processes."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError([(received.process, received.name) for received in self._received])
            time.sleep(0.02)


def plain(attributes: Any) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in attributes if isinstance(pair, KeyValue)}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(part) for part in value.array_value.values]
    return getattr(value, kind) if kind else None


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """A collector that listens on a free port, or on `port`."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
