"""The code of the repository as the tests of its form see it: each file is parsed once for all of them."""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.paths import ROOT

PACKAGES = ("penstock", "launcher", "router", "shard", "kernels", "contract", "checkpoints", "protos", "telemetry",
            "system", "client", "bench", "quantization", "cluster", "offline")
GENERATED = "_pb2"


@dataclass(frozen=True, slots=True)
class Source:
    """A file's parts."""

    imports: frozenset[str]
    """Full names of the modules that it imports, wherever in it, and of what it imports from packages."""
    docstrings: tuple[tuple[int, str], ...]
    """The line and the text of each docstring, those of attributes among them; code in it is `…`."""
    texts: tuple[str, ...]
    """All its constants that are texts, those between the braces of f-strings by themselves."""
    attributes: frozenset[str]
    """The names that it takes from objects and modules."""


@functools.cache
def source_files(*folders: str) -> list[str]:
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py") if not (ROOT / folder).is_symlink())
    return sorted({str(path.relative_to(ROOT)) for path in files
                   if GENERATED not in path.name and path.resolve() == path})


@functools.cache
def source(file: str) -> Source:
    imports: set[str] = set()
    docstrings: list[tuple[int, str]] = []
    texts: list[str] = []
    attributes: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        match node:
            case ast.Constant(value=str(text)):
                texts.append(text)
            case ast.Attribute(attr=name):
                attributes.add(name)
            case ast.Import(names=names):
                imports.update(name.name for name in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, f"{file}: imports are absolute"
                assert module
                imports.update(f"{module}.{name.name}" for name in names)
            case ast.Module() | ast.ClassDef() | ast.FunctionDef():
                docstrings += _docstrings(node)
    return Source(frozenset(imports), tuple(docstrings), tuple(texts), frozenset(attributes))


def _docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> Iterator[tuple[int, str]]:
    for statement in node.body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield statement.lineno, re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "`…`", text)).strip()
