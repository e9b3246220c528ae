"""The trial of the bit contract, beside what earlier shards have left in the KV memory."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.startup.bit_trial import keeps_bits
from tests.shard.ranks import make_config
from tests.tiny_models import make_tiny


@pytest.mark.parametrize("implementation", ["native", "transformers"])
def test_it_leaves_the_kv_memory_as_it_was(tmp_path: Path, implementation: str) -> None:
    config = replace(make_config(make_tiny(tmp_path, "llama")), model_impl=implementation)
    executor = Executor(config, Group())
    before = []
    for number, cache in enumerate(executor.memory.caches):
        cache.data.fill_(number + 1)
        before.append(cache.data.clone())
    bounds = executor.memory.bounds
    assert keeps_bits(executor, Group())
    assert executor.memory.bounds == bounds
    assert all(map(torch.equal, (cache.data for cache in executor.memory.caches), before))
