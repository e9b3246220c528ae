"""Makes an executor that is ready to run steps: settings checked, the model read, and on a GPU the KV memory fitted,
kernels compiled and steps captured."""

import logging

import torch

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.devices import gpu
from penstock.shard.execution.captures import capture
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.gpu_memory import options_of, out_of_memory
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.reading import is_native, read_model_config
from penstock.shard.models.unfollowed import absent_sizes, unfollowed
from penstock.shard.progress import LoadProgress
from penstock.shard.startup.trial import check_memory, fit_kv_memory
from penstock.shard.startup.warmup import warm_up

log = logging.getLogger(__name__)


def load(config: ShardConfig, group: Group, progress: LoadProgress | None = None) -> Executor:
    """Load the model and make the executor ready; all ranks of the group call it together.

    Raises the errors of reading a checkpoint, and KvMemoryError."""
    progress = progress or LoadProgress()
    check_settings(config)
    if config.rank == 0:
        _warn(absent_sizes(config.model))
    try:
        with progress.reading():
            executor = Executor(config, group, progress.read, progress.tell)
        if gpu.is_used():
            largest_step = fit_kv_memory(executor, config)
            warm_up(executor, group, config, progress)
            capture(executor, progress)
            check_memory(executor, config, largest_step)
        elif config.rank == 0:
            _say_what_has_no_effect(config)
        if config.rank == 0:
            _warn(unfollowed(config.model, executor.model.facts.vocab_size, executor.pooler is None))
    except torch.OutOfMemoryError as error:
        raise out_of_memory(config, error) from error
    return executor


def _warn(sentences: list[str]) -> None:
    for sentence in sentences:
        log.warning("%s", sentence)


def _say_what_has_no_effect(config: ShardConfig) -> None:
    """Names the settings of GPUs, which users of both kinds of machine have in the same file, on a processor."""
    if any(config.cuda_graphs or ()):
        log.info("--cuda-graphs: nothing is captured, for the shard computes on the processor")
    if config.cuda_memory_fraction != 1:
        log.warning("--cuda-memory-fraction %g has no effect: the shard computes on the processor; --kv-memory says "
                    "how much memory keys and values get", config.cuda_memory_fraction)


def check_settings(config: ShardConfig) -> None:
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
    if model.pooler is not None:
        _check_without_tokens(config, model)
        return
    if config.max_total_tokens is not None and config.max_total_tokens > context:
        raise ModelConfigError(f"`max_total_tokens` must be <= the model's context of {context} tokens. Given: "
                               f"{config.max_total_tokens}")
    if config.max_input_tokens is not None and config.max_input_tokens >= context:
        raise ModelConfigError(f"`max_input_tokens` must be < the model's context of {context} tokens. Given: "
                               f"{config.max_input_tokens}")
    if config.speculate and model.recurrence is not None:
        raise ModelConfigError("`speculate` must be 0: the model carries a state from token to token, from which a "
                               f"wrong guess can't be taken back. Given: {config.speculate}")


def _check_without_tokens(config: ShardConfig, model: ModelConfig) -> None:
    """Raises ModelConfigError for limits beyond the longest text, and for what belongs to models that generate."""
    if config.max_input_tokens is not None and config.max_input_tokens > model.context_length:
        raise ModelConfigError(f"`max_input_tokens` must be <= the longest text of {model.context_length} tokens. "
                               f"Given: {config.max_input_tokens}")
    if config.speculate:
        raise ModelConfigError(f"`speculate` must be 0: the model makes vectors and scores of texts, and no tokens. "
                               f"Given: {config.speculate}")
    if config.draft_model is not None:
        raise ModelConfigError(f"`draft_model` {config.draft_model}: the model makes vectors and scores of texts, and "
                               "no tokens that another could propose")
    if config.pipeline_parallel_size > 1 and not model.attention.is_causal:
        raise ModelConfigError(f"`pipeline_parallel_size` must be 1: a model whose tokens see those behind them is "
                               f"split by heads alone. Given: {config.pipeline_parallel_size}")
