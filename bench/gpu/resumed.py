"""A shard of a server that keeps the bit contract is killed while its streams run: they must go on where they paused,
with the tokens and logprobs that they have undisturbed."""

import asyncio
import itertools
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import aiohttp
import orjson

from penstock.bench.gpu.part import LOAD, Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.serving import checkpoint, prompts, served
from penstock.bench.load.apis import Prompt
from penstock.bench.programs.children import Child, exit_on_sigterm

FLAGS = ("--deterministic", "--max-concurrent-requests", "512")
LAYERS = 2
BEGUN = 3                                # tokens that each stream has when the shard is killed
TIMEOUT = aiohttp.ClientTimeout(total=300)


@dataclass
class Stream:
    """The events of one stream and their times: token ids with their logprobs, or errors."""

    tokens: list[tuple[int, float]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def pause(self) -> float:
        """Returns the longest time between two tokens."""
        return max((after - before for before, after in itertools.pairwise(self.times)), default=0.0)


def cases(context: Context) -> Cases:
    exit_on_sigterm()
    with ExitStack() as stack:
        trial = Trial(context, stack)
        yield LOAD, trial.start
        yield "undisturbed", trial.run_undisturbed
        yield "a shard is killed", trial.run_killed


class Trial:
    """A server on a model of few layers, and the same streams twice."""

    def __init__(self, context: Context, stack: ExitStack) -> None:
        model = context.scale.model
        self._scale = replace(
            context.scale, model={**model, "num_hidden_layers": min(LAYERS, model["num_hidden_layers"])})
        self._context = context
        self._stack = stack
        self._url = ""
        self._child: Child | None = None
        self._undisturbed: list[Stream] = []

    def start(self) -> Record:
        model = self._stack.enter_context(checkpoint(self._scale))
        begin = time.monotonic()
        self._url, self._child = self._stack.enter_context(served(model, FLAGS))
        return self._context.record("start", **{"ready, s": time.monotonic() - begin})

    def run_undisturbed(self) -> Record:
        self._undisturbed = asyncio.run(self._streams(is_killed=False))
        return self._told("undisturbed", self._undisturbed)

    def run_killed(self) -> Record:
        streams = asyncio.run(self._streams(is_killed=True))
        equal = sum(one.tokens == other.tokens for one, other in zip(streams, self._undisturbed, strict=True))
        told = self._told("a shard is killed", streams)
        return replace(told, is_right=bool(told.is_right) and equal == len(streams), values={
            **told.values, "equal": equal, "of": len(streams)})

    def _told(self, name: str, streams: list[Stream]) -> Record:
        errors = [error for stream in streams for error in stream.errors]
        is_whole = all(len(stream.tokens) == self._scale.resumed_new for stream in streams)
        note = {"note": errors[0][:160]} if errors else {}
        return self._context.record(name, is_right=is_whole and not errors, **{
            "longest pause, s": max(stream.pause for stream in streams), **note})

    async def _streams(self, is_killed: bool) -> list[Stream]:
        """Runs all streams, through a kill if one is wanted."""
        scale = self._scale
        requests = prompts(scale, scale.resumed_streams, scale.resumed_new, seed=0)
        streams = [Stream() for _ in requests]
        async with aiohttp.ClientSession(self._url, timeout=TIMEOUT) as session, asyncio.TaskGroup() as tasks:
            for seed, (request, stream) in enumerate(zip(requests, streams, strict=True)):
                tasks.create_task(read_stream(session, request, seed, stream))
            if is_killed:
                tasks.create_task(self._kill(streams))
        return streams

    async def _kill(self, streams: list[Stream]) -> None:
        """Kills the shard once all streams have begun."""
        while any(len(stream.tokens) < BEGUN and not stream.errors for stream in streams):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if self._child is None:
            raise RuntimeError("the server was not started")
        next(process for process in self._child.family() if "penstock.shard" in process.cmdline()).kill()


async def read_stream(session: aiohttp.ClientSession, request: Prompt, seed: int, stream: Stream) -> None:
    """Asks for one stream, and notes what comes of it; every other one is sampled."""
    sampling = {"do_sample": True, "seed": seed, "temperature": 0.8, "top_p": 0.95} if seed % 2 else {}
    parameters = {"max_new_tokens": request.output_tokens, **sampling}
    async with session.post("/generate_stream", json={"inputs": request.text, "parameters": parameters}) as response:
        async for line in response.content:
            if line.startswith(b"data:"):
                event = orjson.loads(line[5:])
                if "token" in event:
                    stream.tokens.append((event["token"]["id"], event["token"]["logprob"]))
                    stream.times.append(time.perf_counter())
                else:
                    stream.errors.append(str(event))
