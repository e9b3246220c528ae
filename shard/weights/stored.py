"""The content of a checkpoint's files, whatever their format."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

STORED_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


class CheckpointError(ValueError):
    """The weights are missing, damaged or not those of the model: names file, tensor, what was expected and found."""


class Span(NamedTuple):
    """The bytes of one tensor in its file."""

    offset: int
    num_bytes: int


NOWHERE = Span(0, 0)
"""Of a tensor that is in no file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file's entry for one tensor."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    span: Span = NOWHERE
    form: str = ""                       # what else decides the numbers that its bytes stand for

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that a checkpoint is to have, and the part of it that is wanted."""

    name: str
    shape: tuple[int, ...]               # of the whole tensor
    part: tuple[slice, ...]              # a slice of each axis
    dtypes: tuple[str, ...] = tuple(STORED_DTYPES)
    has_any_shape: bool = False          # it is wanted whole, whatever its shape
    is_optional: bool = False            # a tensor of no numbers stands for one that is not there


class TensorFiles(Protocol):
    """The files of a checkpoint in one format."""

    entries: dict[str, Entry]            # by the tensors' names
    paths: list[Path]

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        """Returns a slice of each axis of a tensor, in the dtype that it is stored in. Raises CheckpointError.

        It may be a view of the mapped file, which is read when the view is, and whose pages are held as long as it is.
        """
