"""Collects the facts of a shard that the router must know."""

import secrets
from typing import Any

from penstock.contract.facts import Facts
from penstock.contract.shard_facts import ShardFacts
from penstock.shard.execution.executor import Executor
from penstock.shard.pooling.pooler import Pooler


def describe(executor: Executor, step_tokens: int, keeps_bits: bool = True) -> ShardFacts:
    """Returns the facts, and declares the KV memory in use. Others have measured the last two arguments."""
    config, loaded, stages, memory = executor.config, executor.loaded, executor.stages, executor.memory
    bounds = memory.bounds
    header = memory.kept.seal(bounds.num_blocks, step_tokens, memory.num_states) if memory.kept else None
    facts = Facts(
        model_id=config.model_id or str(config.model),
        dtype=loaded.dtype,
        kv_dtype=loaded.kv_dtype,
        block_size=bounds.block_size,
        num_blocks=bounds.num_blocks,
        vocab_size=bounds.vocab_size,
        eos_token_ids=frozenset(loaded.model.facts.eos_token_ids),
        context_length=bounds.context_length,
        world_size=stages.everyone.world_size,
        numerics=loaded.numerics,
        weights_digest=loaded.name.weights,
        settings_digest=loaded.name.settings,
        step_tokens=step_tokens,
        memory_id=header.id if header else secrets.token_hex(8),
        first_blocks=header.first_blocks if header else bounds.num_blocks,
        num_states=memory.num_states,
        implementation=loaded.model.facts.implementation,
        keeps_bits=keeps_bits,
        takes_adapters=loaded.adapters.takes_adapters,
        draft_context=bounds.draft_context,
        group=config.group,
        num_stages=stages.count,
        **({} if loaded.pooler is None else _of_pooler(loaded.pooler, bounds.is_whole)))
    return ShardFacts(stages.everyone.rank, stages.answers, facts, config.shards_here)


def _of_pooler(pooler: Pooler, is_whole: bool) -> dict[str, Any]:
    """Returns the facts of a model that makes vectors or scores."""
    config = pooler.config
    return {"tasks": frozenset(config.tasks), "is_whole": is_whole,
            "pools_last": config.pools_last and config.splade is None, "vector_size": pooler.vector_size,
            "pooling": config.name, "labels": config.labels, "activation": config.activation,
            "token_vector_size": pooler.token_size, "pad_token_ids": frozenset(config.pad_tokens)}
