"""Which kernels a GPU would have to compile for some work, without compiling any: Triton's own keys of them.

It works in a process without TRITON_INTERPRET, which Triton reads as the kernels are defined.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from triton.runtime import driver, jit

from penstock.kernels import dispatch
from tests import kernel_sets
from tests.kernels.compile_only import Target


@dataclass(frozen=True)
class Specialised:
    """One kernel: where it is from, what it is launched with, and all that Triton tells it from others by, which is
    also whether the numbers among its arguments are 1 or can be divided by 16."""

    name: str
    constants: str
    key: str


class _NewTarget(Target):
    """One that nothing has been compiled for."""

    def get_current_device(self) -> "_NewTarget":
        return self


@contextmanager
def specialised_for(capability: int, is_deterministic: bool) -> Iterator[set[Specialised]]:
    """The kernels that are launched in the block, as they are launched. The ops are the GPU's, on tensors of the
    processor; nothing runs, so they make whatever torch.empty holds."""
    found: set[Specialised] = set()
    run = jit.JITFunction.run

    def look_only(self: jit.JITFunction, *args, grid, warmup, **kwargs):
        return run(self, *args, grid=grid, warmup=True, **kwargs)

    def note(self: jit.JITFunction, key, signature, device, constants, options, attributes, warmup):
        named = {self.arg_names[place[0]]: value for place, value in constants.items()}
        known = [f"{name}={value}" for name, value in named.items() if name.isupper()]
        constants = " ".join([*known, f"num_warps={options.num_warps}", f"num_stages={options.num_stages}"])
        found.add(Specialised(f"{self.fn.__module__}.{self.fn.__name__}", constants, str(key)))
        return self.device_caches[device][0].setdefault(key, self)  # anything, so that it is asked for once

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(dispatch, "_no_gpu_because", str)
        monkeypatch.setattr(dispatch._wishes, "is_deterministic", is_deterministic)
        kernel_sets.use(monkeypatch, "gpu", is_real=True)
        monkeypatch.setattr(dispatch, "device", lambda: torch.device("cpu"))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: divmod(capability, 10))
        monkeypatch.setattr(driver, "_active", _NewTarget(capability))
        monkeypatch.setattr(jit.JITFunction, "run", look_only)
        monkeypatch.setattr(jit.JITFunction, "_do_compile", note)
        yield found
    dispatch.kernel_set.cache_clear()
