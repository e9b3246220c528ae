"""How fast a server answers: throughput, latency and processor time against concurrency, as a table and a picture.

`python -m penstock.bench.serve` measures Penstock, and vLLM and llama.cpp beside it where they are named: one after the
other they start on the same model, get the same random prompts over /v1/completions, and end. Writes build/bench.png.
FLAGS go to Penstock's launcher.
"""

import asyncio
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click

from penstock.bench.children import ROOT, Child, exit_on_sigterm
from penstock.bench.load import Load, generate_load, percentile
from penstock.bench.model import existing_model
from penstock.bench.peers import DIRECTORY, ServerCommand, find_peers, own_server, peer_options
from penstock.bench.picture import draw
from penstock.bench.prompts import PromptWriter
from penstock.shard.config import physical_cores
from tests.e2e.server import free_port

PICTURE = ROOT / "build" / "bench.png"
START_TIMEOUT = 900.0                    # vLLM compiles when it starts for the first time
HEADER = ("concurrency  tokens/s   first token ms, p50 p99   per token ms, p50   between chunks ms, p50 p99   failed   "
          "CPU s per 1,000 tokens: all  router  shards")

Commands = Sequence[Callable[[int], ServerCommand]]
"""Each makes the command of one server for a port."""


@contextmanager
def running(server: ServerCommand, port: int) -> Iterator[Child]:
    """The server, once it is ready."""
    with (tempfile.TemporaryDirectory() as folder,
          Child(server.name, server.command, Path(folder), server.environment) as child):
        wait_until_ready(child, f"http://127.0.0.1:{port}")
        yield child
        if child.process.poll() is not None:
            raise child.failure(f"ended with {child.process.returncode} under load")


