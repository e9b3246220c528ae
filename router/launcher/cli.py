"""`penstock`: the same server under its own name."""

import subprocess
import sys
from pathlib import Path

import click

from penstock.router.launcher import hub
from penstock.router.launcher.launch import serve
from penstock.router.launcher.lazy_group import LazyGroup
from penstock.router.launcher.option_types import Command
from penstock.router.launcher.options import OPTIONS


# The benchmarks import what they measure, and the launcher imports nothing of them.
@click.group(cls=LazyGroup, lazy={"bench": ("penstock.bench.cli:main", "Measure a server, the engine or kernels.")})
@click.version_option(package_name="penstock")
def main() -> None:
    """Penstock: serve a language model; no answer is lost, no answer changes."""


main.add_command(Command(
    "serve", callback=serve, help="Serve MODEL, a directory or a name on the Hugging Face Hub.",
    params=[click.Argument(["model_id"], metavar="MODEL", required=False, envvar="MODEL_ID"),
            *(option for option in OPTIONS if option.name != "model_id")]))


@main.command()
@click.argument("model_id", metavar="MODEL")
@click.option("--num-shard", type=click.IntRange(1), default=1, show_default=True, help="That will share the model.")
@click.option("--dtype", type=click.Choice(["float16", "bfloat16", "float32"]),
              help="Number format of weights and activations.  [default: the checkpoint's own]")
@click.option("--device", type=click.Choice(["auto", "cuda"]), default="auto", show_default=True)
@click.option("--deterministic", is_flag=True, help="Tune the kernels that `serve --deterministic` runs.")
@click.option("--max-rows", type=click.IntRange(1), default=4096, show_default=True, help="The most tokens of a step.")
def tune(model_id: str, num_shard: int, dtype: str | None, device: str, deterministic: bool, max_rows: int) -> None:
    """Find the fastest configurations of a GPU's kernels for MODEL, a directory or a name on the Hugging Face Hub.

    They are saved for this kind of GPU, and used from the next start on. It takes minutes, and the GPU for itself.
    """
    path = Path(model_id).expanduser()
    arguments = {"--model": path if path.is_dir() else hub.find(model_id).path, "--world-size": num_shard,
                 "--dtype": dtype, "--device": device, "--max-rows": max_rows}
    given = [text for name, value in arguments.items() if value is not None for text in (name, str(value))]
    program = [sys.executable, "-P", "-m", "penstock.shard.startup.tune", *given, *["--deterministic"] * deterministic]
    sys.exit(subprocess.run(program, check=False).returncode)
