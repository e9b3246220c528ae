"""What is read of an adapter's files, and what is refused."""

import json
from pathlib import Path

import pytest

from penstock.checkpoints.adapter_files import CONFIG, TENSORS, check
from penstock.router.adapters import files
from penstock.router.adapters.files import AdapterFiles
from penstock.system.fields import FileError
from tests.router.adapters.folders import digest_of, write_adapter


def read(folder: Path) -> AdapterFiles:
    return files.read(folder, max_weights=1 << 30)


def test_reads_digests_and_the_number_of_weights(tmp_path):
    write_adapter(tmp_path, rank=20, width=10)
    found = read(tmp_path)
    assert found.num_weights == 2 * 32 * 10, "ranks are padded to multiples of 16"
    assert found.digest == digest_of(tmp_path)
    check(tmp_path)


@pytest.mark.parametrize(("config", "message"), [
    ({"peft_type": "IA3"}, "peft_type is 'IA3', only LORA is served"),
    ({"peft_type": None}, "peft_type is None, only LORA is served"),
    ({"use_dora": True}, "use_dora is True: the magnitudes of DoRA are not served"),
    ({"modules_to_save": ["lm_head"]},
     "modules_to_save is ['lm_head']: modules that were trained whole are not served; merge the adapter into the "
     "model"),
])
def test_kinds_that_are_not_served_are_refused(tmp_path, config, message):
    write_adapter(tmp_path, **config)
    for look in (check, read):
        with pytest.raises(FileError) as refusal:
            look(tmp_path)
        assert str(refusal.value) == f"{tmp_path / CONFIG}: {message}"


def test_what_asks_for_nothing_is_accepted(tmp_path):
    check(write_adapter(tmp_path, use_dora=False, modules_to_save=None, bias="none"))


@pytest.mark.parametrize(("name", "content", "message"), [
    (CONFIG, None, "No such file or directory"),
    (CONFIG, b"{", "it is not JSON"),
    (CONFIG, b"[" * 60_000, "it is not JSON"),
    (CONFIG, b"[" * 100_000, "it has more than 65536 values"),
    (CONFIG, b"[]", "it is no JSON object"),
    (CONFIG, b" " * 1_100_000, "it has more than 1048576 bytes"),
    (TENSORS, None, "o such file"),
    (TENSORS, b"", "it is no safetensors file, or cut short"),
    (TENSORS, b"\xff" * 20, "it is no safetensors file"),
    (TENSORS, (2).to_bytes(8, "little") + b"{}", "it has no tensors"),
    (TENSORS, (2).to_bytes(8, "little") + b"{ ", "its header is damaged: it is not JSON"),
    (TENSORS, (8).to_bytes(8, "little") + b'{"a": 1}', "its header is damaged: a: expected an object, found 1"),
    (TENSORS, (9 << 20).to_bytes(8, "little") + bytes(9 << 20), "its header has 9437184 bytes, at most 8388608"),
])
def test_files_that_are_missing_or_damaged_are_named(tmp_path, name, content, message):
    write_adapter(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message) as refusal:
        read(tmp_path)
    assert str(refusal.value).startswith(f"{tmp_path / name}: ")


def test_a_file_that_was_cut_off_is_noticed(tmp_path):
    path = write_adapter(tmp_path) / TENSORS
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FileError, match=r"it has \d+ bytes, and by its header \d+"):
        read(tmp_path)


@pytest.mark.parametrize("shape", [
    3, [-1], [1.0], ["1"], [True], None, [10 ** 4000], [9] * 65, [9] * 200_000, [1 << 62, 1 << 62], [1 << 63], [2]],
    ids=lambda shape: f"{shape!r:.20}")
def test_a_shape_that_is_none_is_noticed(tmp_path, shape):
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
    write_adapter(tmp_path)
    (tmp_path / TENSORS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(FileError, match=r"its header is damaged: |its header has more than 262144 values"):
        read(tmp_path)
