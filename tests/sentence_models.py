"""Writes the files of sentence-transformers beside a checkpoint, and computes with its own modules."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def add_modules(path: Path, modules: Sequence[Any]) -> Path:
    """Saves modules behind the transformer of a checkpoint, and returns its folder."""
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for index, module in enumerate(modules, 1):
        kind = type(module)
        folder = path / f"{index}_{kind.__name__}"
        folder.mkdir(exist_ok=True)
        module.save(str(folder))
        listed.append({"idx": index, "name": str(index), "path": folder.name,
                       "type": f"{kind.__module__}.{kind.__name__}"})
    (path / "modules.json").write_text(json.dumps(listed))
    return path


@torch.no_grad()
def made_of(states: Tensor, modules: Sequence[Any], skipped: int = 0) -> Tensor:
    """Returns the vector that modules make of the vectors of one text's tokens [T, C]."""
    features: dict[str, Any] = {"token_embeddings": states[None], "attention_mask": torch.ones(1, len(states)),
                                "prompt_length": skipped}
    for module in modules:
        features = module(features)
    vector: Tensor = features["sentence_embedding"][0]
    return vector
