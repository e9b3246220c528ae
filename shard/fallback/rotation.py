"""Our rotation in the place of the function that most of transformers' models call."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from penstock.kernels import dispatch
from penstock.kernels.rope import rope
from penstock.shard.fallback.attention import is_answering, rows_of_heads

NAME = "apply_rotary_pos_emb"
HEADS, TOKENS, WIDTH = 2, 3, 8           # of the trial
TOLERANCE = 1e-5

Rotate = Callable[..., tuple[Tensor, Tensor]]


class Rotation:
    """Stands for a module's function while a step runs onto the paged cache; at other times that is called."""

    def __init__(self, theirs: Rotate) -> None:
        self.theirs = theirs
        self._cos: Tensor | None = None  # of the step, which is the same in all layers

    def __call__(self, *args: Any, **options: Any) -> Any:
        if options or len(args) != 4 or not is_answering():
            return self.theirs(*args, **options)
        q, k, cos, sin = args
        width = q.shape[-1]
        if cos.shape != (1, q.shape[2], width) or k.shape[-1] != width:
            return self.theirs(*args)
        if self._cos is not cos:
            self._cos = cos
            self._cos_half, self._sin_half = (
                angles[0, :, :width // 2].float().contiguous() for angles in (cos, sin))
            self._positions = torch.arange(q.shape[2], device=q.device)
        rotated = rope(rows_of_heads(q), rows_of_heads(k), self._cos_half, self._sin_half, self._positions)
        return tuple(part.transpose(0, 1)[None] for part in rotated)


def replace_rotation(model: nn.Module) -> bool:
    """Puts our rotation in the place of the function of the module that a model's class is from, if both compute the
    same. Returns whether it stands there."""
    module = sys.modules[type(model).__module__]
    theirs = getattr(module, NAME, None)
    if theirs is None or isinstance(theirs, Rotation):
        return theirs is not None
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, HEADS, TOKENS, WIDTH, generator=generator) for _ in range(2))
    cos, sin = (torch.randn(1, TOKENS, WIDTH // 2, generator=generator).repeat(1, 1, 2) for _ in range(2))
    try:
        expected = theirs(q, k, cos, sin)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    rows, angles = ([part[0].transpose(0, 1).contiguous() for part in (q, k)],
                    [part[0, :, :WIDTH // 2].contiguous() for part in (cos, sin)])
    q_rows, k_rows, cos_half, sin_half, positions = (
        part.to(dispatch.device()) for part in (*rows, *angles, torch.arange(TOKENS)))
    found = [part.cpu() for part in rope(q_rows, k_rows, cos_half, sin_half, positions)]
    if not all((one[0].transpose(0, 1) - other).abs().max() < TOLERANCE for one, other in zip(
            expected, found, strict=True)):
        return False
    setattr(module, NAME, Rotation(theirs))
    return True


def restore_rotation(model: nn.Module) -> None:
    """Puts back the function that ours stands for, if it does."""
    module = sys.modules[type(model).__module__]
    if isinstance(found := getattr(module, NAME, None), Rotation):
        setattr(module, NAME, found.theirs)
