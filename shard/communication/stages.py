"""Cuts a group into stages, which compute a model's layers one after the other, and hands their tensors on.

Rank r is number r % T of stage r // T. Hidden states go from each rank to the rank of its number in the next stage; the
tokens that the last stage samples go from its first rank to all ranks of the first stage, where they are inputs again.

No rank waits in a circle. Hidden states wait only for stages further down, which take them in the order of the steps.
Tokens wait for nobody: what the first stage has not fetched yet is so little that it fits on the way. It fetches them
when it needs them: so it goes on with what needs none while the other stages compute the steps before.
"""

from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from penstock.shard.communication.distributed import Group

ON_THE_WAY = 1 << 15
"""Bytes of tokens that the first stage may leave unfetched, an eighth of what a pipe of `shared_memory.py` holds."""


class Stages:
    """One rank's place among the stages of its group. With one stage the group does all by its own exchanges."""

    def __init__(self, everyone: Group, count: int = 1) -> None:
        """Raises ValueError if the ranks can't be dealt out evenly."""
        if everyone.world_size % count:
            raise ValueError(f"--pipeline-parallel-size {count} does not divide --num-shard {everyone.world_size}")
        self.count = count
        self.everyone = everyone
        self._width = everyone.world_size // count
        self.number = everyone.rank // self._width
        self.group = everyone if count == 1 else everyone.part_of(self.number * self._width, self._width)
        """The ranks of this stage, which split each of its layers."""
        self._coming: deque[tuple[Tensor, Callable[[], None]]] = deque()

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def is_last(self) -> bool:
        return self.number == self.count - 1

    @property
    def answering_rank(self) -> int:
        """The rank in the whole group that has the logits and samples."""
        return (self.count - 1) * self._width

    @property
    def answers(self) -> bool:
        return self.everyone.rank == self.answering_rank

    def receive(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Returns the tensor that the stage before handed on, of this shape and dtype."""
        tensor = torch.empty(shape, dtype=dtype)
        self.everyone.receive(tensor, self.everyone.rank - self._width)
        return tensor

    def hand_on(self, tensor: Tensor) -> None:
        """Send a tensor, contiguous, which nobody changes any more, to the next stage."""
        self.everyone.send(tensor, self.everyone.rank + self._width)

    def tell(self, tokens: Tensor) -> None:
        """Send sampled tokens, contiguous, which nobody changes any more, to all who need them. For the rank that
        samples."""
        if self.count == 1:
            self.everyone.broadcast(tokens)
            return
        for rank in range(self._width):
            self.everyone.send(tokens, rank)

    def learn(self, tokens: Tensor, take: Callable[[], None]) -> None:
        """Overwrite tokens with those that were sampled, and call `take` then: now, or by the end of `catch_up`. For
        all other ranks; those of several stages that need no tokens get none."""
        if self.count == 1:
            self.everyone.broadcast(tokens)
            take()
        elif self.is_first:
            self._coming.append((tokens, take))
            while len(self._coming) > self.count or sum(each.nbytes for each, _ in self._coming) > ON_THE_WAY:
                self._fetch()

    @property
    def is_behind(self) -> bool:
        """Whether tokens are still to be fetched."""
        return bool(self._coming)

    def catch_up(self) -> None:
        """Fetch all tokens that were sampled in the steps so far. Before any other exchange of the whole group, too:
        they would come in its place."""
        while self._coming:
            self._fetch()

    def _fetch(self) -> None:
        tokens, take = self._coming.popleft()
        self.everyone.receive(tokens, self.answering_rank)
        take()
