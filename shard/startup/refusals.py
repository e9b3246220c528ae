"""Refuses settings that a model can't meet, by its configuration alone: before any of its weights is read."""

from penstock.shard.config import ShardConfig
from penstock.shard.execution.gpu_memory import options_of
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.reading import is_native, read_model_config


def check(config: ShardConfig) -> None:
    """Raises ModelConfigError for limits that the model's context does not have, and for what its kind does not do.

    What depends on memory, or on another's code for a model, is found after the load; the router has the same rules for
    groups that others have started.
    """
    options = options_of(config)
    if not is_native(config.model, options):
        if config.adapter_memory:
            raise ModelConfigError(f"{config.model}: the model, as transformers computes it, takes no adapters; leave "
                                   "out --lora-adapters, --allow-runtime-adapters and --max-adapter-memory")
        return
    model = read_model_config(config.model, options)
    context = model.context_length
    if config.max_total_tokens is not None and config.max_total_tokens > context:
        raise ModelConfigError(f"`max_total_tokens` must be <= the model's context of {context} tokens. Given: "
                               f"{config.max_total_tokens}")
    if config.max_input_tokens is not None and config.max_input_tokens >= context:
        raise ModelConfigError(f"`max_input_tokens` must be < the model's context of {context} tokens. Given: "
                               f"{config.max_input_tokens}")
    if config.speculate and model.recurrence is not None:
        raise ModelConfigError("`speculate` must be 0: the model carries a state from token to token, from which a "
                               f"wrong guess can't be taken back. Given: {config.speculate}")
