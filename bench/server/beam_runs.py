"""The figures of beam searches beside transformers', and their table."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Run:
    """The figures of one number format: how long all searches took in each round, here and by transformers, and the
    most blocks that a search behind a long prompt held."""

    seconds: list[float]
    transformers_seconds: list[float]
    blocks_of_one_beam: int
    blocks_of_all_beams: int

    @property
    def ratio(self) -> float:
        """Returns how many times faster the searches were than those of transformers, which took turns with them."""
        return median(other / own for own, other in zip(self.seconds, self.transformers_seconds, strict=True))

    @property
    def share(self) -> float:
        """Returns how many times as many blocks all beams held as one."""
        return self.blocks_of_all_beams / self.blocks_of_one_beam


Runs = Mapping[str, Run]
"""By number format."""


def table(runs: Runs) -> Iterator[list[str]]:
    """Yields a head, and a row for each number format."""
    yield ["computed in", "seconds", "by transformers", "times as fast", "blocks of one beam", "of all beams",
           "times as many"]
    for dtype, run in runs.items():
        yield [dtype, f"{median(run.seconds):.2f}", f"{median(run.transformers_seconds):.2f}", f"{run.ratio:.1f}",
               str(run.blocks_of_one_beam), str(run.blocks_of_all_beams), f"{run.share:.2f}"]


def to_json(runs: Runs) -> dict[str, dict[str, Any]]:
    return {dtype: asdict(run) for dtype, run in runs.items()}


def from_json(figures: Mapping[str, Mapping[str, Any]]) -> Runs:
    return {dtype: Run(**run) for dtype, run in figures.items()}
