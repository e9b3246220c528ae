"""How far more threads, or shards of a thread each, make the engine faster on this machine's processor.

`python -m penstock.bench.engine.scaling [MODEL]` decodes and prefills with 1, 2, 4, … threads and as many shards, of
which there are no more than cores, with the weights as they are and rounded. All take turns, and a share of linear is
the median over the rounds of rate ÷ (number × rate of one). Beside it stands how much of what memory gives so many
threads decode takes at the least: near 100 %, no more threads can help. Without MODEL it is a random one of
SmolLM2-360M's shape.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click

from penstock.bench.engine.command import Rounds, make_trials, memory_speed, print_table
from penstock.bench.engine.memory_bound import read_bytes, rounded_bytes
from penstock.bench.load.option_types import Numbers
from penstock.bench.programs.children import exit_on_sigterm
from penstock.bench.programs.model import existing_model
from penstock.bench.programs.peers import DIRECTORY, own_engine
from penstock.bench.programs.trial import Result, Trial
from penstock.shard.config import physical_cores

COUNTS = (1, 2, 4, 8, 16)
MOST_SHARDS = 8


@dataclass(frozen=True)
class Form:
    """How many cores compute, and as what."""

    shards: int
    threads: int                         # of each shard

    @property
    def cores(self) -> int:
        return self.shards * self.threads

    @property
    def name(self) -> str:
        unit, number = ("shard", self.shards) if self.shards > 1 else ("thread", self.threads)
        return f"{number} {unit}{'s' * (number > 1)}"


def forms(num_cores: int) -> list[Form]:
    """Returns one thread, which all else is compared with, several threads, and several shards."""
    counts = [count for count in COUNTS if count <= num_cores]
    return [Form(1, count) for count in counts] + [Form(count, 1) for count in counts if 1 < count <= MOST_SHARDS]


def share_of_linear(own: Sequence[Result], alone: Sequence[Result], cores: int) -> float:
    return median(mine.rate / (cores * one.rate) for mine, one in zip(own, alone, strict=True))


def table(
    rounds: Rounds, trials: Sequence[Trial], wanted: Sequence[Form], num_bytes: int, speeds: dict[int, float]
) -> Iterator[list[str]]:
    """Yields a table; `speeds` are the bytes a second that memory gives so many threads."""
    first, *others = wanted
    yield ["tokens/s, share of linear", *(form.name for form in wanted)]
    for trial in trials:
        found = {form: rounds.results[trial.name, form.name] for form in wanted}
        rates = {form: median(result.rate for result in own) for form, own in found.items()}
        yield [trial.name, f"{rates[first]:.1f}", *(
            f"{rates[form]:.1f} ({share_of_linear(found[form], found[first], form.cores):.2f})" for form in others)]
        if trial.new > 1:
            yield ["  of memory's speed", *(
                f"{rates[form] / trial.sequences * num_bytes / speeds[form.cores]:.0%}" for form in wanted)]


def measure(
    model: Path, quantize: str | None, trials: Sequence[Trial], wanted: Sequence[Form], num_rounds: int
) -> Iterator[list[str]]:
    """Starts an engine of each form, lets them take turns, and returns the table."""
    speeds = {form.cores: 0.0 for form in wanted}

    def look_at_memory() -> None:
        speeds.update({cores: max(speed, memory_speed(cores)) for cores, speed in speeds.items()})

    look_at_memory()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        engines = []
        for form in wanted:
            engines.append(own_engine(form.name, model, form.threads, Path(folder), quantize, form.shards))
            stack.callback(engines[-1].end)
        rounds = Rounds(engines)
        for engine in engines:
            engine.run(trials[-1])                           # what happens once happens here
        rounds.run(trials, num_rounds, max(speeds))
    look_at_memory()                                         # the machine may have been slower before
    num_bytes = rounded_bytes(model, quantize) if quantize else read_bytes(model)
    return table(rounds, trials, wanted, num_bytes, speeds)


@click.command(help=__doc__)
@click.argument("model", type=DIRECTORY, envvar="MODEL_ID", required=False)
@click.option("--cores", type=click.IntRange(1), default=lambda: len(physical_cores()), show_default="all",
              help="The most cores that compute.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--sequences", type=Numbers(is_whole=True), default="1,16", show_default=True,
              help="That decode at once.")
@click.option("--prompt", type=click.IntRange(1), default=128, show_default=True, help="Tokens of their prompts.")
@click.option("--new", type=click.IntRange(2), default=32, show_default=True, help="Tokens of their answers.")
@click.option("--prefill", type=click.IntRange(1), default=512, show_default=True, help="Tokens of the long prompt.")
@click.option("--quantize", default="int4", show_default=True, help="What the weights are rounded to the second time; "
              "nothing leaves it out.")
def main(
    model: Path | None, cores: int, rounds: int, sequences: list[float], prompt: int, new: int, prefill: int,
    quantize: str,
) -> None:
    exit_on_sigterm()
    folder, available = existing_model(model), len(physical_cores())
    wanted = forms(min(cores, available))
    trials = make_trials([int(number) for number in sequences], prompt, new, prefill, is_sampled=False)
    print(f"{folder.name}, {available} cores, {rounds} rounds")
    for rounding in (None, quantize) if quantize else (None,):
        print(f"\nweights: {rounding or 'as they are'}")
        print_table(measure(folder, rounding, trials, wanted, rounds))


if __name__ == "__main__":
    main()
