"""The client of one shard: a gRPC channel and the one stream of orders and results."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import grpc

from penstock.contract import wire
from penstock.contract.shard_facts import ShardFacts
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.protos import services, shard_pb2
from penstock.router.fleet.errors import AdapterRefusedError, FleetError
from penstock.system import addresses, peers
from penstock.system.wire_tls import ADVICE, WireTls

_Reply = TypeVar("_Reply")
_EXECUTE = f"/{services.service_of(shard_pb2).full_name}/Execute"
LOAD_SECONDS, UNLOAD_SECONDS = 120.0, 30.0
"""How long a shard may take to load an adapter, from a slow disk, and to forget one."""
WAIT_SECONDS = 30.0
"""For how long a shard is waited for with the certificates of one look at their files."""
DRAIN_SECONDS = 10.0
"""How long a shard may take to hear that its group drains."""
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A shard that loads its model refuses connections until it listens: look again soon, not after gRPC's seconds.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]
_SOCKET_OPTIONS = [("grpc.min_reconnect_backoff_ms", 50)]
_TCP_OPTIONS = [
    ("grpc.min_reconnect_backoff_ms", 3000),  # what it may take to connect, and to look at certificates
    # Cut wires are noticed within 4 s, whatever runs.
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 1500),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
]


@dataclass(frozen=True, slots=True)
class Health:
    """Counts a shard's steps since it started; at most one runs at a time."""

    steps_begun: int
    steps_ended: int
    began_seconds_ago: float
    """The seconds since the last step began; 0 before the first one."""
    ended_seconds_ago: float = 0.0
    is_draining: bool = False
    has_stream: bool = False
    """Whether a router holds a stream of orders open."""

    @property
    def is_in_step(self) -> bool:
        return self.steps_begun > self.steps_ended


def _channel(target: str, tls: WireTls | None) -> grpc.aio.Channel:
    if target.startswith("unix:"):
        return grpc.aio.insecure_channel(target, options=[*_OPTIONS, *_SOCKET_OPTIONS])
    options = [*_OPTIONS, *_TCP_OPTIONS]
    if tls is None:
        if not addresses.is_loopback(addresses.split(target)[0]):
            raise FleetError(f"shard {target} is not reached in the clear: {ADVICE}")
        return grpc.aio.insecure_channel(target, options=options)
    try:
        ca, cert, key = tls.read()
    except OSError as error:
        raise FleetError(f"shard {target}: cannot read {error.filename}: {error.strerror}") from error
    return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(ca, key, cert),
                                   options=[*options, ("grpc.ssl_target_name_override", tls.name)])


