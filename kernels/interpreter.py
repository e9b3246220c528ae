"""Triton's interpreter, which runs a GPU's kernels on the processor, made exact in bits and less slow."""

from functools import cache, wraps
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray


def prepare() -> None:
    """Changes the interpreter for this process, which is to interpret. A second call changes nothing more.

    In a release of Triton without what is changed here, it stays as it is.
    """
    from triton.runtime import interpreter

    _prepare_language_once(interpreter)
    _multiply_in_order(interpreter)


def _prepare_language_once(interpreter: Any) -> None:
    """Lets the interpreter replace the builtins of `triton.language` once for each function, and leave them replaced.

    As it is, it looks through the whole module at each call of a `triton.jit` function, to find all in place. Nothing
    of Triton's is compiled in a process that interprets, so nothing misses what was there before.
    """
    patch, scope = getattr(interpreter, "_patch_lang", None), getattr(interpreter, "_LangPatchScope", None)
    if patch is None or scope is None or hasattr(patch, "cache_clear"):
        return

    @cache
    def patch_once(function: FunctionType) -> Any:
        patch(function)
        return scope()  # Has changed nothing, so it restores nothing.

    interpreter._patch_lang = patch_once


def _multiply_in_order(interpreter: Any) -> None:
    """Lets `tl.dot` give a row the same bits wherever in a tile it lies, as a GPU's matrix instructions do.

    numpy's matmul is a BLAS library's, in which the order of a sum may depend on the row's number.
    """
    builder: Any = getattr(interpreter, "InterpreterBuilder", None)
    original = getattr(builder, "create_dot", None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        if not all(np.issubdtype(operand.data.dtype, np.floating) for operand in (a, b)):
            return original(self, a, b, d, *options)
        with np.errstate(all="ignore"):  # of infinities and NaN a GPU says nothing
            total = _product(a.data, b.data, d.data.dtype) + d.data
        return interpreter.TensorHandle(total, d.dtype.scalar)

    builder.create_dot = create_dot


def _product(a: NDArray[Any], b: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Multiplies matrices [M, K] and [K, N] in `dtype`, and adds in ascending order of k."""
    total: NDArray[Any] = np.zeros((a.shape[0], b.shape[1]), dtype)
    for column, row in zip(a.astype(dtype).T, b.astype(dtype), strict=True):
        total += column[:, None] * row
    return total
