import pytest

from tests import kernel_sets


@pytest.fixture(params=kernel_sets.ALL_SETS)
def kernel_set(request, monkeypatch):
    """Every set of kernels and every instruction path that this processor has, one after the other."""
    kernel_sets.use(monkeypatch, request.param)
    return request.param


@pytest.fixture(params=kernel_sets.CPU_SETS)
def cpu_kernels(request, monkeypatch):
    """Every instruction path of the compiled kernels."""
    kernel_sets.use(monkeypatch, request.param)
    return request.param.removeprefix("cpu-")
