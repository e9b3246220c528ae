"""The files of a checkpoint that PyTorch pickled, of which nothing but tensors is read."""

import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

SINGLE_FILE = "pytorch_model.bin"
INDEX_FILE = "pytorch_model.bin.index.json"
MOST_SHARED = 16                         # names of one tensor, about: an embedding has four in some models


class ConversionError(ValueError):
    """The files are missing, damaged, or hold something that is no tensor; the message names the file."""


def find(folder: Path) -> list[Path]:
    """Returns the files of a checkpoint, in the order of their names. Raises ConversionError."""
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    index = folder / INDEX_FILE
    if not index.is_file():
        raise ConversionError(f"{folder} has neither {SINGLE_FILE} nor {INDEX_FILE}")
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        files = [folder / name for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConversionError(f"{index} has no weight_map of tensor names to files: {error!r}") from error
    for path in files:
        if path.parent != folder or not path.is_file():
            raise ConversionError(f"{path} is no file of {folder}; {INDEX_FILE} says it holds tensors")
    return files


def read(path: Path) -> dict[str, Tensor]:
    """Returns a file's tensors by their names. Raises ConversionError.

    The unpickler is PyTorch's own that makes tensors and plain containers, and calls nothing else that a file names.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise ConversionError(f"{path} is refused, for it is damaged or holds more than tensors{_named(error)}"
                              ) from error
    except (OSError, RuntimeError, ValueError, EOFError, LookupError, AttributeError, TypeError) as error:
        raise ConversionError(f"{path} cannot be read: {str(error).partition('. ')[0]}") from error
    if not isinstance(found, dict) or not all(
            isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in found.items()):
        raise ConversionError(f"{path} holds something else than tensors by their names")
    _check_sizes(path, found)
    return found


def _check_sizes(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises ConversionError for tensors that are none of plain numbers, or have more of them than the file: with a
    stride of 0 a pickle repeats a number as often as it likes."""
    total = 0
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized or tensor.is_complex():
            raise ConversionError(f"{path}: {name} is no tensor of plain numbers: {tensor.layout}, {tensor.dtype}, on "
                                  f"{tensor.device}")
        held = tensor.untyped_storage().nbytes()
        if tensor.nbytes > held:
            raise ConversionError(f"{path}: {name} has shape {list(tensor.shape)}, which takes {tensor.nbytes} bytes, "
                                  f"and the file holds {held} of them, repeated")
        total += tensor.nbytes
    if total > MOST_SHARED * (size := path.stat().st_size):
        raise ConversionError(f"{path}: its {len(tensors)} tensors take {total} bytes in all, more than {MOST_SHARED} "
                              f"times the {size} of the file: they are the same ones again and again")


def _named(error: Exception) -> str:
    """Returns the function that the file wanted to call, if the error names it."""
    found = re.search(r"GLOBAL (\S+)", str(error))
    return f": {found[1]}" if found else ""
