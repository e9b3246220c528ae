"""How many bytes of weights a decode step reads: no step of one token is faster than memory gives them."""

import re
from math import prod
from pathlib import Path

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.model_options import ModelOptions
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.format import memory_of
from penstock.shard.weights.stored import Entry


def read_bytes(model: Path) -> int:
    """Returns the bytes that a step of one token reads: of the experts those that it has, of an embedding, which gives
    a row, nothing but where it is the head too. model: a directory, or a GGUF file, of which all counts."""
    if model.is_file():
        return model.stat().st_size
    config, entries = read_model_config(model), Checkpoint(model).entries
    head, embedding = f"{config.names.head}.", f"{config.names.embedding}."
    is_tied = config.head.is_tied or not any(name.startswith(head) for name in entries)
    experts, share = _expert_prefixes(config), 1.0
    if config.experts is not None:
        share = config.experts.route.top_k / config.experts.num_experts
    total = 0.0
    for name, entry in entries.items():
        size = _size(entry)
        if name.startswith(experts):
            total += size * share
        elif is_tied or not name.startswith(embedding):
            total += size
    return round(total)


def rounded_bytes(model: Path, quantize: str) -> int:
    """Returns `read_bytes` of a directory's model that is rounded when it is loaded: smaller in the proportion in which
    all its weights shrink."""
    checkpoint, dtype = Checkpoint(model), read_model_config(model).dtype
    plain, rounded = (memory_of(checkpoint, read_model_config(model, ModelOptions(quantize=own)).format_of, dtype)
                      for own in (None, quantize))
    return round(read_bytes(model) * rounded / plain)


def _size(entry: Entry) -> float:
    """Returns a tensor's bytes; its dtype, such as BF16 or F8_E4M3, says how many bits a number has."""
    bits = re.search(r"\d+", entry.dtype)
    return prod(entry.shape) * int(bits[0] if bits else 8) / 8


def _expert_prefixes(config: ModelConfig) -> tuple[str, ...]:
    blocks = [config.names.of_block(index) for index in range(config.num_layers) if config.experts_of(index)]
    return tuple(name.partition("{expert}")[0]
                 for block in blocks for name in (block.expert_gate, block.expert_up, block.expert_down))
