"""Models that are split into several GGUF files: any of them names all."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.checkpoints.gguf.folder import checkpoint_files
from penstock.checkpoints.gguf.metadata import GgufError
from tests.checkpoints.gguf.drafts import Field, read
from tests.gguf_files import FOLDER

WHOLE = FOLDER / "llama-Q4_0.gguf"


def number(key: str, value: int) -> Field:
    return Field(key.encode(), 2, value.to_bytes(2, "little"))


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """As llama.cpp splits: all metadata are in the first file."""
    draft, paths = read(WHOLE), []
    for part in range(3):
        tensors = draft.tensors[part::3]
        data, moved = b"", []
        for tensor in tensors:
            end = min((each.offset for each in draft.tensors if each.offset > tensor.offset), default=len(draft.data))
            moved.append(replace(tensor, offset=len(data)))
            data += draft.data[tensor.offset : end]
        fields = [*(draft.fields if part == 0 else []), number("split.no", part), number("split.count", 3)]
        paths.append(tmp_path / f"model-{part + 1:05}-of-00003.gguf")
        paths[-1].write_bytes(replace(draft, fields=fields, tensors=moved, data=data).to_bytes())
    return paths


def bytes_of(index: dict, name: str) -> bytes:
    tensor = index["tensors"][name]
    content = Path(tensor["file"]).read_bytes()
    return content[tensor["offset"] : tensor["offset"] + 64]


def test_any_part_names_the_whole(parts: list[Path]) -> None:
    whole = checkpoint_files(WHOLE)
    for part in parts:
        found = checkpoint_files(part)
        index, expected = found.pop("model.gguf.json"), whole["model.gguf.json"]
        assert found == {name: content for name, content in whole.items() if name != "model.gguf.json"}
        assert {tensor["file"] for tensor in index["tensors"].values()} == set(map(str, parts))
        assert all(bytes_of(index, name) == bytes_of(expected, name) for name in expected["tensors"])


def test_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(GgufError, match=r"the model has 3 files, and model-00002-of-00003\.gguf is not beside it"):
        checkpoint_files(parts[0])


def test_renamed_part_is_refused(parts: list[Path]) -> None:
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))
    with pytest.raises(GgufError, match=r"names are to end with -00001-of-00003\.gguf"):
        checkpoint_files(renamed)


def test_tensor_of_two_files_is_refused(parts: list[Path]) -> None:
    parts[1].write_bytes(parts[2].read_bytes())
    with pytest.raises(GgufError, match="two of the model's files have it"):
        checkpoint_files(parts[0])
