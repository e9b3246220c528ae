"""The command line of `penstock convert`."""

import sys
from collections.abc import Mapping
from pathlib import Path

import click
from torch import Tensor
from tqdm import tqdm

from penstock.shard.conversion import pickled
from penstock.shard.conversion.pickled import ConversionError
from penstock.shard.weights.safetensors_files import INDEX_FILE, SINGLE_FILE
from penstock.shard.weights.writing import copy_rest, save, write_index

HEADS = ("lm_head.weight", "embed_out.weight", "output.weight")
"""The tensors that are left out where they are the embedding itself, which a model that ties the two reads."""


def convert(model: Path, out: Path, has_bar: bool) -> list[Path]:
    """Writes the checkpoint, and returns its files. One that is there already is kept, so that a run that was
    interrupted goes on behind it. Raises ConversionError, and OSError."""
    sources = pickled.find(model)
    if out.resolve() == model.resolve():
        raise ConversionError(f"{out} has the files to convert: give another directory")
    out.mkdir(parents=True, exist_ok=True)
    copy_rest(model, out, (pickled.INDEX_FILE, INDEX_FILE))
    count = len(sources)
    files = [out / (SINGLE_FILE if count == 1 else f"model-{number:05}-of-{count:05}.safetensors")
             for number in range(1, count + 1)]
    for source, file in tqdm(list(zip(sources, files, strict=True)), unit="file", disable=not has_bar):
        if not file.exists():
            save(file, _apart(pickled.read(source)), {})
    if count > 1:
        write_index(out, files)
    return files


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors with memory of their own, less heads that are another tensor."""
    made: dict[str, Tensor] = {}
    places, storages = set(), set()
    for name, tensor in sorted(tensors.items(), key=lambda item: item[0] in HEADS):
        place, storage = (tensor.data_ptr(), tensor.shape, tensor.stride()), tensor.untyped_storage().data_ptr()
        if name in HEADS and place in places:
            continue
        made[name] = tensor.clone() if storage in storages else tensor
        places.add(place)
        storages.add(storage)
    return made


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
