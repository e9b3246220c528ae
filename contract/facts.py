"""The facts that the shards of a group report, joined to those of the group."""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Self

from penstock.contract.pooling import GENERATES, Task

MUST_BE_EQUAL = frozenset({"vocab_size", "eos_token_ids", "context_length", "takes_adapters", "tasks", "is_whole",
                           "pools_last", "vector_size", "pooling", "labels", "activation", "token_vector_size",
                           "pad_token_ids"})
"""The facts in which no two groups of a router may differ."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a group: each is equal on all its shards or is the minimum over them.

    `context_length`, `block_size` and `step_tokens` count tokens; `step_tokens` is how many prompt tokens one
    step runs in about 250 ms. `numerics` names the kernels and number formats that decide every bit of
    what the model computes, and the number of shards where that matters. The model is named by the digests of its
    weights, to the last byte, and of all settings that belong to it, as in its config.json. While `memory_id`
    stays as it was, so does what the KV memory holds. `first_blocks` is how many blocks the group had at its first
    start: it may have found less since. `num_states` is how many sequences can run at once, of a model that carries a
    state from token to token beside the keys and values; 0 for other models. `implementation` says who computes the
    model, native or transformers, and `keeps_bits` whether it was seen to keep the bit contract. `takes_adapters` says
    whether adapters (LoRA) can be loaded. `draft_context` is how many tokens of a sequence the draft model takes; 0 if
    there is none. `group` is the group's name; that of a launcher's own is empty. `num_stages` is how many parts of the
    group compute a step one after the other, each its layers. `tasks` are the model's. One that `is_whole`
    computes each text in one step, without blocks. One that `pools_last` makes vectors and scores of the last token
    alone. `vector_size` counts the numbers of a vector, `token_vector_size` those of one token's, and `pooling` names
    how the tokens' vectors become one.
    `labels` name the classes that a text is scored for, and `activation` what makes the scores shown of the raw ones.
    No text is scored by one of `pad_token_ids` at its end, but by the token before.
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
    settings_digest: str
    step_tokens: int
    memory_id: str
    first_blocks: int = 0
    num_states: int = 0
    implementation: str = "native"
    keeps_bits: bool = True
    takes_adapters: bool = False
    draft_context: int = 0
    group: str = ""
    num_stages: int = 1
    tasks: frozenset[Task] = GENERATES
    is_whole: bool = False
    pools_last: bool = False
    vector_size: int = 0
    pooling: str = ""
    labels: tuple[str, ...] = ()
    activation: str = ""
    token_vector_size: int = 0
    pad_token_ids: frozenset[int] = frozenset()

    @property
    def bits(self) -> tuple[str, ...]:
        """The names that decide every bit of an answer: the model, then how it is computed."""
        return (self.model, self.dtype, self.kv_dtype, str(self.vocab_size), self.numerics, self.implementation)

    @property
    def model(self) -> str:
        """Names the model, whoever computes it in whatever numbers: its weights, and the settings that belong to it."""
        return f"{self.weights_digest}/{self.settings_digest}"

    def complaint(self, other: "Facts", may_change: Collection[str]) -> str:
        """Says why the group can't go on with these facts in place of its own: all but those that `may_change` must be
        equal, the model first of all. Empty if it can."""
        parts = {"weights": self.weights_digest != other.weights_digest,
                 "settings": self.settings_digest != other.settings_digest}
        if others := [part for part, is_other in parts.items() if is_other]:
            return f"the model was replaced by another one, whose {' and '.join(others)} are others"
        differences = self.differences(other, besides=may_change)
        return f"the group came back with other facts, {', '.join(differences)}" if differences else ""

    @property
    def answering_rank(self) -> int:
        """The rank that samples: the first of the last stage."""
        return self.world_size // self.num_stages * (self.num_stages - 1)

    @property
    def most_blocks(self) -> int:
        """How many blocks the group may have when it is started anew: at least as many as it has."""
        return max(self.first_blocks, self.num_blocks)

    @property
    def most_capacity(self) -> int:
        """How many tokens `most_blocks` hold."""
        return self.block_size * self.most_blocks

    def within(self, max_blocks: int) -> Self:
        """Returns the facts with no more blocks than these."""
        return replace(self, num_blocks=min(self.num_blocks, max_blocks),
                       first_blocks=min(self.first_blocks, max_blocks))

    @property
    def capacity(self) -> int:
        """How many tokens the KV memory holds."""
        return self.block_size * self.num_blocks

    @property
    def shares_prefixes(self) -> bool:
        """Whether a sequence may begin with blocks of another: what they hold is all that is computed of its tokens."""
        return not self.num_states and not self.is_whole and (self.pools_last or Task.GENERATE in self.tasks)

    @property
    def has_gpus(self) -> bool:
        return self.numerics.startswith("gpu")

    @property
    def is_deterministic(self) -> bool:
        """Whether no answer depends on what is computed beside it; on GPUs that is so only where it was asked for."""
        return self.keeps_bits and self._has_fixed_order

    @property
    def _has_fixed_order(self) -> bool:
        return not self.has_gpus or self.numerics.partition("/")[0].endswith("-deterministic")

    def conflicts(self, other: "Facts") -> list[str]:
        """Returns the differences for which one router can't use both groups: requests are checked before their group
        is chosen."""
        return self.differences(other, besides={field.name for field in fields(self)} - MUST_BE_EQUAL)

    def differences(self, other: "Facts", besides: Collection[str]) -> list[str]:
        """Returns `name: ours and theirs` for each fact that differs, except those named in `besides`."""
        names = [field.name for field in fields(self) if field.name not in besides]
        return [f"{name}: {getattr(self, name)} and {getattr(other, name)}" for name in names
                if getattr(self, name) != getattr(other, name)]
