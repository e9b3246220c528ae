"""How much of the machine's memory a shard may come to use. It is announced at the start, so that what grows beyond it
is a fault that can be noticed."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
SAMPLING_BYTES = 32
"""Bytes for each token of the vocabulary, in each row that is sampled: its logit, its score, and room to sort them."""
OTHER_BYTES = 48 << 20
"""The bytes of all else: messages in flight, heaps with gaps, parts of libraries that are used later."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryCeiling:
    """The bytes that a shard uses at the most: `used` when it has started, and what is added for each purpose."""

    used: int
    kv: int
    step: int
    adapters: int = 0

    @property
    def most(self) -> int:
        return self.used + self.kv + self.step + self.adapters + OTHER_BYTES

    def excess(self, available: int, num_shards: int, is_kv_reserved: bool) -> str:
        """Says that all shards together may come to use more than is `available` besides what they have; empty if they
        do not."""
        needed = num_shards * (self.most - self.used - (self.kv if is_kv_reserved else 0))
        if needed <= available:
            return ""
        return (f"{num_shards} shard{'s' * (num_shards > 1)} may come to use {_mib(needed)} MiB more, and "
                f"{_mib(available)} MiB are available: set --kv-memory, --max-batch-prefill-tokens or "
                "--max-batch-size lower")

    def __str__(self) -> str:
        return (f"at most {_mib(self.most)} MiB of memory: {_mib(self.used)} of program and weights, {_mib(self.kv)} "
                f"of keys and values, {_mib(self.step)} for the largest step, "
                f"{f'{_mib(self.adapters)} of adapters, ' if self.adapters else ''}{_mib(OTHER_BYTES)} for all else")


def measured(
    measure: Callable[[], int], kv: int, max_step_tokens: int, logits: int, adapters: int = 0
) -> tuple[int, MemoryCeiling | None]:
    """Returns the step tokens that `measure` finds by running steps, and the ceiling that follows from the memory that
    it took for them; None where the system does not tell.

    `kv` are the bytes of the KV memory, `adapters` those of all adapters at once, `logits` how many a step has at the
    most. The largest step that was run had at
    least half as many tokens as are found.
    """
    with suppress(OSError):
        CLEAR_REFS.write_text(RESET_PEAK)
    step_tokens = measure()
    found = _status()
    if not found:
        return step_tokens, None
    step = max(0, found["VmHWM"] - found["VmRSS"]) * 2 * max(step_tokens, max_step_tokens) // step_tokens
    return step_tokens, MemoryCeiling(found["VmRSS"] - found["RssShmem"], kv, step + logits * SAMPLING_BYTES,
                                adapters)


def _status() -> dict[str, int]:
    """Returns the system's memory counts of this process, in bytes; none if it has none."""
    with suppress(OSError, KeyError):
        lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        return {name: int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM", "RssShmem")}
    return {}


def _mib(size: int) -> int:
    return -(-size // MIB)
