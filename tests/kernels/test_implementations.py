"""Every kernel set offers what an op's Protocol says, with one signature."""

import inspect
from importlib import import_module
from typing import Any, get_type_hints

import pytest

from penstock.kernels.dispatch import KERNEL_SETS
from tests.kernel_sets import OPS
from tests.paths import ROOT


def test_all_ops_are_known():
    folders = {path.parent.name for path in (ROOT / "kernels").glob("*/reference.py")}
    assert set(OPS) == folders


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("op", OPS)
def test_a_kernel_set_fulfils_the_protocol(op, kernel_set):
    package = import_module(f"penstock.kernels.{op}")
    implementation = import_module(f"penstock.kernels.{op}.{kernel_set}")
    functions = [value for name, value in vars(package.Implementation).items() if not name.startswith("_")]
    assert functions
    for function in functions:
        found = getattr(implementation, function.__name__)
        assert described(found, package) == described(function, package)


def described(function: Any, package: Any) -> tuple[list[tuple[str, Any, Any]], dict[str, Any]]:
    """The parameters with their kinds and defaults, in order, and all annotations."""
    parameters = [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()
                  if each.name != "self"]
    return parameters, get_type_hints(function, localns=vars(package))
