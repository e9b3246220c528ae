"""The compiled kernels of this processor: `library` is what the ops call. It is found and loaded when it is first used,
which raises ValueError if this processor runs none, OSError if it was not built.

KERNELS_PATH=amx | avx512_bf16 | avx512 | avx2 forces an instruction path, of which amx is the best of the others and
tiles beside it, for those linears that ask for them. KERNELS_SANITIZED=1 loads what `make sanitize` built.
"""

import ctypes
import functools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from penstock.kernels import build

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int8: 3}
"""DType of csrc/abi.h."""
TILES = "amx"
_STACKED = 17

_NEEDS = {
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "avx512_bf16": {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16"},
}


class Library:
    """Loads the library of one instruction path. Its functions are attributes, without prefix, and release the GIL."""

    def __init__(self, path: str) -> None:
        """Raises FileNotFoundError if it was not built."""
        self.path = path
        file = build.library(path, os.environ.get("KERNELS_SANITIZED") == "1")
        if not file.exists():
            raise FileNotFoundError(f"{file} was not built: run `make setup`, or `python -m penstock.kernels.build`")
        library = ctypes.CDLL(str(file))
        for name, argtypes in _declarations().items():
            function = library[f"penstock_{name}"]
            function.argtypes, function.restype = argtypes, None
            setattr(self, name, function)

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Callable[..., None]: ...


def processor_paths() -> tuple[str, ...]:
    """Returns the instruction paths that this processor can run, the best first."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ()
    flags = set(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))
    return tuple(path for path in build.PATHS if flags >= _NEEDS[path])


@functools.cache
def load(path: str) -> Library:
    return Library(path)


@functools.cache
def may_use_tiles() -> bool:
    """Tells whether the processor has tiles, and the system lets this process use them."""
    found = ctypes.c_int64()
    load(processor_paths()[0]).may_use_tiles(ctypes.addressof(found))
    return bool(found.value)


def uses_tiles() -> bool:
    """Tells whether the chosen path has tiles."""
    return os.environ.get("KERNELS_PATH") in (None, "", TILES) and may_use_tiles()


def _chosen_path() -> str:
    paths, name = processor_paths(), os.environ.get("KERNELS_PATH")
    if not paths:
        raise ValueError("the CPU kernels need a processor with AVX2, on Linux")
    if name == TILES and may_use_tiles():
        return paths[0]
    if name and name not in paths:
        raise ValueError(f"this processor has no {name}, it runs {', '.join(paths)}")
    return name or paths[0]


def _declarations() -> dict[str, list[type]]:
    """Returns the argument types of each function in csrc/abi.h."""
    found = re.findall(r"\bvoid penstock_(\w+)\(([^)]*)\);", _header("abi.h"))
    return {name: [_ctype(argument.strip()) for argument in arguments.split(",")] for name, arguments in found}


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def dtype_of(tensor: Tensor | None) -> int:
    """Returns the number that csrc/abi.h gives a tensor's dtype; for no tensor, any."""
    return 0 if tensor is None else DTYPES[tensor.dtype]


def stacked(outputs: int, inputs: int, segments: int, parts: Sequence[Tensor]) -> Tensor:
    """Returns packed weights as one, the Stack of csrc/packed.h: it holds their addresses, and not their memory."""
    header = [_STACKED, outputs, inputs, segments, 0, 0, 0, 0]
    return torch.tensor([*header, len(parts), *(part.data_ptr() for part in parts)], dtype=torch.int64)


def _header(name: str) -> str:
    """Returns a file of csrc without its comments."""
    return re.sub(r"//.*", "", (build.SOURCES / name).read_text())


@functools.cache
def structure(name: str) -> type[ctypes.Structure]:
    """Returns a struct of csrc/structures.h as a type of ctypes."""
    body = re.search(rf"\bstruct {name} {{([^}}]*)}};", _header("structures.h"))
    assert body, f"structures.h has no struct {name}"
    fields = [(field.split()[-1].lstrip("*"), _ctype(field)) for field in body[1].split(";") if field.strip()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def _ctype(argument: str) -> type:
    if "*" in argument:
        return ctypes.c_void_p
    return {"int64_t": ctypes.c_int64, "float": ctypes.c_float}[argument.split()[0]]


def __getattr__(name: str) -> Library:
    if name != "library":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    globals()["library"] = chosen = load(_chosen_path())
    return chosen
