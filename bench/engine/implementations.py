"""`python -m penstock.bench.engine.implementations [MODEL]`: a native model beside itself computed by transformers.

Both engines run in one process, without HTTP, in turns. Without a model it is a random one of SmolLM2-360M's shape.
"""

from pathlib import Path
from statistics import median

import click

from penstock.bench.engine.own import OwnEngine
from penstock.bench.programs.model import existing_model
from penstock.bench.programs.trial import Trial
from penstock.shard.config import ShardConfig

TRIALS = [Trial("decode, 1 sequence", 1, 128, 48), Trial("decode, 4", 4, 128, 48), Trial("decode, 16", 16, 128, 32),
          Trial("prefill, 512 tokens", 1, 512, 1)]


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--threads", default=2, show_default=True, help="Threads that compute.")
@click.option("--rounds", default=3, show_default=True, help="Rounds, whose medians are shown.")
def main(model: Path | None, threads: int, rounds: int) -> None:
    folder = existing_model(model)
    engines = {"native": OwnEngine(ShardConfig(folder, threads=threads, model_impl="native")),
               "transformers": OwnEngine(ShardConfig(folder, threads=threads, model_impl="transformers"))}
    print(f"tokens/s of {folder.name}, medians of {rounds} rounds in turns, {threads} threads")
    for trial in TRIALS:
        speeds: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(rounds):
            for engine in engines:
                speeds[engine].append(engines[engine].run(trial).rate)
        native, other = (median(found) for found in speeds.values())
        print(f"{trial.name:20} native {native:8.1f}   transformers {other:8.1f}   ratio {other / native:.2f}")


if __name__ == "__main__":
    main()