def wait_until_ready(child: Child, url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not is_ready(url):
        if child.process.poll() is not None:
            raise child.failure(f"ended with {child.process.returncode} before it was ready")
        if time.monotonic() > deadline:
            raise child.failure(f"was not ready after {START_TIMEOUT:g} s")
        time.sleep(0.05)


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


class Comparison:
    """The same loads for every server. `loads`: by server and concurrency, one for each round."""

    def __init__(self, writer: PromptWriter, concurrency: Sequence[int], requests: int, prompt: int, new: int) -> None:
        self.loads: dict[str, dict[int, list[Load]]] = defaultdict(lambda: defaultdict(list))
        self._writer = writer
        self._concurrency = concurrency
        self._requests = requests
        self._prompt = prompt
        self._new = new

    def run_round(self, commands: Commands) -> None:
        prompts = {number: self._write(number * self._requests) for number in self._concurrency}
        for command in commands:
            self._measure(command, prompts)

    def _write(self, number: int) -> list[str]:
        return [self._writer.write() for _ in range(number)]

    def _measure(self, command: Callable[[int], ServerCommand], prompts: dict[int, list[str]]) -> None:
        port = free_port()
        server, start = command(port), time.monotonic()
        click.echo(f"{server.name} starts")
        with running(server, port) as child:
            self._warm_up(child, port, start)
            click.echo(HEADER)
            for number in self._concurrency:
                before = cpu_seconds(child)
                load = asyncio.run(generate_load(f"http://127.0.0.1:{port}", number, prompts[number], self._new))
                if load.num_tokens == 0:
                    raise child.failure(f"answered no request: {load.failures[0]}")
                used = [1e3 * (now - then) / load.num_tokens
                        for now, then in zip(cpu_seconds(child), before, strict=True)]
                self.loads[server.name][number].append(load)
                click.echo(row(load, used))
                self._tell_oddities(load)
            click.echo(f"{child.resident_bytes() / 1e9:.2f} GB resident\n")

    def _warm_up(self, child: Child, port: int, start: float) -> None:
        url = f"http://127.0.0.1:{port}"
        load = asyncio.run(generate_load(url, 1, self._write(1), 1))
        if load.failures:
            raise child.failure(f"did not answer: {load.failures[0]}")
        click.echo(f"First answer {time.monotonic() - start:.1f} s after the start")
        asyncio.run(generate_load(url, 4, self._write(8), 8))

    def _tell_oddities(self, load: Load) -> None:
        for failure in sorted(set(load.failures)):
            click.echo(f"    failed, {load.failures.count(failure)} of them: {failure}")
        if load.prompt_lengths != {self._prompt}:
            click.echo(f"    prompts of {self._prompt} tokens have {sorted(load.prompt_lengths)} here")


def cpu_seconds(child: Child) -> list[float]:
    """Of all processes; of Penstock's router; of its shards."""
    return [child.cpu_seconds(module) for module in (None, "router", "shard")]


def milliseconds(values: list[float], *shares: float) -> str:
    return " ".join(f"{1e3 * percentile(values, share):8.1f}" for share in shares)


def row(load: Load, cpu: list[float]) -> str:
    everything, *parts = (f"{seconds:.2f}" if seconds else "–" for seconds in cpu)
    return (f"{load.concurrency:11}  {load.tokens_per_second:8.1f}   {milliseconds(load.first, 0.5, 0.99):>23}   "
            f"{milliseconds(load.per_token, 0.5):>17}   {milliseconds(load.between, 0.5, 0.99):>26}   "
            f"{len(load.failures):6}   {everything:>27}  {parts[0]:>6}  {parts[1]:>6}")


def summary(comparison: Comparison) -> Iterator[str]:
    """Medians over the rounds; a ratio is the median of the rounds' ratios."""
    own, *peers = comparison.loads
    yield "concurrency" + "".join(f"{name:>12}" for name in (own, *peers, *(f"÷ {peer}" for peer in peers)))
    for number, mine in comparison.loads[own].items():
        rates = [median(load.tokens_per_second for load in comparison.loads[name][number]) for name in (own, *peers)]
        ratios = [median(one.tokens_per_second / other.tokens_per_second
                         for one, other in zip(mine, comparison.loads[peer][number], strict=True)) for peer in peers]
        yield (f"{number:11}" + "".join(f"{rate:12.1f}" for rate in rates)
               + "".join(f"{ratio:12.2f}" for ratio in ratios))


@click.command(help=__doc__)
@click.option("--model-id", type=DIRECTORY, envvar="MODEL_ID", help="A directory.  [default: a random model of "
              "SmolLM2-360M's shape]")
@click.option("--num-shard", default=1, show_default=True, envvar="NUM_SHARD", help="Of Penstock.")
@click.option("--threads", default=lambda: len(physical_cores()), show_default="physical cores", type=int,
              envvar="THREADS",
              help="Of each peer; Penstock chooses its own, FLAGS may say.")
@click.option("--concurrency", default="1,4,16,32", show_default=True)
@click.option("--requests", default=4, show_default=True, help="Per client.")
@click.option("--prompt", default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--new", default=64, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", default=1, show_default=True, help="Of all servers.")
@peer_options
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(
    model_id: Path | None, num_shard: int, threads: int, concurrency: str, requests: int, prompt: int, new: int,
    rounds: int, vllm: Path | None, llama: Path | None, gguf: Path | None, flags: tuple[str, ...],
) -> None:
    exit_on_sigterm()
    model = existing_model(model_id)
    commands: list[Callable[[int], ServerCommand]] = [
        lambda port: own_server(model, port, ["--num-shard", str(num_shard), *flags])]
    vllm_peer, llama_peer = find_peers(vllm, llama, gguf, threads)
    if vllm_peer:
        commands.append(lambda port: vllm_peer.server(model, port))
    if llama_peer:
        commands.append(llama_peer.server)
    numbers = [int(number) for number in concurrency.split(",")]
    comparison = Comparison(PromptWriter(model, prompt), numbers, requests, prompt, new)
    for _ in range(rounds):
        comparison.run_round(commands)
    print(*summary(comparison), sep="\n")
    title = f"{model.name}, prompts of {prompt} tokens, answers of {new}, {len(physical_cores())} cores"
    draw(comparison.loads, title, PICTURE)
    print(f"Drawn in {PICTURE}")


if __name__ == "__main__":
    main()
