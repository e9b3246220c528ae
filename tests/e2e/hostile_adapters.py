"""Folders of adapters that somebody made to do harm."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PATTERNS = (r"(a+)+$", r"([a-z.]+)+x", r"(.*a){30}", r"(?:(?:.*){50}){50}", r"(a)\1", "(?!(a|aa)+$)", "(" * 3000,
            "a{9999}", "[" * 100, "(?<=a)b", "q_proj|" * 3000, "(?:.?){99}" * 60)
NUMBERS = (0, -1, 2**31, 2**63, 2**64 - 1, 10**400, 1e308, -1e308, 257, True, None)


def _odd_file(path: Path, kind: str) -> None:
    """Makes something that is no file, or a very large one."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "zeros":
        path.symlink_to("/dev/zero")
    elif kind == "terminal":
        path.symlink_to("/dev/tty")
    else:
        with path.open("wb") as file:
            file.write((1 << 20).to_bytes(8, "little"))
            file.truncate(1 << 40)


ODD = ("pipe", "folder", "socket", "loop", "zeros", "terminal", "sparse")


@dataclass(frozen=True)
class Hostile:
    """How a good adapter's folder is spoilt."""

    name: str
    spoil: Callable[[Path], None]

    def __repr__(self) -> str:
        return self.name

    def make(self, good: Path, folder: Path) -> Path:
        shutil.copytree(good, folder)
        self.spoil(folder)
        return folder


def _odd(file: str, kind: str) -> Hostile:
    def spoil(folder: Path) -> None:
        (folder / file).unlink()
        _odd_file(folder / file, kind)
    return Hostile(f"{file} is a {kind}", spoil)


def _raw(file: str, content: bytes) -> Hostile:
    return Hostile(f"{file} = {content[:40]!r}, {len(content)} bytes", lambda folder: _write(folder / file, content))


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _config(changes: dict[str, Any]) -> Hostile:
    def spoil(folder: Path) -> None:
        path = folder / CONFIG
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return Hostile(f"config {changes!r:.100}", spoil)


def _header(change: Callable[[dict[str, Any]], object], name: str) -> Hostile:
    """The header is changed, the data is not."""
    def spoil(folder: Path) -> None:
        path = folder / TENSORS
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + length])
        change(header)
        written = json.dumps(header).encode()
        path.write_bytes(len(written).to_bytes(8, "little") + written + content[8 + length:])
    return Hostile(f"header {name:.100}", spoil)


def _tensor(key: str, value: Any) -> Hostile:
    def change(header: dict[str, Any]) -> None:
        next(tensor for name, tensor in header.items() if name != "__metadata__")[key] = value
    return _header(change, f"{key} = {value!r}")


def _headed(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


_values = st.one_of(
    st.sampled_from(NUMBERS), st.text(max_size=20), st.sampled_from((10**5, 10**6)).map(lambda size: "x" * size),
    st.integers(1, 50_000).map(lambda size: [0] * size), st.integers(1, 500).map(lambda depth: _nested(depth)))
_keys = st.sampled_from((
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias", "init_lora_weights",
    "use_dora", "modules_to_save", "target_modules", "layers_pattern", "exclude_modules", "unknown"))
_sizes = st.one_of(st.sampled_from(NUMBERS), st.integers(0, 2**70))
_patterns = st.dictionaries(st.one_of(st.sampled_from(PATTERNS), st.text("aq_proj.*+?()|[]{}^$\\1,=!<:", max_size=30)),
                            st.one_of(st.integers(0, 300), st.sampled_from(NUMBERS)), max_size=8)
_bytes = st.one_of(
    st.binary(max_size=300), st.integers(1, 2_000_000).map(lambda size: b"[" * size),
    st.integers(1, 1_500_000).map(lambda size: b'{"r": ' + b"9" * size + b"}"),
    st.integers(1, 300_000).map(lambda size: b'{"r": [' + b"[]," * size + b"0]}"))
HOSTILE = st.one_of(
    st.builds(_odd, st.sampled_from((CONFIG, TENSORS)), st.sampled_from(ODD)),
    st.builds(_raw, st.sampled_from((CONFIG, TENSORS)), _bytes),
    st.builds(_raw, st.just(TENSORS), _bytes.map(_headed)),
    st.builds(_raw, st.just(TENSORS), st.integers(1, 1_500_000).map(
        lambda size: _headed(b'{"a": {"dtype": "F32", "data_offsets": [0, 0], "shape": [' + b"9," * size + b"9]}}"))),
    st.builds(_config, st.dictionaries(_keys, _values, min_size=1, max_size=3)),
    st.builds(lambda key, found: _config({key: found}), st.sampled_from(("rank_pattern", "alpha_pattern")), _patterns),
    st.builds(_tensor, st.just("shape"), st.lists(_sizes, max_size=70)),
    st.builds(_tensor, st.just("data_offsets"), st.lists(_sizes, min_size=1, max_size=3)),
    st.builds(_tensor, st.sampled_from(("dtype", "shape", "data_offsets")), _values),
    st.integers(1, 200_000).map(
        lambda size: _header(lambda header: header.update({"x" * size: 1}), f"a name of {size}")),
    st.integers(1, 20_000).map(lambda count: _header(lambda header: header.update(
        {f"base_model.model.m{number}.lora_A.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
         for number in range(count)}), f"{count} more tensors")))


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value
