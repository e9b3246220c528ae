"""The command line of `penstock convert`."""

import sys
from pathlib import Path

import click

from penstock.shard.conversion.convert import convert

GIGABYTE = 1e9


@click.command(help="Make a checkpoint of safetensors files in the directory OUT of MODEL, a directory with "
                    "pytorch_model.bin files.\n\nSuch files are pickles, which can run programs; of these nothing but "
                    "tensors is read. A run that was interrupted goes on where it stopped.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
def main(model: Path, out: Path) -> None:
    try:
        files = convert(model, out, has_bar=sys.stderr.isatty())
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    size = sum(file.stat().st_size for file in files)
    click.echo(f"{out}: {len(files)} file{'s' * (len(files) > 1)} of {size / GIGABYTE:.3f} GB in all")
