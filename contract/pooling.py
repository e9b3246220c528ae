"""The tasks of models: beside more text, vectors and scores of a text."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Self

POOLING = "pooling"
"""The kind of side input that asks for a vector or scores; its value is a `Pooling`."""
POOLED = "pooled"
"""The kind of result that answers it: little-endian float32 numbers. A sparse vector has its indices before them,
little-endian uint32, one for each number."""
YES_NO = "yes_no"
"""The pooling of a language model that scores a text by the logits of its answer, as of the tokens yes and no."""


class Task(Enum):
    """Names a use of a model: it continues a text, or makes vectors or scores of it."""

    GENERATE = "generate"
    EMBED = "embed"
    EMBED_ALL = "embed_all"
    EMBED_SPARSE = "embed_sparse"
    CLASSIFY = "classify"


GENERATES = frozenset({Task.GENERATE})
_FORM = struct.Struct("<BBIII")
_NUMBERS = {task: number for number, task in enumerate(Task)}


@dataclass(frozen=True, slots=True)
class Pooling:
    """Asks for one vector of a text, for one of each of its tokens, or for its raw scores, one for each label.

    No vector covers the first `skipped` tokens. Of a pair of texts the second begins at the token `second`; 0 if there
    is one text. A vector is cut to its first `dimensions` numbers, unless these are 0, and then scaled to a length of 1
    if it is to be `normalized`. A row of `EMBED_ALL` has the vectors of its own tokens.
    """

    task: Task
    skipped: int = 0
    second: int = 0
    dimensions: int = 0
    normalized: bool = True

    def encode(self) -> bytes:
        return _FORM.pack(_NUMBERS[self.task], self.normalized, self.skipped, self.second, self.dimensions)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Raises ValueError, with words that go on from the name of the value, if `encode` never returns it."""
        if len(value) != _FORM.size:
            raise ValueError(f" has {len(value)} bytes, not {_FORM.size}")
        number, normalized, skipped, second, dimensions = _FORM.unpack(value)
        if number >= len(Task):
            raise ValueError(f" asks for task {number}, known are 0 to {len(Task) - 1}")
        return cls([*Task][number], skipped, second, dimensions, bool(normalized))


def encode_tasks(tasks: Iterable[Task]) -> list[str]:
    """Returns the names of tasks, in order."""
    return sorted(task.value for task in tasks)
