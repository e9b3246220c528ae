"""How a layer is joined to the residual stream."""

from torch import Tensor

from penstock.shard.layers.norm import NoNorm, Norm


class Residual:
    """Norms the input of a layer, and norms and scales its output, as far as its family does."""

    def __init__(self, norm: Norm, post_norm: Norm, multiplier: float) -> None:
        self.norm = norm
        self.post_norm = post_norm
        self.multiplier = multiplier

    @property
    def is_plain(self) -> bool:
        """Tells whether what the layer gives is added as it is."""
        return isinstance(self.post_norm, NoNorm) and self.multiplier == 1

    def enter(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the layer's input, made of x + delta, and x + delta itself, all [T, C]."""
        return self.norm(x, delta)

    def leave(self, out: Tensor) -> Tensor:
        """Returns the term that the residual stream gets for a layer's output, both [T, C]."""
        out, _ = self.post_norm(out)
        return out if self.multiplier == 1 else out * self.multiplier
