"""The costs of an answer, by the headers that TEI has for them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from penstock.router.generation.service import Service
from penstock.router.pooling.pooled import Pooled
from penstock.router.pooling.spec import PoolingSpec

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class Measures:
    """The characters and tokens of all texts of a request, and seconds: of the whole request, and on average of a text.
    Token ids count as characters."""

    characters: int
    tokens: int
    total: float
    tokenization: float
    queue: float
    inference: float

    @classmethod
    def of(cls, specs: Sequence[PoolingSpec], found: Sequence[Pooled], started_at: float) -> Self:
        """Returns the costs of an answer to a request that was read at `started_at`, of `time.monotonic`."""
        number = len(found)
        return cls(
            sum(map(_num_characters, specs)), sum(each.num_tokens for each in found), time.monotonic() - started_at,
            sum(each.tokenization for each in found) / number, sum(each.queue for each in found) / number,
            sum(each.inference for each in found) / number)

    @classmethod
    def joined(cls, measures: Sequence[Self]) -> Self:
        """Returns the costs of several texts together, whose answers were computed beside each other."""
        number = len(measures)
        return cls(
            sum(each.characters for each in measures), sum(each.tokens for each in measures),
            max(each.total for each in measures), sum(each.tokenization for each in measures) / number,
            sum(each.queue for each in measures) / number, sum(each.inference for each in measures) / number)

    def headers(self, service: Service) -> dict[str, str]:
        """Returns TEI's headers, whose times are in milliseconds."""
        times = {"x-compute-time": self.total, "x-total-time": self.total, "x-tokenization-time": self.tokenization,
                 "x-queue-time": self.queue, "x-inference-time": self.inference}
        return {"x-compute-type": service.info.compute_type, "x-compute-characters": str(self.characters),
                "x-compute-tokens": str(self.tokens),
                **{name: str(int(1000 * seconds)) for name, seconds in times.items()}}


@dataclass(frozen=True, slots=True)
class Told(Generic[Content]):
    """The content of an answer, and its costs."""

    content: Content
    measures: Measures


def _num_characters(spec: PoolingSpec) -> int:
    inputs = spec.inputs
    if isinstance(inputs, tuple) and inputs and isinstance(inputs[0], str):
        return sum(len(text) for text in inputs if isinstance(text, str))
    return len(inputs)
