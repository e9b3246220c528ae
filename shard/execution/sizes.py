"""Decides how much of a device's memory weights and sequences get: one kind of sizes for GPUs, one for processors."""

from dataclasses import dataclass

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.devices import gpu
from penstock.shard.execution.gpu_memory import check_weights, part_of_memory, trial_blocks
from penstock.shard.execution.kept_memory import KeptMemory
from penstock.shard.execution.kv_cache import KvShape, check_kv_memory, kv_budget, num_blocks


@dataclass(frozen=True, slots=True)
class ProcessorSizes:
    """Sizes the memory that lies in the machine's memory, by the free part of it."""

    config: ShardConfig
    group: Group

    def check_weights(self, config: ShardConfig) -> None:
        """Raises KvMemoryError if the weights of the model of `config` don't fit. All ranks call it together."""
        check_weights(config, part_of_memory(self.group))

    def keep(self, layout: str) -> KeptMemory | None:
        """Returns the memory that outlives this shard, if the shard was given a file for it."""
        return None if self.config.memory_fd is None else KeptMemory(self.config.memory_fd, layout)

    def for_states(self, shape: KvShape, context_length: int) -> int:
        """Returns the bytes that states and blocks share."""
        return kv_budget(shape, self.config.kv_memory, context_length, self.group.num_local)

    def num_blocks(self, shape: KvShape, context_length: int, others: int, before: int | None) -> int:
        """Returns how many blocks fit beside the bytes of `others`, where the shard before had so many."""
        memory = self.config.kv_memory
        if memory is None:
            others += self.config.adapter_memory
        elif before is None:
            check_kv_memory(memory, self.group.num_local)
        return num_blocks(shape, memory, context_length, self.group.num_local, before, others)


@dataclass(frozen=True, slots=True)
class GpuSizes:
    """Sizes the memory that lies on a GPU, and ends with its process. Without --kv-memory the largest step tells later
    how many blocks fit: the first ones are for this step alone."""

    config: ShardConfig
    group: Group

    def check_weights(self, config: ShardConfig) -> None:
        check_weights(config, gpu.free_memory())

    def keep(self, layout: str) -> None:
        return None

    def for_states(self, shape: KvShape, context_length: int) -> int:
        return gpu.free_memory() if self.config.kv_memory is None else self.config.kv_memory

    def num_blocks(self, shape: KvShape, context_length: int, others: int, before: int | None) -> int:
        if self.config.kv_memory is None:
            return trial_blocks(shape, self.config, context_length)
        return num_blocks(shape, self.config.kv_memory, context_length, self.group.num_local, before, others)


Sizes = ProcessorSizes | GpuSizes


def sizes_of(config: ShardConfig, group: Group) -> Sizes:
    """Returns the sizes of the device that this shard computes on."""
    return (GpuSizes if gpu.is_used() else ProcessorSizes)(config, group)
