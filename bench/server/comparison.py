"""How fast servers answer: throughput, latency and processor time against concurrency, as a table and a picture.

`python -m penstock.bench.server.comparison` measures Penstock, and vLLM and llama.cpp beside it where they are named:
one after the other they start on the same model, get the same random prompts over /v1/completions, and end. Writes
build/bench.png. FLAGS go to Penstock's launcher.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import click

from penstock.bench.load.apis import APIS, Prompt
from penstock.bench.load.client import Target
from penstock.bench.load.generator import Concurrency, generate_load
from penstock.bench.load.measurement import Run, group_failures
from penstock.bench.load.option_types import Numbers
from penstock.bench.load.picture import check_matplotlib, draw
from penstock.bench.load.prompts import RandomPrompts, load_tokenizer
from penstock.bench.load.report import as_json
from penstock.bench.programs import record
from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.model import existing_model
from penstock.bench.programs.peers import CHECKPOINT, ServerCommand, find_peers, own_server, peer_options
from penstock.bench.programs.root import BUILD
from penstock.bench.server.running import running
from penstock.checkpoints.gguf.folder import checkpoint_of
from penstock.shard.config import physical_cores

PICTURE = BUILD / "bench.png"
HEADER = ("concurrency  tokens/s   first token ms, p50 p99   per token ms, p50   between chunks ms, p50 p99   failed   "
          "CPU s per 1,000 tokens: all  router  shards")

Commands = Sequence[Callable[[int], ServerCommand]]
"""Each makes the command of one server for a port."""


class Comparison:
    """Sends the same loads to every server. `runs` has one for each round, by server and concurrency."""

    def __init__(
        self, prompts: RandomPrompts, concurrency: Sequence[int], requests: int, length: int, new: int
    ) -> None:
        """Takes the tokens of each prompt (`length`) and of each answer (`new`), and the `requests` of each client."""
        self.runs: dict[str, dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
        self._prompts = prompts
        self._concurrency = concurrency
        self._requests = requests
        self._length = length
        self._new = new

    def run_round(self, commands: Commands) -> None:
        prompts = {number: self._prompts.take(number * self._requests, self._new) for number in self._concurrency}
        for command in commands:
            self._measure(command, prompts)

    def _measure(self, command: Callable[[int], ServerCommand], prompts: dict[int, list[Prompt]]) -> None:
        port = free_port()
        server, start = command(port), time.monotonic()
        click.echo(f"{server.name} starts")
        with running(server, port) as child:
            target = Target(f"http://127.0.0.1:{port}", APIS["openai"], fields={"ignore_eos": True})
            self._warm_up(child, target, start)
            click.echo(HEADER)
            for number in self._concurrency:
                before = cpu_seconds(child)
                run = asyncio.run(generate_load(target, Concurrency(number), prompts[number]))
                if run.num_tokens == 0:
                    raise child.failure(f"answered no request: {run.failures[0]}")
                used = [1e3 * (now - then) / run.num_tokens
                        for now, then in zip(cpu_seconds(child), before, strict=True)]
                self.runs[server.name][number].append(run)
                click.echo(row(run, used))
                self._tell_oddities(run)
            click.echo(f"{child.resident_bytes() / 1e9:.2f} GB resident\n")

    def _warm_up(self, child: Child, target: Target, start: float) -> None:
        run = asyncio.run(generate_load(target, Concurrency(1), self._prompts.take(1, 1)))
        if run.failures:
            raise child.failure(f"did not answer: {run.failures[0]}")
        click.echo(f"First answer {time.monotonic() - start:.1f} s after the start")
        asyncio.run(generate_load(target, Concurrency(4), self._prompts.take(8, 8)))

    def _tell_oddities(self, run: Run) -> None:
        for kind, details in group_failures(run.failures).items():
            click.echo(f"    failed, {len(details)} of them: {kind} {details[0]}")
        if run.prompt_lengths != {self._length}:
            click.echo(f"    prompts of {self._length} tokens have {sorted(run.prompt_lengths)} here")


def cpu_seconds(child: Child) -> list[float]:
    """Returns the processor time of all processes, of Penstock's router, and of its shards."""
    return [child.cpu_seconds(module) for module in (None, "router", "shard")]


