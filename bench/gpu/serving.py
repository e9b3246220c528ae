"""The whole server on a random model: launcher, router and shards as users start them."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from penstock.bench.gpu.scale import Scale
from penstock.bench.gpu.weights import write_model
from penstock.bench.load.apis import Prompt
from penstock.bench.programs.children import Child, free_port
from penstock.bench.programs.peers import ServerCommand
from penstock.bench.programs.root import ROOT
from penstock.bench.server.running import running

LAUNCH = "from penstock.launcher.entry import launcher; launcher()"
"""The program of the installed command; here nothing is installed."""


@contextmanager
def checkpoint(scale: Scale) -> Iterator[Path]:
    """Yields the directory of a model whose tokens are words, and gives back the device memory that it took to make."""
    with TemporaryDirectory() as folder:
        write_model(Path(folder), scale)
        words = {f"w{number}": number for number in range(scale.vocab_size)}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.save(str(Path(folder) / "tokenizer.json"))
        (Path(folder) / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        yield Path(folder)


def prompts(scale: Scale, number: int, new: int, seed: int) -> list[Prompt]:
    """Returns prompts of the scale's length, with nothing in common."""
    random = Random(seed)
    return [Prompt(" ".join(f"w{token}" for token in random.choices(range(3, scale.vocab_size), k=scale.prompt)), new)
            for _ in range(number)]


@contextmanager
def served(model: Path, flags: Sequence[str]) -> Iterator[tuple[str, Child]]:
    """Yields the address of a server that is ready, and its process. Raises ClickException if it does not start.

    Where there is no GPU the processor's kernels serve: in Triton's interpreter an answer would take minutes.
    """
    port = free_port()
    command = [sys.executable, "-c", LAUNCH, "--model-id", str(model), "--hostname", "127.0.0.1", "--port", str(port),
               *flags]
    environment = {"PYTHONPATH": str(ROOT), **({} if torch.cuda.is_available() else {"KERNELS": "cpu"})}
    with running(ServerCommand("Penstock", command, environment), port) as child:
        yield f"http://127.0.0.1:{port}", child
