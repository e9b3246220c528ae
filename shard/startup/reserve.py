"""Has the system give the memory of keys and values before a shard serves: a page that can't be had is found then, and
told in a sentence, and kills nobody later."""

from penstock.shard.devices.machine import available_memory
from penstock.shard.execution.kept_memory import KeptMemory
from penstock.shard.execution.kv_cache import KvMemoryError
from penstock.shard.progress import LoadProgress

PLENTY = 2
"""How many times as much memory must be available as is reserved, that a shard serves meanwhile: a gibibyte takes a
quarter of a second."""


def reserve_at_start(kept: KeptMemory | None, progress: LoadProgress, world_size: int) -> None:
    """Reserves the memory of a shard that takes nobody's place, unless there is plenty for all shards; one that takes
    another's has sequences waiting, and does not wait.

    Raises KvMemoryError if the system refuses it.
    """
    if kept is None or kept.found is not None or available_memory() >= PLENTY * world_size * kept.num_bytes:
        return
    try:
        kept.reserve(progress.tell)
    except OSError as error:
        raise KvMemoryError(
            f"the system refuses the memory of keys and values, though it seemed to be available ({error.strerror}): "
            "set --kv-memory lower, or end what else uses memory") from error
