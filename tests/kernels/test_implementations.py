"""The kernel sets of an op offer the functions of its reference that it calls, with one signature."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, get_type_hints

import pytest

from penstock.kernels.dispatch import KERNEL_SETS
from tests.kernel_sets import OPS, chosen
from tests.paths import ROOT


def test_all_ops_are_known():
    folders = {path.parent.name for path in (ROOT / "kernels").glob("*/reference.py")}
    assert set(OPS) == folders


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("op", OPS)
def test_a_kernel_set_has_the_signatures_of_the_reference(op, kernel_set):
    reference, implementation = (import_module(f"penstock.kernels.{op}.{name}") for name in ("reference", kernel_set))
    names = chosen(op)
    assert names
    for name in names:
        assert described(getattr(implementation, name)) == described(getattr(reference, name))


def described(function: Callable[..., Any]) -> tuple[list[tuple[str, Any, Any]], dict[str, Any]]:
    """The parameters with their kinds and defaults, in order, and all annotations."""
    parameters = [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]
    return parameters, get_type_hints(function)
