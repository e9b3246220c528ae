"""How well a model predicts texts."""

import math
from pathlib import Path

import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.paged_attention import allocate_cache
from penstock.quantization.walk import BLOCK_SIZE, whole_sequence
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.model_options import AS_STORED, ModelOptions


def perplexity(directory: Path, windows: Tensor, options: ModelOptions = AS_STORED) -> float:
    """Returns exp of the mean of -log p of each token of windows, int64 [W, T], but for the first of each.

    The model computes as the server does: in its own dtype, and with inputs of quantised linears in 8 bits unless
    options say otherwise.
    """
    decoder = Decoder.load(directory, None, Group(), options=options)
    length = windows.shape[1] - 1
    layout = decoder.facts.layout
    caches = [allocate_cache(-(-length // BLOCK_SIZE), block_size=BLOCK_SIZE, num_kv_heads=layout.num_kv_heads,
                             head_dim=layout.head_dim, dtype=decoder.dtype, device="cpu")
              for _ in range(layout.num_layers)]
    metadata = whole_sequence(length)
    losses = [_loss(decoder, window, metadata, caches) for window in windows]
    return math.exp(sum(losses) / len(losses))


def _loss(decoder: Decoder, window: Tensor, metadata: AttentionMetadata, caches: list[KvCache]) -> float:
    hidden = decoder.forward(window[:-1], metadata, caches)
    logits = decoder.logits(hidden, torch.arange(len(window) - 1))
    assert logits is not None, "one rank has all logits"
    return float(torch.nn.functional.cross_entropy(logits, window[1:]))
