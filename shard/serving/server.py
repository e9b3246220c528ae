"""Serves protos/shard.proto over gRPC. Orders are read on the event loop, steps run on the worker's thread.

A second stream takes the place of the first, which is aborted. There is one router to a group, so a second stream means
that the first one's router is dead, or has given up on it, and only this shard has not noticed yet: over TCP that can
take minutes. Refusing the new stream would make every recovery wait for the old one. A stream takes over with its first
valid `stream_limits`; one that says nothing changes nothing.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from penstock.contract import wire
from penstock.contract.plan import Plan
from penstock.contract.shard_facts import ShardFacts
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.protos import services, shard_pb2
from penstock.shard.adapters.store import AdapterStore
from penstock.shard.config import ShardConfig
from penstock.shard.execution.masks import LateMasks, Masks
from penstock.shard.process import ParentWatch
from penstock.shard.serving import resting
from penstock.shard.serving.checks import check_row
from penstock.shard.serving.draining import Draining
from penstock.shard.serving.worker import Order, Worker
from penstock.system import peers
from penstock.system.fields import FileError
from penstock.system.wire_tls import WireTls

log = logging.getLogger(__name__)

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),            # a port that is taken is an error
]
_SOCKET_OPTIONS = [("grpc.keepalive_time_ms", 20_000), ("grpc.keepalive_timeout_ms", 10_000)]
_TCP_OPTIONS = [
    ("grpc.keepalive_time_ms", 2000),    # finds routers that died with their machine, and cut wires
    ("grpc.keepalive_timeout_ms", 1500),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.max_ping_strikes", 0),  # routers ping as often
]
MAX_MESSAGE = 1000                       # characters
QUIET_SECONDS = 1.0                      # without a step, after which an orphan that drains has nothing left to do
ENCODED = {"Execute"}                    # calls whose requests come as bytes
_LAST_WORDS = 2.0                        # seconds in which a shard that ends still sends the results that it has


class StreamError(NamedTuple):
    """Ends one stream, with a gRPC status and a message."""

    code: grpc.StatusCode
    message: str


class Stream:
    """Stands for one Execute call: holds its answers on their way out, and whether it still lasts. Usable from any
    thread."""

    def __init__(self, vocab_size: int) -> None:
        self.ended = threading.Event()
        self.late_masks = LateMasks(vocab_size)
        self._loop = asyncio.get_running_loop()
        self.answers: asyncio.Queue[StepResult | StreamError | None] = asyncio.Queue()

    def masks(self, step_id: int) -> Masks:
        return self.late_masks.take(step_id)

    def answer(self, result: StepResult | StreamError | None) -> None:
        """Queue a result, the error that ends the stream, or None for its end."""
        self._loop.call_soon_threadsafe(self.answers.put_nowait, result)

    def fail(self, code: grpc.StatusCode, message: str) -> None:
        self.answer(StreamError(code, message))

    def abort(self, message: str) -> None:
        """End the stream with a message, unless it has ended."""
        if not self.ended.is_set():
            self.end()
            self.fail(grpc.StatusCode.ABORTED, message)

    def end(self) -> None:
        """Skip the orders of the stream that still wait, and let nothing wait for its masks."""
        self.ended.set()
        self.late_masks.end()

    def drop(self) -> None:
        self.abort("another shard of the group has a newer stream: open one to every shard")


class ShardServicer:
    """Answers the calls of protos/shard.proto; by the Unix socket at `path` only those of this process's user."""

    def __init__(
        self, facts: ShardFacts, worker: Worker, path: Path | None = None, adapters: AdapterStore | None = None,
        is_draining: bool = False,
    ) -> None:
        self._facts = facts
        self._draining = Draining(is_draining)
        self._adapters = adapters or AdapterStore(None)
        self._worker = worker
        self._path = path
        self._current: Stream | None = None

    @property
    def has_stream(self) -> bool:
        """Whether a router holds the newest stream open."""
        return self._current is not None and not self._current.ended.is_set()

    async def Describe(self, request: shard_pb2.DescribeRequest, context: Any) -> shard_pb2.Facts:
        self._cut_off_strangers()
        return wire.encode_facts(self._facts)

    async def Health(self, request: shard_pb2.HealthRequest, context: Any) -> shard_pb2.HealthReply:
        self._cut_off_strangers()
        progress, now = self._worker.progress, time.monotonic()
        return shard_pb2.HealthReply(
            steps_begun=progress.steps_begun,
            steps_ended=progress.steps_ended,
            began_seconds_ago=now - progress.began_at,
            ended_seconds_ago=now - progress.ended_at,
            is_draining=self._draining.is_on,
            has_stream=self.has_stream)

    async def Follow(self, request: shard_pb2.FollowRequest, context: Any) -> AsyncIterator[shard_pb2.GroupState]:
        self._cut_off_strangers()
        async for is_draining in self._draining.follow():
            yield shard_pb2.GroupState(is_draining=is_draining)

    async def Drain(self, request: shard_pb2.DrainRequest, context: Any) -> shard_pb2.DrainReply:
        if obstacle := self._cut_off_strangers():
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, obstacle)
        if self._facts.rank:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION,
                                f"this is rank {self._facts.rank}: the group is drained by the shard of rank 0")
        self._draining.set(request.is_draining)
        return shard_pb2.DrainReply()

    async def Execute(
        self, request_iterator: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[shard_pb2.StepResult]:
        """Answers a stream of orders, which come as they were encoded: so ranks can compare them."""
        if obstacle := self._cut_off_strangers():  # which connection the call came by is not told: it may be theirs
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, obstacle)
        stream = Stream(self._facts.facts.vocab_size)
        reader = asyncio.create_task(self._read(request_iterator, stream))
        try:
            while (answer := await stream.answers.get()) is not None:
                if isinstance(answer, StreamError):
                    await _fail(context, answer)
                else:
                    yield wire.encode_result(answer)
        finally:
            stream.end()
            reader.cancel()

    async def LoadAdapter(self, request: shard_pb2.LoadAdapterRequest, context: Any) -> shard_pb2.LoadAdapterReply:
        if obstacle := self._cut_off_strangers():
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, obstacle)
        loading = self._adapters.load(request.adapter, Path(request.path), request.digest, request.epoch)
        num_bytes = 0
        try:
            num_bytes = await asyncio.wrap_future(loading)
        except FileError as error:
            log.warning("adapter %d is not loaded: %s", request.adapter, error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _short(str(error)))
        return shard_pb2.LoadAdapterReply(num_bytes=num_bytes)

    async def UnloadAdapter(
        self, request: shard_pb2.UnloadAdapterRequest, context: Any
    ) -> shard_pb2.UnloadAdapterReply:
        if obstacle := self._cut_off_strangers():
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, obstacle)
        self._adapters.unload(request.adapter, request.epoch)
        return shard_pb2.UnloadAdapterReply()

    def drain(self) -> None:
        """Has routers move what the group computes to others."""
        self._draining.set(True)

    @property
    def is_computing(self) -> bool:
        """Whether a step runs, or has run just now."""
        progress = self._worker.progress
        return progress.steps_begun > progress.steps_ended or time.monotonic() - progress.ended_at < QUIET_SECONDS

    def end(self) -> None:
        """Ends the newest stream behind the results that it still has, and what followers are told."""
        self._draining.end()
        if self._current and self.has_stream:
            self._current.end()
            self._current.answer(None)

    def _cut_off_strangers(self) -> str | None:
        """Ends the connections of other users, whom no answer can reach then; returns what was logged of that."""
        if self._path is None or not (strangers := peers.cut_off_strangers(str(self._path))):
            return None
        message = f"user {min(strangers)}, who is neither this shard's nor root, is cut off from {self._path}"
        log.warning("%s", message)
        return message

    async def _read(self, orders: AsyncIterator[bytes], stream: Stream) -> None:
        step_id = -1                     # -1: not yet open
        try:
            async for encoded in orders:
                message = shard_pb2.Order.FromString(encoded)
                kind = message.WhichOneof("kind")
                if kind == "masks" and step_id >= 0:
                    self._take_masks(message.masks, stream)
                    continue
                if step_id < 0:
                    if kind != "stream_limits":
                        raise ValueError("the first order of a stream must be stream_limits")
                    work: StreamLimits | Plan = wire.decode_stream_limits(message.stream_limits)
                    self._take_over(stream)
                else:
                    if kind != "plan":
                        raise ValueError("every order of a stream but its first must be a plan or masks")
                    work = wire.decode_plan(message.plan, step_id, check_row)
                    if self._facts.answers:
                        stream.late_masks.expect(work)
                self._worker.submit(Order(stream, work, encoded))
                step_id += 1
            if waiting := stream.late_masks.expected_steps:
                raise ValueError(f"the orders ended before the masks of the steps {waiting}")
            self._worker.submit(Order(stream, None))
        except (ValueError, DecodeError) as error:
            stream.fail(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _take_masks(self, message: shard_pb2.Masks, stream: Stream) -> None:
        if not self._facts.answers:
            raise ValueError("masks are for the shard that answers, which has rank "
                             f"{self._facts.facts.answering_rank}; this one has {self._facts.rank}")
        stream.late_masks.put(message.step_id, wire.decode_masks(message))

    def _take_over(self, stream: Stream) -> None:
        if self._current:
            self._current.abort("a newer stream took the place of this one")
        self._current = stream


async def _fail(context: Any, error: StreamError) -> None:
    """Ends a call with an error, which is logged if the router is there to hear it: when a router leaves, its orders
    end too, at any place, and this call is cancelled a moment later."""
    try:
        await context.abort(*error)
    except grpc.aio.AbortError:
        log.warning("stream ended: %s", error.message)
        raise


def _short(message: str) -> str:
    """Cuts a message that gRPC would not carry: it allows 16 KiB of metadata, in which a character takes up to 12."""
    return message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"


def _credentials(tls: WireTls) -> grpc.ServerCredentials:
    """Returns credentials that admit clients with a certificate of the CA alone. The files are read anew for each of
    them that comes, since they may be renewed; what can't be read then leaves what was read last."""
    def read() -> grpc.ServerCertificateConfiguration:
        ca, cert, key = tls.read()
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=ca)

    def renew() -> grpc.ServerCertificateConfiguration | None:
        try:
            return read()
        except OSError as error:
            log.warning("the certificates for routers can't be read again: %s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(read(), renew, require_client_authentication=True)


def _leaving(servicer: ShardServicer) -> Callable[[], bool]:
    """Returns the function that tells whether routers still need a shard without a launcher, which may have other
    groups: it has them move what it computes. Its port is free the sooner for the next launcher."""
    loop, since = asyncio.get_running_loop(), math.inf

    def is_needed() -> bool:
        nonlocal since
        since = min(since, time.monotonic())
        loop.call_soon_threadsafe(servicer.drain)
        return servicer.has_stream and (servicer.is_computing or time.monotonic() - since < QUIET_SECONDS)

    return is_needed


async def serve(
    config: ShardConfig, facts: ShardFacts, worker: Worker, tell_ready: Callable[[], None] = lambda: None,
    watch: ParentWatch | None = None, adapters: AdapterStore | None = None,
) -> bool:
    """Listen until SIGTERM or SIGINT, or until the shard is to rest; then the running step ends, and no other begins.
    Returns whether it can rest. Raises OSError if it cannot listen."""
    stop: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    resting.on_signals(stop, resting.REST if config.may_rest else None)
    server = grpc.aio.server(options=[*_OPTIONS, *(_SOCKET_OPTIONS if config.socket_path else _TCP_OPTIONS)])
    servicer = ShardServicer(facts, worker, config.socket_path, adapters, config.is_draining)
    services.serve(server, shard_pb2, servicer, ENCODED)
    try:
        if config.shard_tls is None:
            server.add_insecure_port(config.listen)
        else:
            server.add_secure_port(config.listen, _credentials(config.shard_tls))
    except RuntimeError as error:
        raise OSError(f"`listen` {config.listen}: cannot listen there: {error}") from error
    if config.socket_path is not None:
        config.socket_path.chmod(0o600)
    if watch is not None:
        watch.is_needed = (lambda: servicer.has_stream) if config.socket_path else _leaving(servicer)
    tell_ready()  # not later: the first step may kill this process, and its parent must have heard that it got this far
    await server.start()
    log.info("listening on %s", config.listen)
    is_to_rest = await stop
    is_quiet = await asyncio.to_thread(worker.stop)
    servicer.end()
    await server.stop(_LAST_WORDS)
    return is_to_rest and is_quiet
