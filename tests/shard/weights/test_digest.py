"""The digest of weights: of all that the tensors say, and of nothing else."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.checkpoints.gguf.folder import checkpoint_of
from penstock.shard.weights import digest, digest_cache
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.safetensors_files import INDEX_FILE, SINGLE_FILE
from penstock.shard.weights.stored import CheckpointError
from tests.gguf_files import FOLDER
from tests.paths import DEMO_MODEL


def of(folder: Path) -> str:
    return Checkpoint(folder).digest()


@pytest.fixture
def is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Digests of files are kept however small and new they are."""
    monkeypatch.setattr(digest, "MIN_KEPT_BYTES", 0)
    monkeypatch.setattr(digest_cache, "SETTLED_NS", -(10**12))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def num_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Returns how many pieces were read so far."""
    read, own = [], digest._digest

    def counting(piece: Any) -> bytes:
        read.append(piece)
        return own(piece)

    monkeypatch.setattr(digest, "_digest", counting)
    return lambda: len(read)


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def test_one_bit_of_any_tensor_is_another_digest(tmp_path: Path) -> None:
    model = Path(shutil.copytree(DEMO_MODEL, tmp_path / "demo"))
    entries = Checkpoint(model).entries
    found = {of(model)}
    assert found == {of(DEMO_MODEL)}
    for number, entry in enumerate(entries.values()):
        place = entry.span.offset + entry.span.num_bytes * number // len(entries)
        flip(entry.path, place)
        found.add(of(model))
        flip(entry.path, place)
    assert (len(entries), len(found)) == (74, 75)
    assert of(model) in found


@pytest.mark.parametrize("piece", [4096, 1000])
def test_no_bit_of_a_tensor_of_several_pieces_is_left_out(
    model: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(digest, "PIECE_BYTES", piece)
    entry = max(Checkpoint(model).entries.values(), key=lambda entry: entry.span.num_bytes)
    assert entry.span.num_bytes > 5 * piece
    begin, end = entry.span.offset, sum(entry.span)
    found = {of(model)}
    places = (begin, begin + piece - 1, begin + piece, begin + 4 * piece + 7, end - 1)
    for place in places:
        flip(entry.path, place)
        found.add(of(model))
        flip(entry.path, place)
    data = bytearray(entry.path.read_bytes())
    data[begin:begin + 2 * piece] = data[begin + piece:begin + 2 * piece] + data[begin:begin + piece]
    entry.path.write_bytes(data)
    found.add(of(model))
    assert len(found) == len(places) + 2


def test_names_dtypes_and_shapes_are_part_of_it(model: Path) -> None:
    file = model / SINGLE_FILE
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    weight = tensors.pop(name)
    changes = [(name, weight), (f"{name}s", weight), (name, weight.view(torch.int32)), (name, weight.view(2, -1)),
               (name, weight[:-1]), (name, weight[:0])]
    found = set()
    for changed, value in changes:
        save_file({**tensors, changed: value.contiguous()}, file)
        found.add(of(model))
    save_file(tensors, file)
    assert len(found | {of(model)}) == len(changes) + 1


def test_it_is_of_what_the_tensors_say_whatever_files_they_are_in(model: Path) -> None:
    """Neither of the header's order, nor of what it says beside them."""
    before = of(model)
    tensors = load_file(model / SINGLE_FILE)
    save_file(tensors, model / SINGLE_FILE, metadata={"format": "pt", "made": "by others"})
    assert of(model) == before
    content = (model / SINGLE_FILE).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    turned = json.dumps(dict(reversed(header.items()))).encode()
    (model / SINGLE_FILE).write_bytes(len(turned).to_bytes(8, "little") + turned + content[8 + length:])
    assert of(model) == before
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in parts.items():
        save_file({name: tensors[name] for name in own}, model / file)
    (model / INDEX_FILE).write_text(json.dumps({
        "weight_map": {name: file for file, own in parts.items() for name in own}}))
    (model / SINGLE_FILE).unlink()
    assert of(model) == before


