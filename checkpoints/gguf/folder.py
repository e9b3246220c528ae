"""A folder with the files of a checkpoint, made of a GGUF file, which then is served as any other."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.checkpoints.gguf.config import architecture, files_of_model, generation_config, model_config
from penstock.checkpoints.gguf.metadata import GgufError
from penstock.checkpoints.gguf.reader import Tensor, read
from penstock.checkpoints.gguf.tensors import index
from penstock.checkpoints.gguf.tokenizer import Vocabulary, tokenizer, tokenizer_config

INDEX_FILE = "model.gguf.json"
"""Where the tensors are, which stay in the GGUF file."""


@contextmanager
def checkpoint_of(path: Path) -> Iterator[Path]:
    """Makes a temporary folder with the files of a checkpoint from a GGUF file, and removes it afterwards. Raises the
    errors of `write_checkpoint`."""
    with tempfile.TemporaryDirectory(prefix="penstock-gguf-", ignore_cleanup_errors=True) as folder:
        write_checkpoint(path, Path(folder))
        yield Path(folder)


def write_checkpoint(path: Path, folder: Path) -> None:
    """Writes the files of a checkpoint, of a GGUF file or of any of those that a model is split into, to a folder that
    is made if it isn't there. Raises GgufError, and OSError if they can't be written."""
    files = checkpoint_files(path)
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def checkpoint_files(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the contents of a checkpoint's files, by their names. Raises GgufError."""
    path = path.resolve()
    named = read(path)
    paths = files_of_model(path, named.metadata)
    files = [named if each == path else read(each) for each in paths]
    metadata, tensors = files[0].metadata, _together(path, [file.tensors for file in files])
    config = model_config(metadata, tensors)
    vocabulary = Vocabulary(metadata, config["vocab_size"])
    paired_heads = config["head_dim"] if architecture(metadata) == "llama" else None
    return {
        "config.json": config,
        "generation_config.json": generation_config(metadata, vocabulary.tokens),
        "tokenizer.json": tokenizer(vocabulary),
        "tokenizer_config.json": tokenizer_config(vocabulary),
        INDEX_FILE: index(tensors, paired_heads),
    }


def _together(path: Path, parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for part in parts:
        twice = tensors.keys() & part.keys()
        if twice:
            raise GgufError(path, f"{min(twice)}: two of the model's files have it")
        tensors |= part
    return tensors
