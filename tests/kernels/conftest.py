from collections import defaultdict

import pytest
import torch

from penstock.kernels import dispatch
from tests import kernel_sets

SLOW = 7
"""Of each test's cases in the interpreter, the slow suite has one in so many: a prime, so that they differ in all."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Without a GPU, choose which of its cases the interpreter takes, for it takes up to seconds for each.

    Of each test the first and the last case are quick, mostly float32 and float16, and one in SLOW between them is
    slow. The others are left to GPUs. So are those of bfloat16, which the interpreter rounds in ways of its own.
    """
    if kernel_sets.HAS_GPU:
        return
    left, tests = set(), defaultdict(list)
    for item in items:
        values = list(item.callspec.params.values()) if hasattr(item, "callspec") else []
        if "gpu" in values and torch.bfloat16 in values:
            left.add(item)
        elif "gpu" in values:
            tests[item.path, item.originalname].append(item)
    for cases in tests.values():
        for index, item in enumerate(cases[1:-1], start=1):
            if index % SLOW:
                left.add(item)
            else:
                item.add_marker("slow")
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


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
