"""Copies of the demo model in which something is wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.paths import DEMO_MODEL

NAN_TOKEN = 4000
NUM_ADDED = 200_000


def with_keys(folder: Path, **keys: Any) -> Path:
    """Other keys in config.json."""
    model = _copy(folder)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | keys))
    return model


def with_file(folder: Path, name: str, text: str) -> Path:
    model = _copy(folder)
    (model / name).write_text(text)
    return model


def with_nan_everywhere(folder: Path) -> Path:
    return _with_weights(_copy(folder), lambda weights: [weight.fill_(torch.nan) for weight in weights.values()])


def with_nan_token(folder: Path) -> Path:
    """`NAN_TOKEN`'s embedding is NaN. The head is a copy of what the embeddings were."""
    def spoil(weights: dict[str, Tensor]) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        weights["model.embed_tokens.weight"][NAN_TOKEN] = torch.nan
    return _with_weights(with_keys(folder, tie_word_embeddings=False), spoil)


def with_added_tokens(folder: Path) -> Path:
    """`NUM_ADDED` more than the model has embeddings for."""
    model = _copy(folder)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["added_tokens"] += [
        {"id": 8192 + index, "content": f"<added_{index}>", "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": False} for index in range(NUM_ADDED)]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    return model


def _copy(folder: Path) -> Path:
    model = folder / "model"
    if not model.exists():
        shutil.copytree(DEMO_MODEL, model)
    return model


def _with_weights(model: Path, change: Callable[[dict[str, Tensor]], Any]) -> Path:
    weights = load_file(model / "model.safetensors")
    change(weights)
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    return model
