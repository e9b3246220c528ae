"""Loads an adapter for one rank: what it has for each of the model's linears, laid out for the kernels."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.lora import Adapter, Part, pack_adapter, packed_bytes
from penstock.kernels.lora.adapter import Shape
from penstock.kernels.memory import own_pages
from penstock.shard.adapters.base_copies import BaseCopies
from penstock.shard.adapters.config import AdapterConfig
from penstock.shard.adapters.files import AdapterFile, Matrices
from penstock.shard.adapters.names import short
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.sites import Adaptable, Site
from penstock.system.fields import FileError

OWN_PAGES = 16 << 20
"""The bytes from which on an adapter has pages of its own: they are large, and small adapters would waste them."""


def load_adapter(directory: Path, digest: str, adaptable: Adaptable) -> Adapter:
    """Reads an adapter from its folder. Raises FileError if it is damaged, or the model can't use it.

    digest: SHA-256 in hex that the files must have, the configuration's first; any if empty
    """
    config = AdapterConfig.read(directory)
    base = BaseCopies(adaptable.checkpoint, adaptable.tied)
    file = AdapterFile(directory, config.digest, digest, adaptable.dtype, base)
    linears = _linears(adaptable)
    matrices: dict[str, tuple[str, Matrices]] = {}
    for module, found in file.modules.items():
        if _is_elsewhere(module, adaptable):
            continue
        if short(module) not in linears:
            raise FileError(file.path, f"it has the tensor {found.a:.200}: {_why_none(module, adaptable)}")
        name, part = linears[short(module)]
        if name in matrices:
            raise FileError(file.path, f"it has two pairs of matrices for {name}, one of them as {module:.200}")
        matrices[name] = module, found
        _check(module, found, part, config, file)
    shapes = [_shape(site, matrices, config) for site in adaptable.sites]

    def read(number: int) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
        return _read(adaptable.sites[number], matrices, file)

    size = packed_bytes(shapes, adaptable.dtype)
    try:
        device = dispatch.device()
        has_pages = device.type == "cpu" and size >= OWN_PAGES
        memory = own_pages(size) if has_pages else torch.empty(size, dtype=torch.uint8, device=device)
    except (OSError, MemoryError, RuntimeError) as error:
        raise FileError(directory, f"there is no memory for the {size} bytes of this adapter: {error}") from error
    with torch.inference_mode():
        return pack_adapter(shapes, adaptable.dtype, read, memory)


def _is_elsewhere(module: str, adaptable: Adaptable) -> bool:
    return any(f"{short(module)}.".startswith(short(name)) for name in adaptable.elsewhere)


def _linears(adaptable: Adaptable) -> dict[str, tuple[str, LinearPart]]:
    """Returns the checkpoint's name of each linear and this rank's part of it, by the short name."""
    found: dict[str, tuple[str, LinearPart]] = {}
    for site in adaptable.sites:
        for name, part in site.parts:
            found.setdefault(short(name), (name, part))
    return found


def _why_none(module: str, adaptable: Adaptable) -> str:
    wanted = short(module)
    return next((why for name, why in adaptable.refused.items()
                 if wanted == short(name) or wanted.startswith(f"{short(name)}.")),
                "the model has no linear of this name")


def _check(module: str, found: Matrices, part: LinearPart, config: AdapterConfig, file: AdapterFile) -> None:
    """Raises FileError unless the matrices have the shapes that the model and the configuration ask for."""
    rank = config.rank_of(module)
    shapes = {found.a: ((found.rank, found.in_features), (rank, part.in_features)),
              found.b: ((found.out_features, found.rank), (part.out_features, rank))}
    for name, (shape, expected) in shapes.items():
        if shape != expected:
            raise FileError(file.path, f"{name} has shape {list(shape)}, expected {list(expected)}")


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
    site: Site, matrices: Mapping[str, tuple[str, Matrices]], file: AdapterFile
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Returns this rank's part of each A and B of a site; every rank reads all of it, and refuses what is damaged."""
    names, columns = _names(site, matrices), site.parts[0][1].columns
    a = [file.tensors[matrices[name][1].a][:, columns].contiguous() for name in names]
    b = {name: file.tensors[matrices[name][1].b] for name in names}
    return a, [b[name][part.rows].contiguous() if name in b else None for name, part in site.parts]
