"""The result for one text: a vector or scores, with the times that it took."""

from array import array
from dataclasses import dataclass, field


@dataclass(slots=True)
class Pooled:
    """A vector, the raw scores of all labels, or the vectors of all tokens one after the other: `values` are float32.
    A sparse vector has the `indices` of its values beside them. The text has `num_tokens`, and times are in seconds.
    """

    values: "array[float]"
    indices: "array[int]" = field(default_factory=lambda: array("I"))
    num_tokens: int = 0
    tokenization: float = 0.0
    queue: float = 0.0
    inference: float = 0.0
    ids: tuple[int, ...] = ()
    """The tokens that were computed."""

    def dense(self, size: int) -> "array[float]":
        """Returns all numbers of a sparse vector of this size."""
        vector = array("f", bytes(4 * size))
        for index, value in zip(self.indices, self.values, strict=True):
            vector[index] = value
        return vector

    def of_tokens(self) -> "list[array[float]]":
        """Returns the vector of each token. Its size is not always that of a text's vector, for no layer is behind it.
        """
        size = len(self.values) // self.num_tokens
        return [self.values[start:start + size] for start in range(0, len(self.values), size)]
