"""Checkpoints of transformers' classes with random weights."""

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.fallback.tiny_config import tiny_config


def make_checkpoint(name: str, folder: Path) -> Path:
    """Writes a tiny model of a class into a new folder, and returns the folder."""
    model_class = getattr(transformers, name)
    torch.manual_seed(1)                 # of the weights that stay as the class makes them
    model = model_class(tiny_config(name, model_class.config_class))
    _spread(model)
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(folder)
    return folder


@torch.no_grad()
def _spread(model: Any) -> None:
    """Gives the weights random numbers, with which logits differ by a few units; biases and gains stay."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() >= 2:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 1.5 / parameter.shape[-1] ** 0.5)