class ShardClient:
    """Writes orders to a shard and reads results; `target` is its gRPC address, unix:/path or HOST:PORT, and `tls` what
    protects the connection to the latter. Every method may raise FleetError; so may the constructor, for an address
    that is not to be reached in the clear, or certificates that can't be read."""

    def __init__(self, target: str, tls: WireTls | None = None) -> None:
        self.target = target
        self._tls = tls
        self._use(_channel(target, tls))
        self._stream: grpc.aio.StreamStreamCall | None = None
        self._ended = asyncio.Event()
        self._epoch = 0

    def _use(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub = services.stub(self._channel, shard_pb2)
        # Unlike the stub's, it takes orders that are encoded already.
        self._execute = self._channel.stream_stream(
            _EXECUTE, request_serializer=None, response_deserializer=shard_pb2.StepResult.FromString)

    async def describe(self) -> ShardFacts:
        """Waits until the shard has loaded its model, however long that takes, and returns its facts."""
        await self._reached()
        message = await self._guard(self._stub.Describe(shard_pb2.DescribeRequest(), wait_for_ready=True))
        self._check_user()
        return wire.decode_facts(message)

    async def health(self, max_seconds: float) -> Health:
        """Asks for the shard's health. Raises FleetError if no answer comes within `max_seconds`, as while the shard
        loads its model."""
        message = await self._guard(
            self._stub.Health(shard_pb2.HealthRequest(), timeout=max_seconds, wait_for_ready=True))
        return Health(message.steps_begun, message.steps_ended, message.began_seconds_ago, message.ended_seconds_ago,
                      message.is_draining, message.has_stream)

    async def follow(self) -> AsyncGenerator[bool, None]:
        """Waits for the shard, and yields whether its group drains: at once, and then whenever that changes. Raises
        FleetError once the shard is lost."""
        await self._reached()
        states = self._stub.Follow(shard_pb2.FollowRequest(), wait_for_ready=True)
        while (state := await self._guard(states.read())) is not grpc.aio.EOF:
            self._check_user()
            yield state.is_draining
        raise FleetError(f"shard {self.target} ended")

    async def drain(self, is_draining: bool) -> None:
        """Has the group, whose rank 0 this shard is, drain, or take sequences again."""
        request = shard_pb2.DrainRequest(is_draining=is_draining)
        await self._guard(self._stub.Drain(request, timeout=DRAIN_SECONDS))

    async def load_adapter(self, number: int, path: str, digest: str) -> int:
        """Has the shard load an adapter; returns how many bytes it takes there. Raises AdapterRefusedError, also if
        that takes too long."""
        request = shard_pb2.LoadAdapterRequest(
            adapter=number, path=path, digest=digest, epoch=self._epoch)
        reply = await self._guard(self._stub.LoadAdapter(request, timeout=LOAD_SECONDS), may_refuse=True)
        return int(reply.num_bytes)

    async def unload_adapter(self, number: int) -> None:
        """Has the shard forget an adapter, if it has it."""
        request = shard_pb2.UnloadAdapterRequest(adapter=number, epoch=self._epoch)
        await self._guard(self._stub.UnloadAdapter(request, timeout=UNLOAD_SECONDS))

    async def open(self, limits: StreamLimits) -> None:
        """Starts the stream of orders; the shard clears its slots."""
        self._stream = self._execute()
        # A call keeps a future of each wait for its end, though that was cancelled; an event does not.
        self._ended = asyncio.Event()
        self._stream.add_done_callback(lambda _, ended=self._ended: ended.set())
        self._epoch = limits.epoch
        await self.write(wire.encode_stream_limits(limits).SerializeToString())
        self._check_user()

    async def write(self, order: bytes) -> None:
        """Sends an `Order`, which the caller has encoded."""
        assert self._stream is not None, "the stream is not open"
        await self._guard(self._stream.write(order))

    async def read(self) -> StepResult:
        assert self._stream is not None, "the stream is not open"
        message = await self._guard(self._stream.read())
        if message is grpc.aio.EOF:
            raise FleetError(f"shard {self.target} ended the stream")
        return wire.decode_result(message)

    async def end(self) -> None:
        """Waits until the shard ends the stream, as when it dies; raises FleetError then."""
        assert self._stream is not None, "the stream is not open"
        await self._ended.wait()
        code = await self._stream.code()
        details = await self._stream.details()
        raise FleetError(f"shard {self.target} ended the stream: {code.name}: {details}", _is_outside(details))

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        await self._channel.close()

    async def _reached(self) -> None:
        """Waits until the shard listens, with a new connection now and then: the certificates may be renewed meanwhile,
        and a channel uses those that it was made with."""
        while self._tls is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._channel.channel_ready()
                    return
            with suppress(FleetError):  # the files can't be read, as while they are being renewed
                before = self._channel
                self._use(_channel(self.target, self._tls))
                await before.close()

    def _check_user(self) -> None:
        """Raises FleetError unless it is this user, or root, who listens at a shard's Unix socket."""
        scheme, _, path = self.target.partition(":")
        if scheme != "unix":
            return
        users = peers.listeners(path)
        if not users:
            raise FleetError(f"shard {self.target}: the connection is lost, or is to a socket of another name")
        if not any(map(peers.is_trusted, users)):
            raise FleetError(f"shard {self.target}: user {min(users)} listens there, not user {os.geteuid()}, as whom "
                             "this router runs")

    async def _guard(self, call: Awaitable[_Reply], may_refuse: bool = False) -> _Reply:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            if may_refuse and error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise AdapterRefusedError(error.details()) from error
            if may_refuse and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise AdapterRefusedError(f"it was not loaded within {LOAD_SECONDS:g} s") from error
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise FleetError(f"shard {self.target} knows no {services.service_of(shard_pb2).full_name}: shards and "
                                 "routers must be of one version of Penstock") from error
            raise FleetError(f"shard {self.target}: {error.code().name}: {error.details()}",
                             _is_outside(error.details())) from error
        except asyncio.InvalidStateError as error:  # the stream ended before the write, as when a shard died at idle
            raise FleetError(f"shard {self.target} ended the stream") from error


def _is_outside(details: str | None) -> bool:
    """Tells by gRPC's words whether the wire was cut, which no request does: the shard's end of it is silent, where a
    process that dies has its system close the connection."""
    return any(words in (details or "") for words in ("watchdog timeout", "timed out", "ping timeout"))
