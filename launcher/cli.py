"""The command `penstock`: `serve`, which does what `text-generation-launcher` does, and the tools beside it."""

import asyncio
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from penstock.checkpoints.tokenizers.place import tokenizer_of
from penstock.launcher import drain, health, hub, roll, without_effect
from penstock.launcher.group_launch import group
from penstock.launcher.group_options import GROUP_OPTIONS
from penstock.launcher.launch import serve
from penstock.launcher.lazy_group import LazyGroup
from penstock.launcher.models_command import models
from penstock.launcher.option_types import Command, Place, places
from penstock.launcher.options import OPTIONS
from penstock.router import logs
from penstock.system.arguments import InvalidArgument

if TYPE_CHECKING:
    from penstock.router.text.watermark import Detection


# These import what they measure, change or place, and the launcher imports nothing of them.
@click.group(cls=LazyGroup, lazy={
    "bench": ("penstock.bench.cli:main", "Measure a server, the engine or kernels."),
    "plan": ("penstock.bench.planning.command:main", "Plan the machines that a model needs, and what they cost."),
    "replay": ("penstock.bench.replay.command:main", "Ask for recorded answers again, and compare them."),
    "convert": ("penstock.shard.conversion.command:main", "Make safetensors files of what PyTorch pickled."),
    "run-batch": ("penstock.offline.run_batch:command", "Answer a file of requests, without a server."),
    "ray": ("penstock.cluster.cli:main", "Run groups and routers on a Ray cluster."),
    "quantize": ("penstock.quantization.command:main", "Make a checkpoint of 4 or 8 bits of one of plain weights."),
})
@click.version_option(package_name="penstock")
def main() -> None:
    """Penstock serves a language model over HTTP and gRPC."""


main.add_command(Command(
    "serve", callback=serve, help="Serve MODEL, a directory, a GGUF file or a name on the Hugging Face Hub, or "
    "several, each as NAME=MODEL.",
    params=[click.Argument(["model_id"], metavar="[MODEL | NAME=MODEL...]", required=False, envvar="MODEL_ID", nargs=-1,
                           type=Place(), callback=places),
            *(option for option in OPTIONS if option.name != "model_id")]))

main.add_command(Command(
    "group", callback=group, help=group.__doc__,
    params=[click.Argument(["model_id"], metavar="MODEL", required=False, envvar="MODEL_ID"), *GROUP_OPTIONS]))

main.add_command(health.command)
main.add_command(drain.command)
main.add_command(roll.command)
main.add_command(models)


def download(model_id: str, **options: Any) -> None:
    """Download MODEL, a name on the Hugging Face Hub, to where `serve` finds it, and print its directory.

    It may be an adapter (LoRA), too. Only what a server reads is downloaded, and nothing that is there already. A
    download that was interrupted goes on where it stopped, and each file's checksum is compared.
    """
    logs.configure("INFO", json_output=False)
    without_effect.tell(click.get_current_context())
    try:
        checkpoint = hub.find(model_id, options["revision"], options["huggingface_hub_cache"], logs.has_bars(False),
                              may_be_adapter=True)
    except InvalidArgument as error:
        raise click.ClickException(error.message.removeprefix("`model_id`: ")) from error
    click.echo(checkpoint.path)


main.add_command(click.Command(
    "download", callback=download, help=download.__doc__,
    params=[click.Argument(["model_id"], metavar="MODEL"),
            *(option for option in OPTIONS if option.name in ("revision", "huggingface_hub_cache"))]))


@main.command()
@click.argument("model_id", metavar="MODEL")
@click.option("--num-shard", type=click.IntRange(1), default=1, show_default=True,
              help="Shards that will share the model.")
@click.option("--dtype", type=click.Choice(["float16", "bfloat16", "float32"]),
              help="Number format of weights and activations.  [default: the checkpoint's own]")
@click.option("--device", type=click.Choice(["auto", "cuda"]), default="auto", show_default=True)
@click.option("--deterministic", is_flag=True, help="Tune the kernels that `serve --deterministic` runs.")
@click.option("--max-rows", type=click.IntRange(1), default=4096, show_default=True,
              help="The most tokens that a step computes.")
def tune(model_id: str, num_shard: int, dtype: str | None, device: str, deterministic: bool, max_rows: int) -> None:
    """Find the fastest configurations of a GPU's kernels for MODEL, a directory or a name on the Hugging Face Hub.

    They are saved for this kind of GPU, and used from the next start on. Tuning takes minutes, during which nothing
    else should use the GPU.
    """
    with _directory(model_id) as directory:
        arguments = {"--model": directory, "--world-size": num_shard, "--dtype": dtype, "--device": device,
                     "--max-rows": max_rows}
        given = [text for name, value in arguments.items() if value is not None for text in (name, str(value))]
        program = [sys.executable, "-P", "-m", "penstock.shard.startup.tune", *given,
                   *["--deterministic"] * deterministic]
        sys.exit(subprocess.run(program, check=False).returncode)


@main.command()
@click.argument("model_id", metavar="MODEL")
@click.argument("file", metavar="[FILE]", type=click.File(encoding="utf-8"), default="-")
@click.option("--gamma", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.5, show_default=True,
              help="Share of the vocabulary that the watermark prefers: the server's --watermark-gamma.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def detect_watermark(model_id: str, file: TextIO, gamma: float, as_json: bool) -> None:
    """Test whether the text in FILE, or on standard input, has the watermark of MODEL.

    MODEL is the directory or the name on the Hugging Face Hub of the model that may have written the text. A z above 4
    means a watermark: chance alone gives that to one text in 30,000. Give the text without its prompt, which has none.
    """
    with _directory(model_id) as directory:
        found = _detect(directory, file.read(), gamma)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found)))
    else:
        click.echo(f"tokens counted: {found.num_tokens}\ngreen tokens: {found.num_green}\n"
                   f"z: {found.z:.2f}\np-value: {found.p_value:.3g}")


def _detect(directory: Path, text: str, gamma: float) -> "Detection":
    from penstock.router.text.encoding import TokenizerError  # the launcher does without
    from penstock.router.text.tokenizer import Tokenizer
    from penstock.router.text.watermark import detect
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        vocab_size = config.get("vocab_size") if isinstance(config, dict) else None
        if not isinstance(vocab_size, int):
            raise click.ClickException(f"{directory / 'config.json'} has no `vocab_size`")
        tokenizer = Tokenizer.load(tokenizer_of(directory))
        token_ids = asyncio.run(tokenizer.encode(text, add_special_tokens=False))
        return detect(token_ids, vocab_size, gamma)
    except (OSError, ValueError, TokenizerError) as error:
        raise click.ClickException(str(error)) from error
    except InvalidArgument as error:
        raise click.ClickException(error.message.removeprefix("`model_id`: ")) from error


@contextmanager
def _directory(model_id: str) -> Iterator[Path]:
    """Gives the directory of a model, which need not have all that a server needs; downloads one of the Hub's."""
    path = hub.path_of(model_id)
    if path.is_dir():
        yield path
        return
    with (tempfile.TemporaryDirectory(prefix="penstock-gguf-") as folder,
          hub.in_directory(hub.find(model_id), Path(folder)) as checkpoint):
        yield checkpoint.path
