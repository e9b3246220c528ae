"""A checkpoint of every family of decoders that makes vectors or scores, small enough to make in a test."""

from pathlib import Path
from typing import Any

import torch

from tests.family_models import FAMILY_MODELS, spread

VOCAB, WIDTH = 160, 64
FAMILIES = ("llama", "mistral, window", "qwen2, window", "qwen3, window, biases", "gemma", "gemma2", "gemma3")
MODEL, CLASSES = "AutoModel", "AutoModelForSequenceClassification"


def make_embedder(path: Path, name: str, saved_by: str = MODEL, dtype: torch.dtype = torch.float32, seed: int = 0,
                  **keys: Any) -> Path:
    """Writes a checkpoint of random weights into the folder `path`, and returns the path. keys: of its configuration,
    which take the place of the family's"""
    import transformers

    family = FAMILY_MODELS[name]
    config = transformers.AutoConfig.for_model(family.model_type, **family.sizes | family.keys | keys)
    model = getattr(transformers, saved_by).from_config(config).to(dtype)
    spread(model, seed)
    model.save_pretrained(path)
    return path


def reference(path: Path, kind: str = MODEL, dtype: torch.dtype = torch.float32) -> Any:
    """Returns transformers' own model of a checkpoint."""
    import transformers

    return getattr(transformers, kind).from_pretrained(path, dtype=dtype, attn_implementation="eager").eval()
