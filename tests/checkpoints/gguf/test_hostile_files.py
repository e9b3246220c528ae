"""Files with fields, shapes and bytes that no writer writes: each is read, or ends in a sentence that names the file.

All that a server reads of a file is read: metadata, tokenizer, configuration and weights.
"""

import json
import resource
import time
from pathlib import Path

import pytest
import tokenizers

from penstock.checkpoints.gguf.folder import checkpoint_files, checkpoint_of
from penstock.checkpoints.gguf.metadata import GgufError
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.weights.stored import CheckpointError
from tests.checkpoints.gguf.drafts import Draft, read, spoil, text
from tests.gguf_files import FOLDER

BASES = ("llama-Q4_0", "qwen2")
QUICK, ALL = 120, 2000
LONGEST_SECONDS = 2.0
MOST_MEMORY = 2**30                      # bytes that all cases together may add to the largest size


def read_all(path: Path) -> str:
    """Returns the sentence with which reading a file ends; empty if it is sound."""
    try:
        with checkpoint_of(path) as folder:
            tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            Decoder.load(folder, None, Group())
    except (GgufError, ModelConfigError, CheckpointError) as error:
        return str(error)
    return ""


def most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(cases: range, path: Path) -> tuple[int, float]:
    """Returns how many of the files were refused, and the most seconds of processor time that one took."""
    drafts = [read(FOLDER / f"{base}.gguf") for base in BASES]
    refused, longest = 0, 0.0
    for number in cases:
        path.write_bytes(spoil(drafts[number % 2], number // 2))
        start = time.process_time()
        sentence = read_all(path)
        longest = max(longest, time.process_time() - start)
        assert "\n" not in sentence, number
        assert len(sentence) < 2000, number
        refused += bool(sentence)
    return refused, longest


def test_parts_make_the_file_again() -> None:
    for base in BASES:
        path = FOLDER / f"{base}.gguf"
        assert read(path).to_bytes() == path.read_bytes()


def test_hostile_files_end_in_a_sentence(tmp_path: Path) -> None:
    refused, _ = run(range(QUICK), tmp_path / "model.gguf")
    assert refused > QUICK // 3


@pytest.mark.slow
def test_2000_hostile_files_end_in_a_sentence_within_2_seconds_of_work(tmp_path: Path) -> None:
    before = most_memory()
    refused, longest = run(range(ALL), tmp_path / "model.gguf")
    assert refused > ALL // 3
    assert longest < LONGEST_SECONDS
    assert most_memory() - before < MOST_MEMORY


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda draft: draft.with_field("general.architecture", 8, text("gemma3")),
     "general.architecture: expected one of llama, qwen2, qwen3, found 'gemma3'"),
    (lambda draft: draft.with_field("tokenizer.ggml.model", 8, text("t5")),
     "tokenizer.ggml.model: expected gpt2 or llama, found 't5'"),
    (lambda draft: draft.with_field("tokenizer.ggml.pre", 8, text("hieroglyphs")), "found 'hieroglyphs'"),
    (lambda draft: draft.with_field("qwen2.expert_count", 4, (8).to_bytes(4, "little")),
     "qwen2.expert_count: expected 0, for mixtures of experts are not computed, found 8"),
    (lambda draft: draft.with_field("general.alignment", 4, (48).to_bytes(4, "little")), "a power of two, found 48"),
    (lambda draft: draft.with_field("tokenizer.ggml.tokens", 9, bytes([8, 0, 0, 0]) + (2**40).to_bytes(8, "little")),
     "tokenizer.ggml.tokens: an array of 1099511627776, at most 2097152 are read"),
    (lambda draft: Draft(draft.fields, draft.tensors, draft.data[:100]), "cut short or damaged"),
])
def test_what_is_wrong_is_named(change, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(change(read(FOLDER / "qwen2.gguf")).to_bytes())
    found = read_all(path)
    assert found.startswith(f"{path}: ")
    assert sentence in found


def test_types_that_are_not_read_are_named(tmp_path: Path) -> None:
    path, draft = tmp_path / "model.gguf", read(FOLDER / "qwen2.gguf")
    tensor = next(each for each in draft.tensors if each.name == b"blk.0.ffn_down.weight")
    tensor.kind = 23
    path.write_bytes(draft.to_bytes())
    assert "blk.0.ffn_down.weight: the tensor is IQ4_XS; F32, F16, BF16, Q4_0," in read_all(path)


@pytest.mark.parametrize(("content", "sentence"), [
    (b"", "it is empty"), (b"GG", "it is no GGUF file"), (b"GGUF\3\0", "cut short"),
    (b"GGUF\0\0\0\3" + bytes(40), "it is big-endian"), (b"GGUF\1\0\0\0" + bytes(40), "it is of version 1"),
    (b"PK\3\4" + bytes(40), "it is no GGUF file")])
def test_other_files_are_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufError, match=sentence):
        checkpoint_files(path)


def test_names_of_files_are_texts_of_json(tmp_path: Path) -> None:
    path = tmp_path / 'a "quoted" näme.gguf'
    path.write_bytes((FOLDER / "qwen2.gguf").read_bytes())
    assert json.dumps(checkpoint_files(path))
    assert not read_all(path)
