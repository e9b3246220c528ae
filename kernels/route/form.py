"""How a mixture of experts chooses among them."""

from dataclasses import dataclass
from enum import StrEnum


class Scoring(StrEnum):
    """The function that turns an expert's logit into a score."""

    SOFTMAX = "softmax"                  # over all experts
    SIGMOID = "sigmoid"                  # 1 / (1 + e^-x), by itself
    SPARSE_MIXER = "sparse_mixer"        # for each choice, a softmax over what is near it (Liu et al. 2024)

    @property
    def number(self) -> int:
        """Returns its number in csrc/abi.h."""
        return tuple(Scoring).index(self)


@dataclass(frozen=True, slots=True)
class RouteForm:
    """The steps from a router's logits to the chosen experts and their weights."""

    top_k: int                           # experts of each token
    scoring: Scoring = Scoring.SOFTMAX
    is_normalised: bool = False          # the scores of the chosen are divided by their sum
    scale: float = 1.0                   # of the scores
    num_groups: int = 1                  # of as many experts each
    top_groups: int = 1                  # that a token may choose from
    group_best: int = 1                  # how many of its best scores added make a group's
    jitter: float = 0.0                  # of the sparse mixer: 2 * jitter is how far from the best is near
