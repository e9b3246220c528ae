"""Which part of a model's layers one stage of a pipeline has."""

from dataclasses import dataclass

from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.names import TensorNames


@dataclass(frozen=True, slots=True)
class Stage:
    """One of `count` stages: the first has the embedding, the last the norm behind the blocks and the head, and each
    has neighbouring blocks, the earlier ones one more where they can't all have as many."""

    number: int = 0
    count: int = 1

    @property
    def has_embedding(self) -> bool:
        return self.number == 0

    @property
    def has_head(self) -> bool:
        return self.number == self.count - 1

    def blocks(self, num_blocks: int) -> range:
        """Returns the numbers of this stage's blocks, of so many. Raises ModelConfigError if there are too few."""
        if num_blocks < self.count:
            raise ModelConfigError(f"--pipeline-parallel-size {self.count}: the model has {num_blocks} layers, and "
                                   "each stage needs one")
        least, more = divmod(num_blocks, self.count)
        begin = self.number * least + min(self.number, more)
        return range(begin, begin + least + (self.number < more))

    def elsewhere(self, names: TensorNames, num_blocks: int) -> tuple[str, ...]:
        """Returns the prefixes of the tensors' names that other stages have, and this one has not."""
        own = self.blocks(num_blocks)
        found = [names.blocks.format(index=index) for index in range(num_blocks) if index not in own]
        if not self.has_embedding:
            found += [names.embedding, names.positions, names.embedding_norm]
        if not self.has_head:
            found += [names.norm, names.head]
        return tuple(f"{name}." for name in found if name)


WHOLE = Stage()
