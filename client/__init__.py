"""Clients in Python for one server or several, by which no answer is lost when one of them dies; imports none of our
packages."""

from penstock.client.async_client import AsyncClient, AsyncStream
from penstock.client.errors import (
    AnotherAnswer,
    ClientError,
    GenerationFailed,
    InvalidRequest,
    Overloaded,
    Refused,
    ServerFault,
    Unauthorized,
    Unreachable,
)
from penstock.client.sync_client import Client, Stream

__all__ = [
    "AnotherAnswer", "AsyncClient", "AsyncStream", "Client", "ClientError", "GenerationFailed", "InvalidRequest",
    "Overloaded", "Refused", "ServerFault", "Stream", "Unauthorized", "Unreachable"]
