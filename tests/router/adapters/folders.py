"""Adapters' folders, as PEFT writes them, with tensors of zeros."""

import hashlib
import json
from pathlib import Path

PEFT = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}


def write_adapter(folder: Path, rank: int = 8, width: int = 16, fill: int = 0, **config: object) -> Path:
    """Makes a folder with an adapter of 2 × rank × width weights; on a shard ranks are padded to 16."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({**PEFT, "r": rank, **config}))
    size = rank * width * 4
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        name.format("A"): {"dtype": "F32", "shape": [rank, width], "data_offsets": [0, size]},
        name.format("B"): {"dtype": "F32", "shape": [width, rank], "data_offsets": [size, 2 * size]},
    }).encode()
    (folder / "adapter_model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes([fill]) * (2 * size))
    return folder


def digest_of(folder: Path) -> str:
    """Returns the digest that both files of an adapter have together."""
    config, tensors = ((folder / name).read_bytes() for name in ("adapter_config.json", "adapter_model.safetensors"))
    return hashlib.sha256(hashlib.sha256(config).digest() + tensors).hexdigest()
