"""Reading a checkpoint: each rank its own slice, and errors that say what is wrong with which file."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.kernels.linear import PackedWeight, weight_rows
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.weights import safetensors_files
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.rank_weights import RankWeights
from penstock.shard.weights.stored import CheckpointError
from tests.tiny_models import make_tiny, prompt_logits, random_ids

IDS = random_ids(20, 160)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints that no test changes."""
    path = tmp_path_factory.mktemp("models")
    make_tiny(path / "one", has_bias=True)
    make_tiny(path / "tied", tied=True)
    make_tiny(path / "many", max_file_size="50KB")
    return path


@pytest.fixture
def copy(models: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of one of them, to be damaged."""
    return lambda name: Path(shutil.copytree(models / name, tmp_path / name))


class CountingSlice:
    def __init__(self, slice_of_file: Any, read: list[int]) -> None:
        self._slice = slice_of_file
        self._read = read

    def __getitem__(self, part: tuple[slice, ...]) -> Tensor:
        tensor: Tensor = self._slice[part]
        self._read.append(tensor.nbytes)
        return tensor


class CountingFile:
    """An open safetensors file of which only slices can be read, counted in bytes."""

    def __init__(self, file: Any, read: list[int]) -> None:
        self._file = file
        self._read = read

    def __enter__(self) -> "CountingFile":
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)

    def get_slice(self, name: str) -> CountingSlice:
        return CountingSlice(self._file.get_slice(name), self._read)


@pytest.mark.parametrize("name", ["one", "tied", "many"])
def test_a_rank_reads_its_slice_and_nothing_else(models: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(safetensors_files, "safe_open",
                        lambda *file, **kind: CountingFile(safe_open(*file, **kind), read))
    tensors: dict[str, Tensor] = {}
    for file in (models / name).glob("*.safetensors"):
        tensors |= load_file(file)
    held_whole = ("norm.weight", "o_proj.bias", "down_proj.bias")
    whole = sum(tensor.nbytes for name, tensor in tensors.items() if name.endswith(held_whole))
    split = sum(tensor.nbytes for tensor in tensors.values()) - whole
    for world_size in (1, 2):
        for rank in range(world_size):
            read.clear()
            Decoder.load(models / name, None, Group(rank, world_size))
            assert sum(read) == split // world_size + whole


def test_slices_of_the_ranks_make_the_whole(models: Path) -> None:
    name, outputs, inputs = "model.layers.0.mlp.down_proj", 64, 96
    expected = load_file(models / "one" / "model.safetensors")[f"{name}.weight"]
    checkpoint = Checkpoint(models / "one")
    ranks = [RankWeights(checkpoint, Group(rank, 3), torch.float32) for rank in range(3)]
    rows = [unpacked(weights.linears(weights.own_outputs({name: outputs}, inputs))) for weights in ranks]
    columns = [unpacked(weights.row_parallel(name, outputs, inputs, weights.own_inner(inputs))) for weights in ranks]
    assert [len(part) for part in rows] == [16, 16, 32]
    assert torch.equal(torch.cat(rows), expected)
    assert torch.equal(torch.cat(columns, dim=1), expected)


def test_linears_of_the_same_inputs_are_stacked(models: Path) -> None:
    tensors = load_file(models / "one" / "model.safetensors")
    q, k = (f"model.layers.1.self_attn.{part}_proj" for part in "qk")
    weights = RankWeights(Checkpoint(models / "one"), Group(1, 2), torch.bfloat16)
    parts = weights.own_outputs({q: 128, k: 64}, 64)
    for suffix, stacked in (("weight", unpacked(weights.linears(parts))), ("bias", weights.biases(parts))):
        expected = torch.cat([tensors[f"{q}.{suffix}"][64:], tensors[f"{k}.{suffix}"][32:]])
        assert torch.equal(stacked, expected.bfloat16())


def test_head_that_is_absent_is_the_embedding(copy: Callable[[str], Path], models: Path) -> None:
    path = copy("tied")
    edit_json(path / "config.json", tie_word_embeddings=False)
    logits, expected = (prompt_logits(Decoder.load(p, None, Group()), IDS) for p in (path, models / "tied"))
    assert logits is not None
    assert expected is not None
    assert torch.equal(logits, expected)


def test_progress(models: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    Decoder.load(models / "one", None, Group(), lambda *call: calls.append(call))
    names = set(load_file(models / "one" / "model.safetensors"))
    assert {name for name, _, _ in calls} == names
    assert [call[1:] for call in calls] == [(i + 1, len(names)) for i in range(len(names))]


def test_unread_tensors_are_reported(copy: Callable[[str], Path], caplog: pytest.LogCaptureFixture) -> None:
    path = copy("one")
    change_tensors(path, {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(16),
        "model.layers.2.mlp.up_proj.weight": torch.ones(2, 2),
    })
    Decoder.load(path, None, Group())
    assert caplog.messages == [
        "The checkpoint has 1 tensors that the model does not use: ['model.layers.2.mlp.up_proj.weight']"]


def test_digest(copy: Callable[[str], Path], models: Path) -> None:
    path = copy("many")
    digest = Checkpoint(models / "many").digest()
    assert Checkpoint(path).digest() == digest
    assert Checkpoint(models / "one").digest() != digest
    file = max(path.glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert Checkpoint(path).digest() != digest


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither model.safetensors nor model.safetensors.index.json, nor"):
        Checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(CheckpointError, match=r"safetensors format are needed, found pytorch_model.bin"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("size", [0, 5, 300, -1])
def test_truncated_file(copy: Callable[[str], Path], size: int) -> None:
    file = copy("one") / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:size])
    message = f"{file}: it is (no safetensors file, or )?cut short or damaged: it has {len(data[:size])} bytes"
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(file.parent)


@pytest.mark.parametrize("header", [b"{", b"[1]", b'{"a": 1}', b'{"a": {"data_offsets": [0]}}', b"[" * 100_000])
def test_no_header(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match=r"model.safetensors: its header is damaged: "):
        Checkpoint(tmp_path)


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors.index.json")
    with pytest.raises(CheckpointError, match=r"model.safetensors.index.json is no file$"):
        Checkpoint(tmp_path)
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model.safetensors cannot be read: it is no regular file$"):
        Checkpoint(tmp_path)


def test_a_huge_header_is_not_read(tmp_path: Path) -> None:
    """It takes no room on the disk, and would take all of the memory."""
    length = 1 << 40
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(length.to_bytes(8, "little"))
        file.truncate(8 + length)
    with pytest.raises(CheckpointError, match=rf"its header has {length} bytes, at most 100000000 are allowed$"):
        Checkpoint(tmp_path)


def test_a_tensor_of_too_few_bytes(copy: Callable[[str], Path]) -> None:
    file = copy("one") / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"data_offsets":[0,', b'"data_offsets":[4,', 1))
    with pytest.raises(CheckpointError, match=r"header is damaged: [\w.]+: expected \d+ bytes of data, as its"):
        Decoder.load(file.parent, None, Group())


def test_missing_file_of_an_index(copy: Callable[[str], Path]) -> None:
    path = copy("many")
    file = min(path.glob("*.safetensors"))
    file.unlink()
    with pytest.raises(CheckpointError, match=f"{file} does not exist; model.safetensors.index.json says it holds"):
        Checkpoint(path)


def test_files_without_an_index(copy: Callable[[str], Path], models: Path) -> None:
    path, whole = copy("many"), models / "many"
    (path / "model.safetensors.index.json").unlink()
    save_file({"lora_A.weight": torch.zeros(2)}, path / "adapter_model.safetensors")
    (path / "consolidated.safetensors").write_bytes(b"of another format")
    ids = random_ids(20, 160)
    assert {*Checkpoint(path).entries} == {*Checkpoint(whole).entries}
    own, expected = (prompt_logits(Decoder.load(folder, None, Group()), ids) for folder in (path, whole))
    assert torch.equal(own, expected)  # type: ignore[arg-type]


def test_one_file_of_another_name(copy: Callable[[str], Path]) -> None:
    path = copy("one")
    expected = Checkpoint(path).entries.keys()
    (path / "model.safetensors").rename(path / "model.fp16.safetensors")
    assert Checkpoint(path).entries.keys() == expected


def test_files_without_an_index_of_which_one_is_missing(copy: Callable[[str], Path]) -> None:
    path = copy("many")
    (path / "model.safetensors.index.json").unlink()
    first, *_, last = sorted(path.glob("*.safetensors"))
    last.unlink()
    with pytest.raises(CheckpointError, match=f"has no {last.name}, beside others of that count"):
        Checkpoint(path)
    first.unlink()
    with pytest.raises(CheckpointError, match=f"has no {first.name} and 1 more, beside"):
        Checkpoint(path)


def test_a_tensor_of_two_files_without_an_index(copy: Callable[[str], Path]) -> None:
    path = copy("one")
    (path / "model.safetensors").rename(path / "model.fp16.safetensors")
    shutil.copy(path / "model.fp16.safetensors", path / "model.fp32.safetensors")
    with pytest.raises(CheckpointError, match=r"fp32.safetensors and model.fp16.safetensors both hold .*, and there"):
        Checkpoint(path)


def test_index_that_is_wrong(copy: Callable[[str], Path]) -> None:
    index = copy("many") / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    weight_map["model.norm.weight"] = min(weight_map.values())
    edit_json(index, weight_map=weight_map)
    with pytest.raises(CheckpointError, match=r"00001.*safetensors: .*holds model.norm.weight, which is not in it"):
        Checkpoint(index.parent)
    index.write_text("[]")
    with pytest.raises(CheckpointError, match=r"index.json has no weight_map"):
        Checkpoint(index.parent)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (None, r"has no tensor model.norm.weight, expected of shape \[64\]"),
        (torch.ones(63), r"model.safetensors: model.norm.weight has shape \[63\], expected \[64\]"),
        (torch.ones(64, dtype=torch.int8), r"model.safetensors: model.norm.weight is I8, expected one of F64, F32"),
    ],
    ids=["missing", "shape", "dtype"],
)
def test_wrong_tensor(copy: Callable[[str], Path], tensor: Tensor | None, message: str) -> None:
    path = copy("one")
    change_tensors(path, {"model.norm.weight": tensor})
    with pytest.raises(CheckpointError, match=message):
        Decoder.load(path, None, Group())


def unpacked(packed: PackedWeight) -> Tensor:
    return weight_rows(packed, torch.arange(packed.out_features))


def edit_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_tensors(path: Path, changes: dict[str, Tensor | None]) -> None:
    file = path / "model.safetensors"
    tensors = load_file(file) | changes
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, file)
