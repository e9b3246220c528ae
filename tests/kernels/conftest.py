from collections import defaultdict
from importlib.util import find_spec

import pytest
import torch

from penstock.kernels import dispatch
from tests import kernel_sets
from tests.pairwise import cover

SLOW = 29
"""Of each test's cases in the interpreter, the slow suite has one in so many: a prime, so that they differ in all."""

BETWEEN = kernel_sets.CPU_SETS[1:-1]

ORACLES = {
    "transformers": ("test_activation.py", "test_recurrence.py", "test_rms_norm.py", "test_rope.py", "test_route.py",
                     "test_sample.py", "test_sample_gpu.py", "test_sample_statistics.py"),
    "scipy": ("test_sample_gpu.py", "test_sample_statistics.py")}
"""Files whose tests compare with what another package computes: without it they are left out."""
collect_ignore = [file for package, files in ORACLES.items() if find_spec(package) is None for file in files]


def pytest_report_header():
    return [f"{package} is missing, so these are left out: {', '.join(files)}"
            for package, files in ORACLES.items() if find_spec(package) is None]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Choose which cases of each test's grid run, unless `--every-case` asks for all of them, or there is a GPU.

    The processor's kernels take those in which every two values of two parameters meet. Of its instruction paths the
    quick suite has the best and the last: what is between them is compiled of the same lines, and slow. Without a GPU,
    Triton's interpreter takes up to seconds for each case: the last of each test is quick, mostly bfloat16 with all
    options on, unless the test has the mark `slow_in_interpreter`; the first and one in SLOW of the others are slow.
    Those of float16, for which the kernels do nothing else than for bfloat16, are left to `--every-case` and to GPUs.
    """
    wanted, tests = set(), defaultdict(list)
    for item in items:
        if not hasattr(item, "callspec"):
            wanted.add(item)
        elif not _is_interpreted(item):
            is_between = not set(BETWEEN).isdisjoint(map(str, item.callspec.params.values()))
            tests[item.path, item.originalname, is_between, False].append(item)
        elif config.getoption("every_case") or torch.float16 not in item.callspec.params.values():
            tests[item.path, item.originalname, False, True].append(item)
    for (*_, is_between, is_interpreted), cases in tests.items():
        if config.getoption("every_case") or kernel_sets.HAS_GPU:
            wanted.update(cases)
        elif is_interpreted:
            is_slow = cases[-1].get_closest_marker("slow_in_interpreter") is not None
            for item in [*cases[:-1:SLOW], *[cases[-1]] * is_slow]:
                item.add_marker("slow")
            wanted.update([*cases[:-1:SLOW], cases[-1]])
        else:
            values = [{name: id(value) for name, value in item.callspec.params.items()} for item in cases]
            chosen = [cases[index] for index in cover(values)]
            for item in chosen if is_between else ():
                item.add_marker("slow")
            wanted.update(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = [item for item in items if item in wanted]


def _is_interpreted(item):
    return "gpu" in item.callspec.params.values() and not kernel_sets.HAS_GPU


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
