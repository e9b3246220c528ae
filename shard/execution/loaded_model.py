"""Reads a shard's part of its model, and of the draft model if there is one, and names what it has read."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from penstock.shard.adapters.store import AdapterStore
from penstock.shard.communication.stages import Stages
from penstock.shard.config import ShardConfig
from penstock.shard.devices import gpu
from penstock.shard.execution.drafter import load_drafter
from penstock.shard.execution.kv_cache import KvShape, cache_dtype
from penstock.shard.execution.model import load_model
from penstock.shard.execution.model_name import Naming, numerics, settings_digest
from penstock.shard.execution.sizes import Sizes
from penstock.shard.layers.decoder import Decoder
from penstock.shard.layers.encoder import Encoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.stage import Stage
from penstock.shard.pooling.pooler import Pooler
from penstock.shard.weights.rank_weights import Progress


class LoadedModel:
    """Holds the model of `config`, the draft model, and the adapters' store. All ranks make theirs together.

    Raises what reading a checkpoint raises, KvMemoryError, and ValueError if the kernels have no such KV cache.
    """

    def __init__(
        self, config: ShardConfig, stages: Stages, sizes: Sizes, progress: Progress | None = None,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """tell: called when there is progress other than that a tensor was read"""
        kv_dtype = cache_dtype(config.kv_cache_dtype)
        sizes.check_weights(config)
        naming = Naming(config, stages.everyone)   # reads all files, beside the load
        self.model = load_model(config, stages.group, progress, Stage(stages.number, stages.count))
        self.pooler: Pooler | None = None
        """Makes vectors and scores, of a model that continues no text."""
        if isinstance(self.model, Decoder | Encoder) and self.model.config.pooler is not None:
            is_float32 = self.model.dtype == torch.float32
            vocabulary = self.model.vocabulary if is_float32 and isinstance(self.model, Encoder) else None
            self.pooler = Pooler(
                self.model.config.pooler, self.model.config, config.model, stages.group, vocabulary)
        self.adapters = AdapterStore(self.model.adaptable, partial(gpu.choose, config))
        if config.draft_model is not None:
            sizes.check_weights(replace(
                config, model=config.draft_model, quantize=None, rope_scaling=None, model_impl="auto", task="auto",
                pooling=None))
        self.drafter = load_drafter(config, stages.everyone, self.model.facts, progress)
        layout = self.model.facts.layout
        if kv_dtype is not None and not layout.num_caches and stages.count == 1:
            raise ModelConfigError(f"{config.model}: --kv-cache-dtype {config.kv_cache_dtype}: the model keeps no keys "
                                   "and values in blocks, so there is nothing that it could be the dtype of")
        self.kv_shape = KvShape(
            layout.num_caches, layout.num_kv_heads, layout.head_dim, config.block_size, kv_dtype or self.model.dtype,
            layout.token_bytes + self.drafter.token_bytes)
        self.dtype = str(self.model.dtype).removeprefix("torch.")
        self.kv_dtype = config.kv_cache_dtype or self.dtype
        self.numerics = numerics(self.model, self.kv_dtype, stages.group.world_size)
        """Names the numerics, which decide every bit of an answer, apart from the model."""
        self.name = naming.agree(settings_digest(config, self.model, self.pooler), tell)
