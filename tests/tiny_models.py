"""Checkpoints small enough to make in a test: random weights, real files."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.lora import AdapterRows
from penstock.shard.execution.kv_cache import KvShape
from penstock.shard.execution.memory import allocate
from penstock.shard.models.model import Model
from tests.paths import DEMO_MODEL

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

WINDOW = 20
SLIDING_LAYERS = {"sliding_window": WINDOW, "use_sliding_window": True}
SCALINGS: dict[str, dict[str, Any]] = {  # rope_parameters for heads of 32 and a context of 256
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn, mscale": {"rope_type": "yarn", "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 0.7, "beta_fast": 16,
                     "beta_slow": 2, "truncate": False, "original_max_position_embeddings": 64},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": {"rope_type": "longrope", "original_max_position_embeddings": 128,
                 "short_factor": [1 + pair / 16 for pair in range(16)], "long_factor": [8.0] * 16},
}


def make_tiny(
    path: Path,
    family: str = "llama",
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    layers: int = 2,
    hidden: int = 64,
    intermediate: int = 96,
    vocab: int = 160,
    context: int = 256,
    tied: bool = False,
    has_bias: bool = False,
    rope: dict[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    max_file_size: str = "1GB",
    is_old_config: bool = False,
    has_tokenizer: bool = False,
    **keys: Any,
) -> Path:
    """Write a checkpoint into the folder `path` with transformers, and return the path.

    The weights are spread so that attention is uneven and logits differ by a few units.
    family          transformers' name: llama, mistral, qwen2, qwen3
    has_bias        of a Llama, in all linears
    rope            rope_parameters; theta is 10000 unless they say
    max_file_size   split the weights into files of at most this size, with an index
    is_old_config   write config.json as transformers 4 did
    has_tokenizer   add the demo model's tokenizer with the first `vocab` of its 8192 tokens
    keys            more of the configuration, as the family has them
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        vocab_size=vocab,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0} | (rope or {}),
        **({"attention_bias": True, "mlp_bias": True} if has_bias else {}),
        **keys,
    )
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    _spread(model, seed)
    model.save_pretrained(path, max_shard_size=max_file_size)
    if is_old_config:
        rewrite_old(path / "config.json")
    if has_tokenizer:
        for name in TOKENIZER_FILES:
            shutil.copy(DEMO_MODEL / name, path / name)
        _cut_tokenizer(path / "tokenizer.json", vocab)
    return path


def _cut_tokenizer(path: Path, vocab: int) -> None:
    """Leave the first `vocab` tokens in a tokenizer.json, whose last tokens come of its merges, in their order."""
    tokenizer = json.loads(path.read_text())
    model = tokenizer["model"]
    excess = len(model["vocab"]) - vocab
    assert 0 <= excess < len(model["merges"]), f"the tokenizer has {len(model['vocab'])} tokens, the model {vocab}"
    if excess:
        model["vocab"] = {token: number for token, number in model["vocab"].items() if number < vocab}
        del model["merges"][-excess:]
        path.write_text(json.dumps(tokenizer))


def prompt_logits(
    decoder: Model, ids: Tensor, block_size: int = 16, output_rows: Tensor | None = None,
    adapters: AdapterRows | None = None,
) -> Tensor | None:
    """The logits after every token, or some, of one prompt, run as a single step: [T, V] on rank 0, None elsewhere.

    The blocks are out of order and full of NaN, so what is read before it is written shows.
    """
    num_tokens, num_blocks = len(ids), -(-len(ids) // block_size)
    layout = decoder.facts.layout
    kv = KvShape(layout.num_caches, layout.num_kv_heads, layout.head_dim, block_size, decoder.dtype)
    caches = allocate(layout, kv, num_blocks, 1)
    for cache in caches:
        cache.data.fill_(0xFF)
    table = torch.arange(num_blocks).flip(0)
    positions = torch.arange(num_tokens)
    metadata = AttentionMetadata(
        positions=positions,
        slot_mapping=table[positions // block_size] * block_size + positions % block_size,
        tables=table.int()[None],
        starts=torch.zeros(1, dtype=torch.int32),
        counts=torch.tensor([num_tokens], dtype=torch.int32),
        slots=torch.zeros(1, dtype=torch.int32),
        adapters=adapters)
    return decoder.logits(decoder.forward(ids, metadata, caches), positions if output_rows is None else output_rows)


def random_ids(length: int, vocab: int, seed: int = 0) -> Tensor:
    return torch.randint(vocab, (length,), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def _spread(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 2:
            # Outputs of about twice the size of the inputs.
            parameter.copy_(noise * 2 / parameter.shape[1] ** 0.5)
        else:
            parameter.copy_(noise * 0.1 + 1)


def rewrite_old(path: Path) -> None:
    """Give a config.json the form that transformers 4 wrote."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if rope == {"type": "default"} else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.40.0"
    config.pop("layer_types", None)
    if config["model_type"] == "llama" and config["head_dim"] == config["hidden_size"] // config["num_attention_heads"]:
        del config["head_dim"]
    path.write_text(json.dumps(config, indent=2))
