"""Clients and servers of the services that the files of this folder declare, by their descriptors. Where a file has
several, their names tell them apart."""

from collections.abc import Collection
from types import ModuleType, SimpleNamespace
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass


def services_of(messages: ModuleType) -> list[ServiceDescriptor]:
    """Returns the services of a file, whose messages protoc has made the module `messages` of."""
    return [*messages.DESCRIPTOR.services_by_name.values()]


def service_of(messages: ModuleType, name: str | None = None) -> ServiceDescriptor:
    """Returns a file's service of this `name`, or its only one."""
    [service] = [each for each in services_of(messages) if name in (None, each.name)]
    return service


def stub(channel: Any, messages: ModuleType, name: str | None = None) -> Any:
    """Returns a client of a file's service, with a function for each call. `channel` is one of gRPC's, of either kind.
    """
    service = service_of(messages, name)
    return SimpleNamespace(**{method.name: getattr(channel, _kind(method))(
        f"/{service.full_name}/{method.name}", request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString) for method in service.methods})


def serve(
    server: Any, messages: ModuleType, servicer: object, encoded: Collection[str] = (), name: str | None = None
) -> None:
    """Lets one of gRPC's servers answer those calls of a file's service that are methods of `servicer`. The requests
    of those that `encoded` names come as bytes."""
    service = service_of(messages, name)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, {
        method.name: getattr(grpc, f"{_kind(method)}_rpc_method_handler")(
            call, None if method.name in encoded else GetMessageClass(method.input_type).FromString,
            GetMessageClass(method.output_type).SerializeToString)
        for method in service.methods if (call := getattr(servicer, method.name, None))}),))


def _kind(method: MethodDescriptor) -> str:
    return "_".join("stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming))
