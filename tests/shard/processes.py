"""Real shard processes, and a client that can be as careless as a router that is being killed."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.stream_limits import StreamLimits
from penstock.contract.wire import decode_result, encode_masks, encode_plan, encode_stream_limits
from penstock.protos import services, shard_pb2
from tests.paths import ROOT
from tests.shard.forked import ForkedShard
from tests.shard.step_programs import Program

LIMITS = StreamLimits(epoch=1, max_slots=64, max_step_tokens=1 << 20, max_blocks_per_slot=256)
SECONDS = 60.0


class Shard:
    """One `python -m penstock.shard`, forked unless it is given file descriptors. Its output goes to the file `log`."""

    def __init__(self, folder: Path, *, rank: int = 0, pass_fds: Sequence[int] = (), **settings: Any) -> None:
        self.socket = folder / f"{rank}.sock"
        self.log = folder / f"{rank}.log"
        config = {"rank": rank, "listen": f"unix:{self.socket}", "threads": 1, **settings}
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.log.write_text("")
        self.process: ForkedShard | subprocess.Popen[bytes]
        if not pass_fds:
            self.process = ForkedShard(json.dumps(config), self.log, variables)
            return
        command = [sys.executable, "-m", "penstock.shard", "--config", json.dumps(config)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stderr=log, stdout=log, env=variables, pass_fds=pass_fds)

    def wait_until_listening(self) -> None:
        """Waits for an accepted connection. The socket's file is there a moment before anybody listens at it."""
        deadline = time.monotonic() + SECONDS
        while not self._accepts():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def _accepts(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0

    def kill(self) -> None:
        """SIGKILL; nothing is left at its address."""
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)

    def end(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


@contextmanager
def running(folder: Path, *, world_size: int = 1, **settings: Any) -> Iterator[list[Shard]]:
    """A group that listens. Afterwards no process and no socket of it is left, and each ended with 0."""
    if world_size > 1:
        settings |= {"world_size": world_size, "rendezvous": f"file://{folder / 'store'}"}
    shards = [Shard(folder, rank=rank, **settings) for rank in range(world_size)]
    try:
        for shard in shards:
            shard.wait_until_listening()
        yield shards
        assert [shard.process.poll() for shard in shards] == [None] * world_size
        assert [shard.end() for shard in shards] == [0] * world_size
        assert not any(shard.socket.exists() for shard in shards)
        assert not any("Traceback" in shard.log.read_text() for shard in shards)
    finally:
        for shard in shards:
            shard.process.kill()
            shard.process.wait()


class Client:
    """A router's end of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._channel = grpc.insecure_channel(f"unix:{shard.socket}")
        self.stub = services.stub(self._channel, shard_pb2)

    def open(self, limits: StreamLimits = LIMITS) -> "ClientStream":
        """The streams of one router have the same limits, epoch included; no other router's have."""
        stream = ClientStream(self.stub)
        stream.write(encode_stream_limits(limits))
        return stream

    def close(self) -> None:
        self._channel.close()


class ClientStream:
    def __init__(self, stub: Any) -> None:
        self._orders: queue.SimpleQueue[shard_pb2.Order | None] = queue.SimpleQueue()
        self._call = stub.Execute(iter(self._orders.get, None), timeout=SECONDS)

    def write(self, *orders: shard_pb2.Order) -> None:
        for order in orders:
            self._orders.put(order)

    def read(self) -> shard_pb2.StepResult:
        """Raises grpc.RpcError when the stream broke, StopIteration when it ended."""
        return next(self._call)

    def done_writing(self) -> None:
        self._orders.put(None)

    def cancel(self) -> None:
        self._call.cancel()
        self._orders.put(None)


def new_epoch() -> StreamLimits:
    """The limits with which a router opens its streams, all of them."""
    return replace(LIMITS, epoch=time.time_ns())


@contextmanager
def clients(shards: Sequence[Shard]) -> Iterator[list[Client]]:
    """What a router does: a client to each shard, all gone at the end."""
    opened = [Client(shard) for shard in shards]
    try:
        yield opened
    finally:
        for client in opened:
            client.close()


def write_program(streams: Sequence[ClientStream], program: Program, vocab_size: int = 8192) -> None:
    """All plans to each shard, and then all masks to the one of these that answers, the first."""
    for stream in streams:
        stream.write(*map(encode_plan, program.steps))
    for index, step in enumerate(program.steps):
        if masks := program.masks(index, vocab_size):
            streams[0].write(encode_masks(step.step_id, {slot: bits.tobytes() for slot, bits in masks.items()}))


def run_over_wire(
    streams: Sequence[ClientStream], program: Program, vocab_size: int = 8192
) -> list[list[tuple[int, float]]]:
    """Tokens and logprobs per request, with all orders sent before any result is read. The streams are open already,
    that of the shard that answers first."""
    write_program(streams, program, vocab_size)
    outputs: list[list[tuple[int, float]]] = [[] for _ in range(program.limits.max_slots)]
    for step, owners in zip(program.steps, program.owners, strict=True):
        results = [stream.read() for stream in streams]
        assert [result.step_id for result in results] == [step.step_id] * len(results)
        assert not any(rows_of(result) for result in results[1:])
        outputs_of(step, owners, results[0], outputs)
    return outputs


def outputs_of(
    step: Plan, owners: Sequence[int], result: shard_pb2.StepResult, outputs: list[list[tuple[int, float]]]
) -> None:
    """Appends the tokens of a step's rows to the outputs of their requests; `owners` are in the order of the rows."""
    rows = rows_of(result)
    for owner, slot in zip(owners, [row.slot for row in step.rows if row.slot in rows], strict=True):
        outputs[owner] += zip(rows[slot].token_ids, rows[slot].logprobs, strict=True)


def rows_of(result: shard_pb2.StepResult) -> dict[int, RowResult]:
    """Returns the rows of a result by slot, as the router reads them."""
    return {row.slot: row for row in decode_result(result).rows}
