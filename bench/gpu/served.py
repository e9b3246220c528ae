"""The whole server on a random model, launcher, router and shards as users start them, under load: streams that begin
at once, as transformers' continuous batching gets them, too."""

import asyncio
import functools
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.scale import VLLM, Scale, served_name
from penstock.bench.gpu.weights import write_model
from penstock.bench.load.apis import APIS, Prompt
from penstock.bench.load.client import Target
from penstock.bench.load.generator import Concurrency, generate_load
from penstock.bench.load.measurement import Run
from penstock.bench.programs.children import exit_on_sigterm, free_port
from penstock.bench.programs.peers import ServerCommand
from penstock.bench.programs.root import ROOT
from penstock.bench.server.running import running

FLAGS = ("--max-concurrent-requests", "512")
LAUNCH = "from penstock.launcher.entry import launcher; launcher()"
"""The program of the installed command; here nothing is installed."""


def cases(context: Context) -> Cases:
    exit_on_sigterm()
    with ExitStack() as stack:
        servers = Servers(context, stack)
        yield "load", servers.start
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
        self._url = self._own.enter_context(served(self._model))
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


@contextmanager
def checkpoint(scale: Scale) -> Iterator[Path]:
    """Yields the directory of a model whose tokens are words, and gives back the device memory that it took to make."""
    with TemporaryDirectory() as folder:
        write_model(Path(folder), scale)
        words = {f"w{number}": number for number in range(scale.vocab_size)}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.save(str(Path(folder) / "tokenizer.json"))
        (Path(folder) / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        yield Path(folder)


def prompts(scale: Scale, number: int, new: int, seed: int) -> list[Prompt]:
    """Returns prompts of the scale's length, with nothing in common."""
    random = Random(seed)
    return [Prompt(" ".join(f"w{token}" for token in random.choices(range(3, scale.vocab_size), k=scale.prompt)), new)
            for _ in range(number)]


@contextmanager
def served(model: Path) -> Iterator[str]:
    """Yields the address of a server that is ready. Raises ClickException if it does not start.

    Where there is no GPU the processor's kernels serve: in Triton's interpreter an answer would take minutes.
    """
    port = free_port()
    command = [sys.executable, "-c", LAUNCH, "--model-id", str(model), "--hostname", "127.0.0.1", "--port", str(port),
               *FLAGS]
    environment = {"PYTHONPATH": str(ROOT), **({} if torch.cuda.is_available() else {"KERNELS": "cpu"})}
    with running(ServerCommand("Penstock", command, environment), port):
        yield f"http://127.0.0.1:{port}"
