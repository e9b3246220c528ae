"""The terms of attention's scores beside q·k."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ScoreForm:
    """Shapes the scores of a call; `paged_attention` says what its fields mean."""

    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None
    slopes: Tensor | None = None
