"""`python -m penstock.bench.engine.weight_quality` measures the quality that quantised weights cost the demo model.

The text is sources that deploy/demo_model/train.py held out: two in a hundred files of the standard library of the
Python that runs this. They are unknown to the model where that Python is the one of training.json; where it is another,
a line says so. What `penstock quantize` makes is calibrated on sources that the model was trained on. Each window is
scored as a prompt, with the inputs of quantised linears in 8 bits; perplexity is exp of the mean of -log p.
"""

import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import click
import torch
from torch import Tensor
from tqdm import tqdm

from penstock.bench.engine.kv_quality import WINDOW, training
from penstock.bench.programs.peers import FILE
from penstock.bench.programs.root import DEMO_MODEL
from penstock.checkpoints.gguf.folder import checkpoint_of
from penstock.quantization.perplexity import perplexity
from penstock.quantization.run import Job, quantise
from penstock.quantization.settings import make_settings
from penstock.quantization.texts import windows_of
from penstock.shard.models.model_options import AS_STORED, ModelOptions

ROUNDED = ("int8", "int4", "bitsandbytes-nf4")
GROUPS = (32, 128)
OF_GROUPS, OTHERS = ("rtn", "awq", "gptq"), ("smoothquant", "llm-int8", "squeezellm")
MOST_CHARACTERS = 3_000_000


def windows(judged: int, calibrated: int, folder: Path) -> tuple[Tensor, Tensor]:
    """Returns windows of held-out sources, int64 [judged, WINDOW + 1], and of others, int64 [calibrated, WINDOW]; their
    texts are written to a folder."""
    train = training()
    seed = json.loads((DEMO_MODEL / "training.json").read_text())["seed"]
    known, held_out = train.split(train.source_texts(), random.Random(seed))
    found = []
    for name, texts, count, length in (
            ("judge", held_out, judged, WINDOW + 1), ("calibrate", known, calibrated, WINDOW)):
        (folder / name).write_text("\n".join(texts)[:MOST_CHARACTERS], encoding="utf-8")
        found.append(windows_of(folder / name, DEMO_MODEL / "tokenizer.json", count, length))
    return found[0], found[1]


def of_methods(
    methods: Sequence[tuple[str, int | None]], calibration: Tensor, text: Tensor, folder: Path
) -> Iterator[tuple[str, float]]:
    """Yields the name and the perplexity of what `penstock quantize` makes by each method and size of groups."""
    for method, group in methods:
        settings = make_settings(method, bits=None, group=group, granularity=None, symmetric=True, calibrator=None,
                                 percentile=None, format_=None, scale_dtype=torch.bfloat16)
        out = folder / f"{method}-{group}"
        quantise(Job(DEMO_MODEL, out, settings, calibration), has_bar=False)
        yield f"{method} g{group}" if group else method, perplexity(out, text)


def of_rounded(quantize: Sequence[str], text: Tensor) -> Iterator[tuple[str, float]]:
    """Yields the name and the perplexity of what each value of --quantize makes of the model at load."""
    for name in quantize:
        yield f"--quantize {name}", perplexity(DEMO_MODEL, text, ModelOptions(quantize=name))


def of_files(files: Sequence[Path], text: Tensor) -> Iterator[tuple[str, float]]:
    """Yields the name and the perplexity of GGUF files of the demo model."""
    for file in files:
        with checkpoint_of(file) as folder:
            yield file.name, perplexity(folder, text)


@click.command(help=__doc__.split("\n")[0])
@click.option("--judged", default=48, show_default=True, help=f"Windows of {WINDOW} tokens to measure with.")
@click.option("--samples", default=64, show_default=True, help=f"Windows of {WINDOW} tokens to calibrate with.")
@click.option("--gguf", multiple=True, type=FILE, help="A GGUF file of the demo model, to measure, too.")
def main(judged: int, samples: int, gguf: tuple[Path, ...]) -> None:
    trained_with = json.loads((DEMO_MODEL / "training.json").read_text())["python"]
    if trained_with != (own := sys.version.split()[0]):
        print(f"Python {own}, but the model was trained on {trained_with}'s library: it may know some of the text")
    methods = [(method, group) for method in OF_GROUPS for group in GROUPS] + [(method, None) for method in OTHERS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, calibration = windows(judged, samples, folder)
        plain = perplexity(DEMO_MODEL, text, AS_STORED)
        print(f"{len(text)} windows of {WINDOW} tokens; perplexity as stored {plain:.4f}\n")
        print("| weights | perplexity | more |")
        print("|---|---|---|")
        measured = chain(of_rounded(ROUNDED, text), of_files(gguf, text),
                         of_methods(methods, calibration, text, folder))
        for title, found in tqdm(measured, total=len(ROUNDED) + len(gguf) + len(methods), unit="model", leave=False):
            tqdm.write(f"| {title} | {found:.4f} | {found / plain - 1:+.2%} |")


if __name__ == "__main__":
    main()
