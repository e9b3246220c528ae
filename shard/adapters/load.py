"""Loads an adapter for one rank: what it has for each of the model's linears, laid out for the kernels."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.lora import Adapter, Part, pack_adapter, packed_bytes
from penstock.kernels.lora.adapter import Shape
from penstock.kernels.memory import own_pages
from penstock.shard.adapters.config import AdapterConfig
from penstock.shard.adapters.error import AdapterError
from penstock.shard.adapters.files import AdapterFile, Matrices
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.sites import Adaptable, Site

LEADING = ("model", "language_model", "transformer")
"""What the names of modules, and of a checkpoint's linears, begin with or not."""
MAX_LEADING = 3
OWN_PAGES = 16 << 20
"""The bytes from which on an adapter has pages of its own: they are large, and small adapters would waste them."""


def load_adapter(directory: Path, digests: tuple[str, str], adaptable: Adaptable) -> Adapter:
    """Reads an adapter from its folder. Raises AdapterError if it is damaged, or the model can't use it.

    digests: SHA-256 in hex of the tensors' file and of the configuration; any where it is empty
    """
    config, file = AdapterConfig.read(directory, digests[1]), AdapterFile(directory, digests[0])
    modules = {name: _known(name, file, adaptable) for name in file.modules if not _is_elsewhere(name, adaptable)}
    matrices = {known: (name, file.modules[name]) for name, known in modules.items()}
    if len(matrices) < len(modules):
        twice = next(name for name, found in modules.items() if matrices[found][0] != name)
        raise AdapterError(f"{file.path} has two pairs of matrices for {modules[twice]}, one of them as {twice}")
    for name, known in modules.items():
        _check(name, file.modules[name], _part_of(known, adaptable), config, file)
    shapes = [_shape(site, matrices, config) for site in adaptable.sites]

    def read(number: int) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
        return _read(adaptable.sites[number], matrices, file, adaptable.dtype)

    size = packed_bytes(shapes, adaptable.dtype)
    try:
        device = dispatch.device()
        has_pages = device.type == "cpu" and size >= OWN_PAGES
        memory = own_pages(size) if has_pages else torch.empty(size, dtype=torch.uint8, device=device)
    except (OSError, MemoryError, RuntimeError) as error:
        raise AdapterError(f"{directory}: there is no memory for the {size} bytes of this adapter: {error}") from error
    with torch.inference_mode():
        return pack_adapter(shapes, adaptable.dtype, read, memory)


def _short(name: str) -> str:
    """Returns a module's name without what some libraries put before it, as often as they do."""
    for _ in range(MAX_LEADING):
        first, _, rest = name.partition(".")
        name = rest if rest and first in LEADING else name
    return name


def _is_elsewhere(module: str, adaptable: Adaptable) -> bool:
    return any(f"{_short(module)}.".startswith(_short(name)) for name in adaptable.elsewhere)


def _known(module: str, file: AdapterFile, adaptable: Adaptable) -> str:
    """Returns what the checkpoint calls a module's linear. Raises AdapterError if adapters can't add to it."""
    wanted = _short(module)
    for site in adaptable.sites:
        for name, _ in site.parts:
            if _short(name) == wanted:
                return name
    reason = next((why for name, why in adaptable.refused.items()
                   if wanted == _short(name) or wanted.startswith(f"{_short(name)}.")),
                  "the model has no linear of this name")
    raise AdapterError(f"{file.path} has the tensor {file.modules[module].a}: {reason}")


def _part_of(name: str, adaptable: Adaptable) -> LinearPart:
    return next(part for site in adaptable.sites for own, part in site.parts if own == name)


def _check(module: str, found: Matrices, part: LinearPart, config: AdapterConfig, file: AdapterFile) -> None:
    """Raises AdapterError unless the matrices have the shapes that the model and the configuration ask for."""
    rank = config.rank_of(module)
    shapes = {found.a: ((found.rank, found.in_features), (rank, part.in_features)),
              found.b: ((found.out_features, found.rank), (part.out_features, rank))}
    for name, (shape, expected) in shapes.items():
        if shape != expected:
            raise AdapterError(f"{file.path}: {name} has shape {list(shape)}, expected {list(expected)}")


def _names(site: Site, matrices: Mapping[str, tuple[str, Matrices]]) -> list[str]:
    """Returns those of a site's linears for which an adapter has matrices, each once."""
    return [name for name in dict.fromkeys(name for name, _ in site.parts) if name in matrices]


def _shape(site: Site, matrices: Mapping[str, tuple[str, Matrices]], config: AdapterConfig) -> Shape | None:
    names = _names(site, matrices)
    if not names:
        return None
    parts = tuple(Part(_length(part), names.index(name) if name in names else None) for name, part in site.parts)
    return Shape(
        tuple(matrices[name][1].rank for name in names), tuple(config.scale_of(matrices[name][0]) for name in names),
        site.in_features, site.segments, site.width, parts)


def _length(part: LinearPart) -> int:
    return len(range(*part.rows.indices(part.out_features)))


def _read(
    site: Site, matrices: Mapping[str, tuple[str, Matrices]], file: AdapterFile, dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Reads this rank's part of each A and B of a site; every rank reads all of it, and refuses what is damaged."""
    names, columns = _names(site, matrices), site.parts[0][1].columns
    a = [file.read(matrices[name][1].a, dtype)[:, columns].contiguous() for name in names]
    b = {name: file.read(matrices[name][1].b, dtype) for name in names}
    return a, [b[name][part.rows].contiguous() if name in b else None for name, part in site.parts]