def row(run: Run, cpu: list[float]) -> str:
    def milliseconds(metric: str, *percents: float) -> str:
        return " ".join(f"{run.percentile(metric, percent):8.1f}" for percent in percents)

    everything, *parts = (f"{seconds:.2f}" if seconds else "–" for seconds in cpu)
    return (f"{run.level:11g}  {run.tokens_per_second:8.1f}   {milliseconds('ttft', 50, 99):>23}   "
            f"{milliseconds('tpot', 50):>17}   {milliseconds('itl', 50, 99):>26}   "
            f"{len(run.failures):6}   {everything:>27}  {parts[0]:>6}  {parts[1]:>6}")


def summary(comparison: Comparison) -> Iterator[str]:
    """Yields a table of medians over the rounds; a ratio is the median of the rounds' ratios."""
    own, *peers = comparison.runs
    yield "concurrency" + "".join(f"{name:>12}" for name in (own, *peers, *(f"÷ {peer}" for peer in peers)))
    for number, mine in comparison.runs[own].items():
        rates = [median(run.tokens_per_second for run in comparison.runs[name][number]) for name in (own, *peers)]
        ratios = [median(one.tokens_per_second / other.tokens_per_second
                         for one, other in zip(mine, comparison.runs[peer][number], strict=True)) for peer in peers]
        yield (f"{number:11g}" + "".join(f"{rate:12.1f}" for rate in rates)
               + "".join(f"{ratio:12.2f}" for ratio in ratios))


@click.command(help=__doc__)
@click.option("--model-id", type=CHECKPOINT, envvar="MODEL_ID", help="A directory, or a GGUF file, which "
              "llama.cpp then serves, too.  [default: a random model of SmolLM2-360M's shape]")
@click.option("--num-shard", default=1, show_default=True, envvar="NUM_SHARD", help="Shards of Penstock.")
@click.option("--threads", default=lambda: len(physical_cores()), show_default="physical cores", type=int,
              envvar="THREADS",
              help="Threads of each peer; Penstock chooses its own, or as FLAGS say.")
@click.option("--concurrency", type=Numbers(is_whole=True), default="1,4,16,32", show_default=True)
@click.option("--requests", default=4, show_default=True, help="Requests of each client.")
@click.option("--prompt", default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--new", default=64, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", default=1, show_default=True, help="How often all servers take their turn.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Write all figures here, as bench/results has them.")
@peer_options
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(
    model_id: Path | None, num_shard: int, threads: int, concurrency: list[float], requests: int, prompt: int, new: int,
    rounds: int, json_file: Path | None, vllm: Path | None, llama: Path | None, gguf: Path | None,
    flags: tuple[str, ...],
) -> None:
    exit_on_sigterm()
    check_matplotlib()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    model = existing_model(model_id)
    commands: list[Callable[[int], ServerCommand]] = [
        lambda port: own_server(model, port, ["--num-shard", str(num_shard), *flags])]
    vllm_peer, llama_peer = find_peers(vllm, llama, gguf or (model if model.is_file() else None), threads)
    if vllm_peer:
        commands.append(lambda port: vllm_peer.server(model, port))
    if llama_peer:
        commands.append(llama_peer.server)
    numbers = [int(number) for number in concurrency]
    with checkpoint_of(model) if model.is_file() else nullcontext(model) as folder:
        prompts = RandomPrompts(prompt, tokenizer=load_tokenizer(str(folder)))
    comparison = Comparison(prompts, numbers, requests, prompt, new)
    for _ in range(rounds):
        comparison.run_round(commands)
    print(*summary(comparison), sep="\n")
    title = f"{model.name}, prompts of {prompt} tokens, answers of {new}, {len(physical_cores())} cores"
    if json_file:
        record.write(json_file, "served", f"{model.name}, prompts of {prompt} tokens, answers of {new}", {
            name: [as_json(run, {}) for runs in by_level.values() for run in runs]
            for name, by_level in comparison.runs.items()})
    draw(comparison.runs, title, "concurrency", PICTURE)
    print(f"Drawn in {PICTURE}")


if __name__ == "__main__":
    main()
