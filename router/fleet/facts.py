"""What the shards of a group report of themselves, as one."""

from collections.abc import Collection
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a group: equal on all its shards, or the minimum over them.

    `context_length`, `block_size` and `step_tokens` count tokens; `step_tokens` is how many prompt tokens one
    step runs in about 250 ms. `numerics` names the kernels and number formats that decide every bit.
    """

    model_id: str
    dtype: str
    kv_dtype: str
    block_size: int
    num_blocks: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    context_length: int
    world_size: int
    numerics: str
    weights_digest: str
    step_tokens: int

    @property
    def capacity(self) -> int:
        """Tokens that the KV memory holds."""
        return self.block_size * self.num_blocks

    @property
    def has_gpus(self) -> bool:
        return self.numerics.startswith("gpu")

    @property
    def is_deterministic(self) -> bool:
        """Whether no answer depends on what is computed beside it: not on GPUs of which it was not asked."""
        return not self.has_gpus or self.numerics.partition("/")[0].endswith("-deterministic")

    def differences(self, other: "Facts", besides: Collection[str]) -> list[str]:
        """`name: ours and theirs` of each fact that differs, but for those named."""
        names = [field.name for field in fields(self) if field.name not in besides]
        return [f"{name}: {getattr(self, name)} and {getattr(other, name)}" for name in names
                if getattr(self, name) != getattr(other, name)]
