"""Loads the model of a checkpoint: by our own decoder, or by transformers where the architecture is not native."""

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.gpu_memory import options_of
from penstock.shard.models.decoder import Decoder
from penstock.shard.models.model import Model
from penstock.shard.models.reading import DTYPES, is_native
from penstock.shard.weights.rank_weights import Progress


def load_model(config: ShardConfig, group: Group, progress: Progress | None = None) -> Model:
    """Reads this rank's part of a model. Raises ModelConfigError for a model that cannot be run, or not on so many
    ranks, CheckpointError for weights."""
    dtype, options = DTYPES[config.dtype] if config.dtype else None, options_of(config)
    if is_native(config.model, options):
        return Decoder.load(config.model, dtype, group, progress, options)
    from penstock.shard.fallback.model import TransformersModel

    return TransformersModel.load(config.model, dtype, group, options, progress)
