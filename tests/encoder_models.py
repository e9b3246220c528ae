"""A checkpoint of every family of encoders, small enough to make in a test, with the switches that the family has."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.family_models import ORIGINAL, spread

VOCAB, CONTEXT = 160, 128
SIZES = {"vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 8, "max_position_embeddings": CONTEXT, "pad_token_id": 1}
MODEL, MASKED, CLASSES = "AutoModel", "AutoModelForMaskedLM", "AutoModelForSequenceClassification"


@dataclass(frozen=True, slots=True)
class EncoderModel:
    """What transformers calls the family, a configuration of it, and the class that writes the checkpoint."""

    model_type: str
    keys: dict[str, Any] = field(default_factory=dict)
    saved_by: str = MODEL
    sizes: dict[str, Any] = field(default_factory=lambda: SIZES)
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Makes the configuration of a class that transformers lacks from that of one that it has."""


def as_authors(config: dict[str, Any]) -> dict[str, Any]:
    """GTE, as its authors' code reads it."""
    theta = config.pop("rope_parameters")["rope_theta"]
    return config | {"architectures": ["NewModel"], "rope_theta": theta, "pack_qkv": True, "rope_scaling": None}


def of(model_type: str, saved_by: str = MODEL, **keys: Any) -> EncoderModel:
    return EncoderModel(model_type, keys, saved_by)


DISTILBERT_SIZES = {"vocab_size": VOCAB, "dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 8,
                    "max_position_embeddings": CONTEXT, "pad_token_id": 0}
DEBERTA = {"relative_attention": True, "share_att_key": True, "pos_att_type": ["c2p", "p2c"]}
ENCODER_MODELS = {
    "bert": of("bert"),
    "bert, tanh, masked": of("bert", MASKED, hidden_act="gelu_new"),
    "bert, classes": of("bert", CLASSES, num_hidden_layers=1),
    "roberta": of("roberta"),
    "roberta, classes": of("roberta", CLASSES, type_vocab_size=1, num_hidden_layers=1),
    "xlm-roberta": of("xlm-roberta", CLASSES, pad_token_id=1, type_vocab_size=1),
    "camembert": of("camembert", MASKED, type_vocab_size=1),
    "distilbert": EncoderModel("distilbert", sizes=DISTILBERT_SIZES),
    "distilbert, classes": EncoderModel("distilbert", saved_by=CLASSES, sizes=DISTILBERT_SIZES),
    "deberta": of("deberta-v2", CLASSES, position_biased_input=False, position_buckets=16, norm_rel_ebd="layer_norm",
                  **DEBERTA),
    "deberta, every distance": of("deberta-v2", MASKED, type_vocab_size=2, max_relative_positions=40, **DEBERTA),
    "mpnet": of("mpnet"),
    "mpnet, classes": of("mpnet", CLASSES),
    "modernbert": of("modernbert", MASKED, num_hidden_layers=4, local_attention=20),
    "modernbert, biases": of("modernbert", CLASSES, num_hidden_layers=3, local_attention=128, attention_bias=True,
                             mlp_bias=True, norm_bias=True),
    "eurobert": of("eurobert", num_key_value_heads=4, head_dim=16),
    "nomic": of("nomic_bert"),
    "gte": of("gte"),
    "gte, its authors'": EncoderModel("gte", {"rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}},
                                      convert=as_authors),
    "gte, types, classes": of("gte", CLASSES, type_vocab_size=2),
}
"""By a name for the test: what transformers calls the family, and what is special."""


def make_encoder(
    path: Path, name: str, dtype: torch.dtype = torch.float32, seed: int = 0, saved_by: str = "", **keys: Any
) -> Path:
    """Writes a checkpoint of random weights into the folder `path`, and returns the path. saved_by: the class, if it is
    not the family's; keys: of its configuration, which take the place of the family's"""
    import transformers

    family = ENCODER_MODELS[name]
    config = transformers.AutoConfig.for_model(family.model_type, **family.sizes | family.keys | keys)
    model = getattr(transformers, saved_by or family.saved_by).from_config(config).to(dtype)
    spread(model, seed)
    model.save_pretrained(path)
    if family.convert is not None:
        (path / ORIGINAL).mkdir()
        for file in ("config.json", "model.safetensors"):
            shutil.copy(path / file, path / ORIGINAL / file)
        made = family.convert(json.loads((path / "config.json").read_text()))
        (path / "config.json").write_text(json.dumps(made))
    return path


def reference(path: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Returns transformers' own encoder of a checkpoint that `make_encoder` made."""
    from transformers import AutoModel

    folder = path / ORIGINAL if (path / ORIGINAL).exists() else path
    return AutoModel.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def make_adapter(folder: Path, model: Path, targets: Sequence[str], rank: int = 4) -> Path:
    """Writes an adapter of the linears of a checkpoint whose names end with `targets`, and returns the folder."""
    folder.mkdir()
    generator, tensors = torch.Generator().manual_seed(1), {}
    for name, weight in load_file(model / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if weight.dim() == 2 and module.endswith(tuple(f".{target}" for target in targets)):
            for matrix, shape in (("A", (rank, weight.shape[1])), ("B", (weight.shape[0], rank))):
                tensors[f"base_model.model.{module}.lora_{matrix}.weight"] = torch.randn(shape, generator=generator) / 8
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", "target_modules": [*targets]}))
    return folder


def merge(path: Path, model: Path, adapter: Path) -> Path:
    """Writes a checkpoint with an adapter in its weights, and returns its path."""
    shutil.copytree(model, path)
    tensors, own = load_file(model / "model.safetensors"), load_file(adapter / "adapter_model.safetensors")
    for name, a in own.items():
        if ".lora_A" in name:
            module = name.removeprefix("base_model.model.").partition(".lora_A")[0]
            tensors[f"{module}.weight"] += 2 * own[name.replace(".lora_A", ".lora_B")] @ a
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path
