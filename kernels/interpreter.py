"""Triton's interpreter, which runs a GPU's kernels on the processor, made exact in bits and less slow."""

from dataclasses import replace
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
    _leave_out_unread_checks(interpreter)
    _know_dtypes(interpreter)
    _know_shapes(getattr(interpreter.tl, "core", None))
    _compute_bfloat16(interpreter)
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


def _leave_out_unread_checks(interpreter: Any) -> None:
    """Lets sums and products of whole numbers be computed once, not a second time in 64 bits to look for an overflow.

    What the second says is dropped unless the interpreter debugs. It makes such a sum six times as long.
    """
    builder: Any = getattr(interpreter, "interpreter_builder", None)
    options: Any = getattr(builder, "options", None)
    if getattr(options, "sanitize_overflow", False) and not getattr(options, "debug", True):
        builder.options = replace(options, sanitize_overflow=False)


def _know_dtypes(interpreter: Any) -> None:
    """Lets the interpreter look up numpy's name for a dtype, in place of a table of all that it makes for each."""
    find = getattr(interpreter, "_get_np_dtype", None)
    if find is None or hasattr(find, "__wrapped__"):
        return
    known: dict[str, Any] = {}

    @wraps(find)
    def find_once(dtype: Any) -> Any:
        scalar = dtype.scalar
        if scalar.name not in known:
            known[scalar.name] = find(scalar)
        return known[scalar.name]

    interpreter._get_np_dtype = find_once


def _know_shapes(core: Any) -> None:
    """Lets all tensors of one dtype and shape share what describes them, which takes longer to make than their numbers.

    Nothing changes a type or a shape once it is made.
    """
    block, tensor = getattr(core, "block_type", None), getattr(core, "tensor", None)
    if block is None or tensor is None or hasattr(block.__init__, "__wrapped__"):
        return
    make_block, make_tensor = block.__init__, tensor.__init__
    blocks: dict[Any, dict[str, Any]] = {}
    shapes: dict[str, dict[str, Any]] = {}

    @wraps(make_block)
    def describe_block(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple([getattr(size, "value", size) for size in shape])
        key = element_ty.name, getattr(element_ty, "address_space", None), sizes
        if key not in blocks:
            make_block(self, element_ty, shape)
            blocks[key] = dict(vars(self))
        vars(self).update(blocks[key])

    @wraps(make_tensor)
    def describe_tensor(self: Any, handle: Any, type: Any) -> None:
        if type.name not in shapes:
            make_tensor(self, handle, type)
            shapes[type.name] = {name: getattr(self, name) for name in ("numel", "shape")}
        vars(self).update(shapes[type.name], handle=handle, type=type, dtype=type.scalar)

    block.__init__, tensor.__init__ = describe_block, describe_tensor


def _compute_bfloat16(interpreter: Any) -> None:
    """Lets operations on bfloat16 compute in float32 and round to nearest even, as a GPU does.

    The interpreter keeps the bits of bfloat16 as uint16: as it is, it cuts them off where it converts, and computes
    with them as with whole numbers.
    """
    builder: Any = getattr(interpreter, "InterpreterBuilder", None)
    cast, binary = getattr(builder, "cast_impl", None), getattr(builder, "binary_op", None)
    convert = getattr(builder, "create_fp_to_fp", None)
    if cast is None or binary is None or convert is None or hasattr(cast, "__wrapped__"):
        return

    def rounded(data: NDArray[Any], dtype: Any) -> Any:
        is_rounded = dtype.name == "bf16" and data.dtype != np.bool_
        return interpreter.TensorHandle(_bfloat16_bits(data) if is_rounded else data, dtype)

    def get_bf16(self: Any, value: float) -> Any:
        return rounded(np.array([value], np.float32), self.get_bf16_ty())

    @wraps(cast)
    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        scalar = target.scalar
        if "bf16" not in (source.dtype.scalar.name, scalar.name):
            return cast(self, source, target)
        numbers = _numbers(source)
        return rounded(numbers if scalar.name == "bf16" else numbers.astype(interpreter._get_np_dtype(scalar)), scalar)

    @wraps(convert)
    def create_fp_to_fp(self: Any, source: Any, target: Any, mode: Any) -> Any:
        names = {source.dtype.scalar.name, target.scalar.name}
        is_ours = "bf16" in names and not any(name.startswith("fp8") for name in names)
        return cast_impl(self, source, target) if is_ours else convert(self, source, target, mode)

    @wraps(binary)
    def binary_op(self: Any, left: Any, right: Any, operation: Any) -> Any:
        if left.dtype.scalar.name != "bf16":
            return binary(self, left, right, operation)
        return rounded(operation(_numbers(left), _numbers(right)), left.dtype.scalar)

    builder.cast_impl, builder.create_fp_to_fp, builder.binary_op = cast_impl, create_fp_to_fp, binary_op
    builder.get_bf16 = get_bf16


def _numbers(handle: Any) -> NDArray[Any]:
    """Returns the numbers of a tensor of the interpreter; bfloat16 as float32."""
    data: NDArray[Any] = handle.data
    return (data.astype(np.uint32) << 16).view(np.float32) if handle.dtype.scalar.name == "bf16" else data


def _bfloat16_bits(numbers: NDArray[Any]) -> NDArray[np.uint16]:
    """Returns the bits of the nearest bfloat16, of two that are as near the even one."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(numbers), bits >> 16 | 0x40, nearest).astype(np.uint16).reshape(np.shape(numbers))


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
        left, right = (_numbers(operand) for operand in (a, b))
        if not all(np.issubdtype(data.dtype, np.floating) for data in (left, right)):
            return original(self, a, b, d, *options)
        with np.errstate(all="ignore"):  # of infinities and NaN a GPU says nothing
            total = _product(left, right, d.data.dtype) + d.data
        return interpreter.TensorHandle(total, d.dtype.scalar)

    builder.create_dot = create_dot


def _product(a: NDArray[Any], b: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Multiplies matrices [M, K] and [K, N] in `dtype`, and adds in ascending order of k."""
    total: NDArray[Any] = np.zeros((a.shape[0], b.shape[1]), dtype)
    for column, row in zip(a.astype(dtype).T, b.astype(dtype), strict=True):
        total += column[:, None] * row
    return total
