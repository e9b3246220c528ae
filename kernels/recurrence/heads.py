"""How the heads of a recurrent layer carry their state from token to token."""

from dataclasses import dataclass

from torch import Tensor

NORM_EPS = 1e-6
"""The term that is added to the squared length of q and of k before they are divided by it."""


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentHeads:
    """H heads with a matrix [K, D] each; G groups of them share q and k, so H is a multiple of G.

    The step of a token and head is softplus(s + bias), between the bounds. Its matrix S falls to S * e^(rate * step),
    and v is written at k with a weight: by the delta rule the sigmoid of a number of the token's own, and instead of v
    what S does not yet give at k (Yang et al. 2024, "Gated Delta Networks"); otherwise the step (Dao and Gu 2024,
    "Mamba-2").
    """

    num_groups: int
    key_dim: int
    value_dim: int
    rate: Tensor                         # float32 [H], below 0
    bias: Tensor                         # float32 [H]
    skip: Tensor | None = None           # float32 [H]: what v is added with to the outputs
    is_delta: bool = False               # then q and k have length 1, and q is divided by √K besides
    min_step: float = 0.0
    max_step: float = float("inf")

    @property
    def num_heads(self) -> int:
        return len(self.rate)

    @property
    def width(self) -> int:
        """Returns how many numbers a token's q, k and v are: G * K, G * K and H * D."""
        return 2 * self.num_groups * self.key_dim + self.num_heads * self.value_dim
