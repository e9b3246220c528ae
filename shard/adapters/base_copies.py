"""The weights of the base that PEFT saves beside an adapter of the head (`save_embedding_layers`)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from penstock.shard.adapters.names import short
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.stored import STORED_DTYPES, StoredTensor

_LAYER = ".base_layer"
_LEAVE_OUT = "PEFT leaves it out with save_pretrained(save_embedding_layers=False)"


class BaseCopies:
    """Tells whether tensors of an adapter's file are copies of the checkpoint's, which change nothing."""

    def __init__(self, checkpoint: Checkpoint | None, tied: Mapping[str, str]) -> None:
        """tied: by the name of a layer, that of the layer whose weight it has."""
        self._checkpoint = checkpoint
        self._names = {} if checkpoint is None else {short(name): name for name in checkpoint.entries}
        self._tied = {f"{short(layer)}.weight": f"{short(other)}.weight" for layer, other in tied.items()}

    def fault(self, name: str, shape: tuple[int, ...]) -> str | None:
        """Returns why a tensor of this name and shape can't be a copy; None if it may be."""
        if (stored := self._stored(name)) is None or self._checkpoint is None:
            return "it is neither A nor B of a LoRA, nor a weight of the base"
        entry = self._checkpoint.entries[stored]
        if entry.dtype not in STORED_DTYPES:
            return f"it is a weight of the base, which is stored in another format ({entry.dtype}) here; {_LEAVE_OUT}"
        if entry.shape != shape or not shape or not all(shape):
            return (f"it has shape {list(shape)}, and the base's {list(entry.shape)}: a vocabulary that was enlarged, "
                    "and modules that were trained whole, are not served")
        return None

    def has(self, name: str, part: Tensor, begin: int) -> bool:
        """Tells whether the rows of a copy from `begin` on are those of the base's weight, in either's dtype."""
        stored = self._stored(name)
        assert self._checkpoint is not None
        assert stored is not None
        entry = self._checkpoint.entries[stored]
        rows = (slice(begin, begin + len(part)), *(slice(0, length) for length in entry.shape[1:]))
        own = self._checkpoint.read(StoredTensor(stored, entry.shape, rows))
        return torch.equal(own.to(part.dtype), part) or torch.equal(own, part.to(own.dtype))

    def _stored(self, name: str) -> str | None:
        """Returns the name of the checkpoint's tensor of which one of an adapter's file may be a copy."""
        wanted = short(name.removeprefix("base_model.model.").replace(_LAYER, ""))
        return self._names.get(self._tied.get(wanted, wanted))
