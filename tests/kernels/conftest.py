import pytest
import torch

from kernels import dispatch
from tests import kernel_sets

EVERY = 8
"""Of the interpreter's tests of attention, which take a second each, the quick suite has one in so many."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Triton's interpreter rounds to bfloat16 and multiplies it in ways of its own, so that is left to GPUs."""
    if kernel_sets.HAS_GPU:
        return
    wrong = {item for item in items if hasattr(item, "callspec")
             and {"gpu", torch.bfloat16} <= {value for value in item.callspec.params.values() if value.__hash__}}
    config.hook.pytest_deselected(items=list(wrong))
    items[:] = [item for item in items if item not in wrong]
    interpreted = [item for item in items if item.path.stem == "test_paged_attention" and hasattr(item, "callspec")
                   and item.callspec.params.get("kernel_set") == "gpu"]
    for index, item in enumerate(interpreted):
        if index % EVERY:
            item.add_marker("slow")


@pytest.fixture(params=kernel_sets.ALL_SETS)
def kernel_set(request, monkeypatch):
    """Every set of kernels and every instruction path that this processor has, one after the other."""
    kernel_sets.use(monkeypatch, request.param)
    return request.param


@pytest.fixture(params=kernel_sets.CPU_SETS)
def cpu_kernels(request, monkeypatch):
    """Every instruction path of the processor's compiled kernels."""
    kernel_sets.use(monkeypatch, request.param)
    return request.param.removeprefix("cpu-")


@pytest.fixture(params=kernel_sets.COMPILED_SETS)
def compiled_kernels(request, monkeypatch):
    """All kernels but the reference, which is what they are compared with."""
    kernel_sets.use(monkeypatch, request.param)
    return request.param


@pytest.fixture(params=kernel_sets.GPU_SETS)
def gpu_kernels(request, monkeypatch):
    """The GPU's kernels: on a GPU where there is one, in Triton's interpreter where not."""
    kernel_sets.use(monkeypatch, request.param)
    return request.param


@pytest.fixture
def bit_contract(monkeypatch):
    """GPUs keep the bit contract too."""
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", True)
