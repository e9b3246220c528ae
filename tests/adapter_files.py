"""Adapters in PEFT's files, small enough to make in a test."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def linear_shapes(model: Path) -> dict[str, tuple[int, int]]:
    """The outputs and inputs of a checkpoint's linears, by their modules' names."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        made: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    return {name: tuple(module.weight.shape) if type(module).__name__ != "Conv1D" else tuple(module.weight.shape)[::-1]
            for name, module in made.named_modules() if type(module).__name__.endswith(("Linear", "Conv1D"))}


def make_adapter(
    folder: Path, model: Path, rank: int = 8, *, seed: int = 0, targets: Collection[str] = LINEARS,
    dtype: torch.dtype = torch.float32, strength: float = 0.3, changes: dict[str, Tensor | None] | None = None,
    **config: Any,
) -> Path:
    """Write an adapter of the linears whose last names are `targets` into `folder`, and return the folder.

    `changes` to the tensors, of which None takes one away; `config` more of adapter_config.json.
    """
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", "target_modules": [*targets],
                **config}
    tensors: dict[str, Tensor] = {}
    for name, (outputs, inputs) in linear_shapes(model).items():
        last = name.rpartition(".")[2]
        if last not in targets:
            continue
        own = settings.get("rank_pattern", {}).get(last, rank)
        tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(
            own, inputs, generator=generator).div(inputs ** 0.5).to(dtype)
        tensors[f"base_model.model.{name}.lora_B.weight"] = (
            strength * torch.randn(outputs, own, generator=generator) / own ** 0.5).to(dtype)
    for name, tensor in (changes or {}).items():
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def merged_weights(model: Path, adapter: Path) -> dict[str, Tensor]:
    """What the base's weights would be with the adapter in them, by the names of their modules, float64."""
    from safetensors.torch import load_file

    config = json.loads((adapter / "adapter_config.json").read_text())
    tensors = load_file(adapter / "adapter_model.safetensors")
    merged = {}
    for name, a in tensors.items():
        if ".lora_A" in name:
            b = tensors[name.replace(".lora_A", ".lora_B")]
            module = name.removeprefix("base_model.model.").partition(".lora_A")[0]
            alpha = config.get("alpha_pattern", {}).get(module.rpartition(".")[2], config["lora_alpha"])
            scale = alpha / (len(a) ** 0.5 if config.get("use_rslora") else len(a))
            merged[module] = scale * b.double() @ a.double()
    return merged