@pytest.mark.parametrize("kind", ["BF16", "Q4_K_M"])
def test_one_bit_of_a_gguf_file(tmp_path: Path, kind: str) -> None:
    file = Path(shutil.copy(FOLDER / f"llama-{kind}.gguf", tmp_path))
    with checkpoint_of(file) as folder:
        entries = Checkpoint(folder).entries
        found = {of(folder)}
        for number, entry in enumerate(entries.values()):
            place = entry.span.offset + entry.span.num_bytes * number // len(entries)
            flip(file, place)
            found.add(of(folder))
            flip(file, place)
        assert len(found) == len(entries) + 1
        index = folder / "model.gguf.json"
        said = json.loads(index.read_bytes())
        paired = next(value for value in said["tensors"].values() if value.get("paired_heads"))
        paired["paired_heads"] //= 2
        index.write_text(json.dumps(said))
        assert of(folder) not in found, "the same bytes stand for other rows"


@pytest.mark.usefixtures("is_kept")
def test_what_was_digested_is_not_read_again(model: Path, num_read: Callable[[], int]) -> None:
    first = of(model)
    count = num_read()
    assert count == len(Checkpoint(model).entries)
    assert of(model) == first
    assert num_read() == count
    copy = Path(shutil.copytree(model, model.with_name("copy")))
    assert of(copy) == first
    assert num_read() == 2 * count, "a copy of the kept digests says nothing of the copied file"


@pytest.mark.usefixtures("is_kept")
def test_a_change_that_hides_its_time_is_seen(model: Path) -> None:
    """A merge of one layer by a program that sets the file's time back."""
    first, file = of(model), model / SINGLE_FILE
    times = file.stat()
    flip(file, times.st_size - 1)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.stat().st_mtime_ns == times.st_mtime_ns
    assert of(model) != first


@pytest.mark.usefixtures("is_kept")
@pytest.mark.parametrize("spoil", [
    lambda content: b"", lambda content: content[:-20],
    lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:], lambda content: b"\0" * len(content),
    lambda content: b"[" * 100_000,
], ids=["empty", "cut", "one bit", "zeros", "deep"])
def test_kept_digests_that_are_damaged_are_computed_again(
    model: Path, num_read: Callable[[], int], spoil: Callable[[bytes], bytes]
) -> None:
    first, count = of(model), num_read()
    kept = model / digest_cache.FOLDER / SINGLE_FILE
    whole = kept.read_bytes()
    kept.write_bytes(spoil(whole))
    assert of(model) == first
    assert num_read() == 2 * count
    assert kept.read_bytes() == whole


@pytest.mark.usefixtures("is_kept")
def test_where_the_models_folder_cannot_be_written_the_users_cache_is(
    model: Path, num_read: Callable[[], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (model / digest_cache.FOLDER).touch()
    first, count = of(model), num_read()
    assert of(model) == first
    assert num_read() == count
    assert [path.name for path in tmp_path.glob("cache/penstock/digests/*/*")] == [SINGLE_FILE]
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert of(model) == first
    assert num_read() == 2 * count


def test_nothing_is_kept_of_what_may_be_written_again_at_the_same_time(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "MIN_KEPT_BYTES", 0)
    of(model)
    assert not (model / digest_cache.FOLDER).exists()


@pytest.mark.usefixtures("is_kept")
def test_many_at_once(model: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(of(model))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [of(model)] * 8
    assert [path.name for path in (model / digest_cache.FOLDER).iterdir()] == [SINGLE_FILE]


@pytest.fixture
def begun(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[digest.WeightsDigest]:
    """A digest that waits before it reads the first piece, until the test ends or asks for it."""
    may_read, own = threading.Event(), digest._digest
    monkeypatch.setattr(digest, "_digest", lambda piece: (may_read.wait(), own(piece))[1])
    made = Checkpoint(model).begin_digest()
    assert not made.wait(0.01)
    monkeypatch.setattr(made, "hex", lambda: (may_read.set(), digest.WeightsDigest.hex(made))[1])
    yield made
    may_read.set()


def test_a_file_that_is_changed_meanwhile_has_no_digest(model: Path, begun: digest.WeightsDigest) -> None:
    flip(model / SINGLE_FILE, (model / SINGLE_FILE).stat().st_size - 1)
    with pytest.raises(CheckpointError, match=f"{model / SINGLE_FILE} was changed while it was read"):
        begun.hex()


def test_a_file_that_is_cut_short_meanwhile_has_no_digest(model: Path, begun: digest.WeightsDigest) -> None:
    os.truncate(model / SINGLE_FILE, 5000)
    with pytest.raises(CheckpointError, match=r"be digested: .*model.safetensors ends at byte 5000,"):
        begun.hex()


def test_a_file_that_is_gone_meanwhile_has_no_digest(model: Path, begun: digest.WeightsDigest) -> None:
    (model / SINGLE_FILE).unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        begun.hex()
