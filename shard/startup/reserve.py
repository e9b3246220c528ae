"""Has the system give the memory of keys and values before a shard serves: a page that can't be had is found then, and
told in a sentence, and kills nobody later."""

from penstock.shard.execution.kept_memory import KeptMemory
from penstock.shard.execution.kv_cache import KvMemoryError
from penstock.shard.progress import LoadProgress


def reserve_at_start(kept: KeptMemory | None, progress: LoadProgress) -> None:
    """Reserves the memory of a shard that takes nobody's place; one that does has sequences waiting, and does not wait.

    Raises KvMemoryError if the system refuses it.
    """
    if kept is None or kept.found is not None:
        return
    try:
        kept.reserve(progress.tell)
    except OSError as error:
        raise KvMemoryError(
            f"the system refuses the memory of keys and values, though it seemed to be available ({error.strerror}): "
            "set --kv-memory lower, or end what else uses memory") from error
