"""How fast an engine computes MODEL, without HTTP: decode at several batch sizes, and prefill.

`penstock bench engine` measures Penstock's, and beside it those of vLLM and llama.cpp where they are named. MODEL is
a directory, or a GGUF file; without one it is a random one of SmolLM2-360M's shape, in a checkout of Penstock
(`python -m penstock.bench.programs.model` makes others, such as a mixture of experts).
The engines take turns within every round, and a ratio is the median of the rounds' ratios, for a shared machine is now
faster, now slower. Prompts are random, answers greedy, nothing is cached and no answer ends early.

With `--policy` it measures instead how the scheduler's batching by that policy serves requests of many lengths.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import astuple
from pathlib import Path
from statistics import median

import click
import torch
from tqdm import tqdm

from penstock.bench.batching.options import check_policy_options, compare, policy_options
from penstock.bench.engine.memory_bound import read_bytes
from penstock.bench.load.option_types import Numbers
from penstock.bench.programs.children import exit_on_sigterm
from penstock.bench.programs.model import existing_model
from penstock.bench.programs.peers import CHECKPOINT, DIRECTORY, Engine, find_peers, own_engine, peer_options
from penstock.bench.programs.trial import Result, Trial
from penstock.checkpoints.gguf.folder import checkpoint_of
from penstock.shard.config import physical_cores

IDLE_SHARE = 0.03                        # of one core: more is not idle
PAUSE, TICK = 0.25, 0.011                # seconds; processor time is counted in hundredths
MEMORY_BYTES = 1 << 29

Results = dict[tuple[str, str], list[Result]]
"""By trial and engine, a result for each round."""


def make_trials(sequences: list[int], prompt: int, new: int, prefill: int, is_sampled: bool) -> list[Trial]:
    trials = [Trial(f"decode, {number}", number, prompt, new) for number in sequences]
    if is_sampled:
        trials.append(Trial(f"decode, {max(sequences)}, sampled", max(sequences), prompt, new, is_sampled=True))
    return [*trials, Trial(f"prefill, {prefill}", 1, prefill, 1)] if prefill else trials


class Rounds:
    """Runs the trials, and watches that only the engine whose turn it is computes."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.results: Results = defaultdict(list)
        self.memory_speeds: list[float] = []
        self.idle_shares: dict[str, float] = dict.fromkeys((engine.name for engine in engines), 0.0)
        self._engines = engines

    def run(self, trials: Sequence[Trial], num_rounds: int, num_threads: int) -> None:
        with tqdm(total=num_rounds * len(trials) * len(self._engines), unit="trial") as bar:
            for number in range(num_rounds):
                self.memory_speeds.append(memory_speed(num_threads))
                for trial in trials:
                    first = number % len(self._engines)
                    for engine in (*self._engines[first:], *self._engines[:first]):
                        bar.set_postfix_str(f"{trial.name}: {engine.name}")
                        self._run(engine, trial)
                        bar.update()

    def _run(self, engine: Engine, trial: Trial) -> None:
        others = [other for other in self._engines if other is not engine]
        wait_until_idle(self._engines)
        before, start = [other.cpu_seconds() for other in others], time.perf_counter()
        result = engine.run(trial)
        seconds = time.perf_counter() - start
        for other, cpu_seconds in zip(others, before, strict=True):
            share = (other.cpu_seconds() - cpu_seconds) / seconds
            self.idle_shares[other.name] = max(self.idle_shares[other.name], share)
        if result is not None:
            self.results[trial.name, engine.name].append(result)


def wait_until_idle(engines: Sequence[Engine], timeout: float = 5.0) -> None:
    """Waits until no engine computes: its threads may spin for a while after its trial."""
    deadline = time.monotonic() + timeout
    is_idle = False
    while not is_idle and time.monotonic() < deadline:
        before = sum(engine.cpu_seconds() for engine in engines)
        time.sleep(PAUSE)
        is_idle = sum(engine.cpu_seconds() for engine in engines) - before <= TICK


