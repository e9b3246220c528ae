"""Checkpoints that PyTorch pickled, and files that would do something else."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from penstock.shard.communication.distributed import Group
from penstock.shard.conversion.command import main
from penstock.shard.layers.decoder import Decoder
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.stored import CheckpointError
from tests.tiny_models import make_tiny, prompt_logits, random_ids

SHARED = torch.zeros(1000)


def invoke(*arguments: Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def pickled(path: Path, num_files: int, *, is_old: bool = False) -> tuple[Path, Path]:
    """A checkpoint, and the same in pickles, in which the head is the embedding."""
    model = make_tiny(path / "model")
    tensors = load_file(model / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, model / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    source = path / "pickled"
    source.mkdir()
    (source / "config.json").write_text((model / "config.json").read_text())
    names = sorted(tensors)
    parts = [names[index::num_files] for index in range(num_files)]
    files = ["pytorch_model.bin"] if num_files == 1 else [f"pytorch_model-{index}.bin" for index in range(num_files)]
    for file, part in zip(files, parts, strict=True):
        torch.save({name: tensors[name] for name in part}, source / file, _use_new_zipfile_serialization=not is_old)
    if num_files > 1:
        (source / "pytorch_model.bin.index.json").write_text(json.dumps(
            {"weight_map": {name: file for file, part in zip(files, parts, strict=True) for name in part}}))
    return model, source


@pytest.mark.parametrize(("num_files", "is_old"), [(1, False), (1, True), (3, False)])
def test_logits_are_equal(tmp_path: Path, num_files: int, is_old: bool) -> None:
    model, source = pickled(tmp_path, num_files, is_old=is_old)
    with pytest.raises(CheckpointError, match=f"found pytorch_model.*: `penstock convert {source} OUT` makes them"):
        Checkpoint(source)
    result = invoke(source, tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert f"out: {num_files} file" in result.output
    ids = random_ids(20, 160)
    own, expected = (prompt_logits(Decoder.load(folder, None, Group()), ids) for folder in (tmp_path / "out", model))
    assert own is not None
    assert torch.equal(own, expected)  # type: ignore[arg-type]


def test_a_head_that_is_the_embedding_is_left_out_and_other_views_are_copied(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(4, 3)
    torch.save({"lm_head.weight": whole, "embed.weight": whole, "half": whole[:2], "turned": whole.T},
               tmp_path / "pytorch_model.bin")
    assert invoke(tmp_path, tmp_path / "out").exit_code == 0
    made = load_file(tmp_path / "out/model.safetensors")
    assert made.keys() == {"embed.weight", "half", "turned"}
    assert torch.equal(made["half"], whole[:2])
    assert torch.equal(made["turned"], whole.T)


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    _, source = pickled(tmp_path, 3)
    damaged = source / "pytorch_model-2.bin"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:len(content) // 2])
    result = invoke(source, tmp_path / "out")
    assert result.exit_code == 1
    assert f"Error: {damaged} cannot be read: " in result.output
    first = tmp_path / "out/model-00001-of-00003.safetensors"
    written = first.stat().st_ino, first.stat().st_mtime_ns
    assert not (tmp_path / "out/model.safetensors.index.json").exists()
    damaged.write_bytes(content)
    assert invoke(source, tmp_path / "out").exit_code == 0
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == written


class Touch:
    """Makes a file, when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize(("content", "message"), [
    ({"a": Touch(Path("/nowhere"))}, "is refused, for it is damaged or holds more than tensors: posix.system"),
    ([torch.ones(2)], "holds something else than tensors by their names"),
    ({"model": {"a": torch.ones(2)}}, "holds something else than tensors by their names")])
def test_what_is_not_tensors_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    if isinstance(content, dict) and "a" in content:
        content = {"a": Touch(tmp_path / "touched")}
    torch.save(content, tmp_path / "pytorch_model.bin")
    result = invoke(tmp_path, tmp_path / "out")
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path}/pytorch_model.bin {message}\n"
    assert not (tmp_path / "touched").exists()


def test_missing_and_strange_files(tmp_path: Path) -> None:
    assert "has neither pytorch_model.bin nor pytorch_model.bin.index.json" in invoke(tmp_path, tmp_path / "o").output
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text('{"weight_map": {"a": "../b.bin"}}')
    assert "b.bin is no file of" in invoke(tmp_path, tmp_path / "o").output
    index.write_text("[]")
    assert "has no weight_map of tensor names to files" in invoke(tmp_path, tmp_path / "o").output
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    assert "pytorch_model.bin is refused" in invoke(tmp_path, tmp_path / "o").output
    assert "give another directory" in invoke(tmp_path, tmp_path).output


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    _, source = pickled(tmp_path, 1)
    subprocess.run([sys.executable, "-m", "penstock", "convert", source, tmp_path / "out"], check=True)
    assert (tmp_path / "out/model.safetensors").exists()


@pytest.mark.parametrize(("tensors", "message"), [
    ({"a": torch.zeros(1).expand(1 << 36)},
     r"a has shape \[68719476736\], which takes 274877906944 bytes, and the file holds 4 of them, repeated"),
    ({"a": torch.zeros(4).as_strided((1 << 20, 1 << 20), (0, 0))}, r"a has shape \[1048576, 1048576\], which takes"),
    ({f"a.{index}": SHARED for index in range(1000)}, r"its 1000 tensors take 4000000 bytes in all, more than 16"),
    ({"a": torch.sparse_coo_tensor(torch.zeros(2, 1), torch.ones(1), (1 << 30, 1 << 30), check_invariants=True)},
     r"a is no tensor of plain numbers: torch.sparse_coo"),
    ({"a": torch.zeros(2, dtype=torch.complex64)}, r"a is no tensor of plain numbers: .*complex64"),
    ({"a": torch.zeros(1 << 36, device="meta")}, r"a is no tensor of plain numbers: .* on meta"),
])
@pytest.mark.parametrize("is_old", [False, True])
def test_tensors_that_are_larger_than_their_file(
    tmp_path: Path, tensors: dict[str, torch.Tensor], message: str, is_old: bool
) -> None:
    source = tmp_path / "pickled"
    source.mkdir()
    torch.save(tensors, source / "pytorch_model.bin", _use_new_zipfile_serialization=not is_old)
    result = invoke(source, tmp_path / "out")
    assert result.exit_code == 1
    assert re.search(message, result.output), result.output
    assert not isinstance(result.exception, MemoryError)


def test_expanded_tensors_that_repeat_nothing(tmp_path: Path) -> None:
    source = tmp_path / "pickled"
    source.mkdir()
    torch.save({"positions": torch.arange(8).expand(1, 1, 8), "none": torch.zeros(0)}, source / "pytorch_model.bin")
    assert invoke(source, tmp_path / "out").exit_code == 0
    assert load_file(tmp_path / "out" / "model.safetensors")["positions"].tolist() == [[[*range(8)]]]
