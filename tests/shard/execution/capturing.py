"""What would spoil the capture of a model's steps on a GPU, as JSON: `python -m tests.shard.execution.capturing FOLDER`

The GPU's ops run on tensors of the processor, and their kernels not at all (tests/kernels/specialised.py). So nothing
is computed, but all that the host asks of tensors is seen.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.shard.communication.distributed import Group
from penstock.shard.execution.captures import new_graphs
from penstock.shard.execution.executor import Executor
from tests.family_models import make_family
from tests.kernels.specialised import specialised_for
from tests.shard.ranks import make_config

FAMILIES = ("llama", "gemma2", "gpt_oss", "bloom", "gptj", "gpt_neox", "deepseek_v3", "olmoe", "cohere", "phimoe",
            "qwen3_5_moe", "granitemoehybrid", "qwen2_moe")
QUANTIZE = (None, "int4")
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "lift_fresh")
"""Parts of the names of ops that bring numbers from the device, or there from where no copy goes beside the host."""


class Asked(TorchDispatchMode):
    """Notes which ops make the host wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name, kwargs = str(func), kwargs or {}
        is_unsized = name == "aten.repeat_interleave.Tensor" and kwargs.get("output_size") is None
        by_mask = name.startswith(("aten.index.", "aten.index_put")) and any(
            index is not None and index.dtype == torch.bool for index in args[1])
        if is_unsized or by_mask or any(part in name for part in WAITING):
            self.waiting.add(name)
        return func(*args, **kwargs)


@contextmanager
def asked() -> Iterator[set[str]]:
    """What is asked of tensors in the block, as far as the device's work must be done first."""
    with ExitStack() as stack:
        found = stack.enter_context(Asked())
        for name in ("tolist", "numpy", "cpu"):
            noted = partial(note, found, name, getattr(torch.Tensor, name))
            stack.enter_context(mock.patch.object(torch.Tensor, name, partialmethod(noted)))
        yield found.waiting


def note(found: Asked, name: str, original: Callable[..., object], *args: object, **kwargs: object) -> object:
    """Stands in for a method of tensors."""
    found.waiting.add(f"Tensor.{name}")
    return original(*args, **kwargs)


def examine(model: Path, quantize: str | None, is_deterministic: bool) -> dict[str, object]:
    """Whether a model says that it can be captured, and what its steps wait for, of each kind."""
    with specialised_for(90, is_deterministic), mock.patch.object(torch, "empty", torch.zeros), mock.patch.object(
            torch, "empty_like", torch.zeros_like):  # what is not computed is to be a number
        executor = Executor(replace(make_config(model, "bfloat16"), quantize=quantize), Group())
        is_capturable, executor.model.is_capturable = executor.model.is_capturable, True
        [graphs] = new_graphs(executor)
        largest, waiting = {padding.is_decode: padding for padding in graphs.paddings}, set()
        for is_decode, padding in largest.items():
            graphs._fill(padding)
            with asked() as found:
                graphs._logits(padding) if is_decode else graphs._hidden(padding)
            waiting |= found
    return {"is_capturable": is_capturable, "waiting": sorted(waiting)}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    models = {name: make_family(folder / name, name) for name in FAMILIES}
    print(json.dumps([
        {"family": name, "quantize": quantize, "is_deterministic": is_deterministic}
        | examine(models[name], quantize, is_deterministic)
        for name in FAMILIES for quantize in QUANTIZE for is_deterministic in (False, True)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
