"""The server under load: streams that begin at once, as transformers' continuous batching gets them, too."""

import asyncio
import functools
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

from penstock.bench.gpu.part import LOAD, Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.scale import VLLM, served_name
from penstock.bench.gpu.serving import checkpoint, prompts, served
from penstock.bench.load.apis import APIS
from penstock.bench.load.client import Target
from penstock.bench.load.generator import Concurrency, generate_load
from penstock.bench.load.measurement import Run
from penstock.bench.programs.children import exit_on_sigterm, free_port
from penstock.bench.programs.peers import ServerCommand
from penstock.bench.server.running import running

FLAGS = ("--max-concurrent-requests", "512")


def cases(context: Context) -> Cases:
    exit_on_sigterm()
    with ExitStack() as stack:
        servers = Servers(context, stack)
        yield LOAD, servers.start
        for streams in context.scale.served_streams:
            yield served_name(context.scale, streams), functools.partial(servers.measure, streams)
        yield VLLM, servers.measure_vllm


class Servers:
    """Penstock's server, and then vLLM's on the same model where that is installed. `stack` ends what was started."""

    def __init__(self, context: Context, stack: ExitStack) -> None:
        self._context = context
        self._stack = stack
        self._own = stack.enter_context(ExitStack())
        self._url = ""
        self._model: Path | None = None

    def start(self) -> Record:
        begin = time.monotonic()
        self._model = self._stack.enter_context(checkpoint(self._context.scale))
        written = time.monotonic()
        self._url, _ = self._own.enter_context(served(self._model, FLAGS))
        return self._context.record("start", **{
            "model written, s": written - begin, "ready, s": time.monotonic() - written})

    def measure(self, streams: int) -> Record:
        """Records a load beside what the engine alone makes of as much."""
        name, run = served_name(self._context.scale, streams), self._load(self._url, streams)
        alone = self._context.records.find("engine", name, "tokens/s")
        return self._told(name, run, **{"÷ the engine": run.tokens_per_second / alone})

    def measure_vllm(self) -> Record:
        """Ends Penstock's server, whose memory is needed, and measures vLLM's at the first number of streams."""
        streams, program = self._context.scale.served_streams[0], shutil.which("vllm")
        if program is None or self._model is None:
            return self._context.record(VLLM, note="there is no program vllm")
        self._own.close()
        port = free_port()
        command = [program, "serve", str(self._model), "--port", str(port), "--host", "127.0.0.1",
                   "--max-model-len", "4096", "--no-enable-prefix-caching"]
        environment = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": ""}
        with running(ServerCommand(VLLM, command, environment), port):
            run = self._load(f"http://127.0.0.1:{port}", streams)
        ours = self._context.records.find("server", served_name(self._context.scale, streams), "tokens/s")
        return self._told(VLLM, run, **{"ours ÷ theirs": ours / run.tokens_per_second})

    def _load(self, url: str, streams: int) -> Run:
        """Sends so many requests at once, and then others that are measured."""
        scale, target = self._context.scale, Target(url, APIS["openai"], fields={"ignore_eos": True})
        for seed in (2 * streams, 2 * streams + 1):
            requests = prompts(scale, streams, scale.new, seed)
            run = asyncio.run(generate_load(target, Concurrency(streams), requests))
        return run

    def _told(self, name: str, run: Run, **more: object) -> Record:
        if run.failures:
            return self._context.record(name, is_right=False, failed=len(run.failures), note=str(run.failures[0])[:160])
        return self._context.record(name, is_right=True, **{
            "tokens/s": run.tokens_per_second, "first token, ms": run.percentile("ttft", 50),
            "99 %, ms": run.percentile("ttft", 99), "a token, ms": run.percentile("tpot", 50), **more})
