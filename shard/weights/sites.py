"""Where a model takes adapters: the linears to which they may add, by number, and why others take none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.format import LinearPart


@dataclass(frozen=True, slots=True)
class Site:
    """A linear, or several with the same inputs as one, and what this rank has of each, from the top.

    segments  of this rank's inputs, which are summed apart
    width     inputs of each segment but the last that has any
    """

    parts: tuple[tuple[str, LinearPart], ...]
    segments: int
    width: int

    @property
    def in_features(self) -> int:
        columns = self.parts[0][1].columns
        return int(columns.stop - columns.start)


class Sites:
    """Numbers the sites of a model while its layers are made."""

    def __init__(self) -> None:
        self.all: list[Site] = []

    def add(self, parts: Sequence[tuple[str, LinearPart]], segments: int = 1, width: int | None = None) -> int:
        """Returns the number of a site."""
        columns = parts[0][1].columns
        self.all.append(Site(tuple(parts), segments, columns.stop - columns.start if width is None else width))
        return len(self.all) - 1


@dataclass(frozen=True)
class Adaptable:
    """The linears of a model that adapters may change.

    dtype    of the adapters' matrices
    refused  why linears whose names begin so take no adapter
    elsewhere  what the names of linears begin with that others have: their part of an adapter is not for this rank
    checkpoint  of the weights to which they add
    tied     by the name of a layer, that of the layer whose weight it has
    """

    sites: tuple[Site, ...]
    dtype: torch.dtype
    refused: Mapping[str, str] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    tied: Mapping[str, str] = field(default_factory=dict)