def memory_speed(num_threads: int) -> float:
    """Returns the bytes a second that torch reads in the best of a few sums."""
    torch.set_num_threads(num_threads)
    numbers = torch.ones(MEMORY_BYTES // 4)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        numbers.sum()
        seconds.append(time.perf_counter() - start)
    return MEMORY_BYTES / min(seconds)


def rates(results: list[Result]) -> str:
    """Returns the median and the extremes of the rates, as text."""
    if not results:
        return "–"
    values = [result.rate for result in results]
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def ratio(mine: list[Result], theirs: list[Result]) -> str:
    if not theirs:
        return "–"
    return f"{median(own.rate / other.rate for own, other in zip(mine, theirs, strict=True)):.2f}"


def rate_table(results: Results, trials: Sequence[Trial], names: list[str]) -> Iterator[list[str]]:
    own, *peers = names
    yield ["tokens/s", *names, *(f"÷ {peer}" for peer in peers)]
    for trial in trials:
        yield [trial.name, *(rates(results[trial.name, name]) for name in names),
               *(ratio(results[trial.name, own], results[trial.name, peer]) for peer in peers)]


def split_table(results: Results, trials: Sequence[Trial], own: str) -> Iterator[list[str]]:
    """Yields a table of medians over the rounds."""
    yield [f"{own}, ms per step", "forward", "sample", "between"]
    for trial in trials:
        splits = [result.split for result in results[trial.name, own] if result.split]
        yield [trial.name, *(f"{1e3 * median(part):.3f}" for part in zip(*map(astuple, splits), strict=True))]


def print_table(rows: Iterator[list[str]]) -> None:
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, *cells in table:
        aligned = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        print(name.ljust(widths[0]), *aligned, sep="  ")
    print()


def print_bound(rounds: Rounds, trials: Sequence[Trial], own: str, num_bytes: int) -> None:
    """Prints how fast memory is, what this allows, and how much of it one sequence reaches."""
    speeds = rounds.memory_speeds
    speed = median(speeds)
    print(f"torch.sum reads {speed / 1e9:.1f} GB/s ({min(speeds) / 1e9:.1f} to {max(speeds) / 1e9:.1f}): the "
          f"{num_bytes / 1e9:.3f} GB of weights that one token needs take {1e3 * num_bytes / speed:.1f} ms, a limit of "
          f"{speed / num_bytes:.1f} decode steps/s")
    for trial in trials:
        if trial.new > 1 and trial.sequences == 1 and not trial.is_sampled:
            shares = [result.rate * num_bytes / speed
                      for result, speed in zip(rounds.results[trial.name, own], speeds, strict=True)]
            print(f"{own} reaches {median(shares):.2f} of it at one sequence")


def report(rounds: Rounds, trials: Sequence[Trial], names: list[str], model: Path) -> None:
    results, own = rounds.results, names[0]
    print_table(rate_table(results, trials, names))
    print_table(split_table(results, trials, own))
    for trial in trials:
        if trial.is_sampled:
            greedy = results[trial.name.removesuffix(", sampled"), own]
            print(f"Sampled ÷ greedy at {trial.sequences} sequences: {ratio(results[trial.name, own], greedy)}")
    print_bound(rounds, trials, own, read_bytes(model))
    for name, share in rounds.idle_shares.items():
        if share > IDLE_SHARE:
            print(f"{name} took up to {100 * share:.0f} % of a core while another engine was measured")


@contextmanager
def started(
    models: Sequence[Path], threads: int, quantize: str | None, transformers: bool, checkout: Path | None,
    vllm: Path | None, llama: Path | None, gguf: Path | None,
) -> Iterator[list[Engine]]:
    """Yields the engines that are there, Penstock's own first: of the first model, rounded, as it is, of the others;
    then the first model computed by transformers, and another checkout's engine."""
    vllm_peer, llama_peer = find_peers(vllm, llama, gguf, threads)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        directories = [stack.enter_context(checkpoint_of(model)) if model.is_file() else model for model in models]
        own: list[tuple[str, Path, str | None]] = [("Penstock", directories[0], None)]
        own += [(f"Penstock {model.stem}", directory, None)
                for model, directory in zip(models[1:], directories[1:], strict=True)]
        if quantize:
            own.insert(0, (f"Penstock {quantize}", directories[0], quantize))
        engines: list[Engine] = []
        for name, directory, rounding in own:
            engines.append(own_engine(name, directory, threads, Path(folder), rounding))
            stack.callback(engines[-1].end)
        if transformers:
            engines.append(own_engine("Penstock by transformers", directories[0], threads, Path(folder), None,
                                      model_impl="transformers"))
            stack.callback(engines[-1].end)
        if checkout:
            engines.append(own_engine(checkout.name, directories[0], threads, Path(folder), None, checkout=checkout))
            stack.callback(engines[-1].end)
        if vllm_peer:
            print("vLLM starts, which can take minutes the first time")
            engines.append(vllm_peer.engine(models[0], Path(folder)))
            stack.callback(engines[-1].end)
        if llama_peer:
            engines.append(llama_peer)
        yield engines


@click.command(help=__doc__)
@click.argument("model", type=CHECKPOINT, envvar="MODEL_ID", required=False)
@click.option("--threads", default=lambda: len(physical_cores()), show_default="physical cores", type=int,
              envvar="THREADS")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--sequences", type=Numbers(is_whole=True), default="1,4,16,32", show_default=True,
              help="That decode at once.")
