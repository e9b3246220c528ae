"""Loads the model of a checkpoint: by our own decoder or encoder, or by transformers where the architecture is not
native."""

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.gpu_memory import options_of
from penstock.shard.layers.decoder import Decoder
from penstock.shard.layers.encoder import Encoder
from penstock.shard.models.keys import Keys, ModelConfigError
from penstock.shard.models.model import Model
from penstock.shard.models.reading import DTYPES, is_encoder, is_native
from penstock.shard.models.stage import WHOLE, Stage
from penstock.shard.weights.rank_weights import Progress


def load_model(
    config: ShardConfig, group: Group, progress: Progress | None = None, stage: Stage = WHOLE
) -> Model:
    """Reads this rank's part of a model, or of a stage that the ranks of `group` have. Raises ModelConfigError for a
    model that cannot be run, or not on so many ranks, CheckpointError for weights."""
    dtype, options = DTYPES[config.dtype] if config.dtype else None, options_of(config)
    if is_native(config.model, options):
        if is_encoder(Keys.read(config.model / "config.json")):
            return Encoder.load(config.model, dtype, group, progress, options)
        return Decoder.load(config.model, dtype, group, progress, options, stage)
    if stage.count > 1:
        raise ModelConfigError(f"{config.model}: --pipeline-parallel-size {stage.count}: the model is computed by "
                               "transformers, which runs all of it on 1 shard")
    from penstock.shard.fallback.model import TransformersModel

    return TransformersModel.load(config.model, dtype, group, options, progress)