@click.option("--prompt", type=click.IntRange(1), default=128, show_default=True, help="Tokens of their prompts.")
@click.option("--new", default=64, show_default=True, help="Tokens of their answers, at least 2.",
              type=click.IntRange(min=2))
@click.option("--prefill", type=click.IntRange(0), default=512, show_default=True,
              help="Tokens of the one long prompt; 0 leaves it out.")
@click.option("--sampled/--greedy", "is_sampled", default=False, help="Also decode with temperature 0.8, top-p 0.95.")
@click.option("--quantize", help="Measure also Penstock with its weights so rounded, such as int4.")
@click.option("--beside", type=CHECKPOINT, multiple=True, help="Measure also Penstock with this model.")
@click.option("--transformers", is_flag=True, help="Measure also Penstock with the model computed by transformers.")
@click.option("--checkout", type=DIRECTORY, help="Measure also another checkout of Penstock, which is set up.")
@policy_options
@peer_options
def main(
    model: Path | None, threads: int, rounds: int, sequences: list[float], prompt: int, new: int, prefill: int,
    is_sampled: bool, quantize: str | None, beside: tuple[Path, ...], transformers: bool, checkout: Path | None,
    vllm: Path | None, llama: Path | None, gguf: Path | None, policies: tuple[str, ...], gap: float,
    json_file: Path | None,
) -> None:
    exit_on_sigterm()
    check_policy_options(click.get_current_context())
    if policies:
        model = existing_model(model)
        with checkpoint_of(model) if model.is_file() else nullcontext(model) as directory:
            print_table(compare(directory, model.name, threads, policies, [int(number) for number in sequences], rounds,
                                prompt, new, gap, json_file))
        return
    if gguf and not llama:
        raise click.UsageError("--gguf is for --llama, which reads it")
    trials = make_trials([int(number) for number in sequences], prompt, new, prefill, is_sampled)
    model = existing_model(model)
    gguf = gguf or (model if model.is_file() else None)
    with started([model, *beside], threads, quantize, transformers, checkout, vllm, llama, gguf) as engines:
        measured = Rounds(engines)
        for engine in engines:
            engine.run(trials[-1])                           # what happens once happens here
        measured.run(trials, rounds, threads)
    report(measured, trials, [engine.name for engine in engines], model)


if __name__ == "__main__":
    main()
