"""Tokenizers made of metadata against the tokenizer.json that llama.cpp's converter was given."""

import json
import random

import pytest
from tokenizers import Tokenizer

from penstock.checkpoints.gguf.folder import checkpoint_files
from tests.gguf_files import FOLDER, TOKENIZERS, file_of

NUM_TEXTS = {False: 400, True: 2000}
"""The quick suite's, and those of `--every-case`."""
RANGES = [(32, 126), (32, 126), (0xC0, 0x24F), (0x300, 0x36F), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x900, 0x97F),
          (0x3040, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xAFFF), (0x1F300, 0x1F64F), (0, 31), (0x2000, 0x206F)]
WORDS = ["the ", " model", "It's", "WE'LL", " I'd", "\n\n", "  ", "\t", "\r\n", " ", "123456", "3.14", "//", "!?",
         "é", "é", "<s>", "</s>", "<|im_end|>", "<|begin_of_text|>", "<0x0A>", "▁", "…"]


def random_text(rng: random.Random) -> str:
    pieces = (rng.choice(WORDS) if rng.random() < 0.6 else chr(rng.randint(*rng.choice(RANGES)))
              for _ in range(rng.randint(0, 40)))
    return "".join(pieces)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_are_encoded_as_by_the_models_own_tokenizer(name: str, every_case: bool) -> None:
    files = checkpoint_files(file_of(name))
    found, expected = Tokenizer.from_str(json.dumps(files["tokenizer.json"])), Tokenizer.from_file(
        str(FOLDER / f"{name}.json"))
    rng = random.Random(14)
    texts = [random_text(rng) for _ in range(NUM_TEXTS[every_case])]
    for adds_special in (True, False):
        ours = [encoding.ids for encoding in found.encode_batch(texts, add_special_tokens=adds_special)]
        theirs = [encoding.ids for encoding in expected.encode_batch(texts, add_special_tokens=adds_special)]
        assert ours == theirs
        assert found.decode_batch(ours, skip_special_tokens=False) == expected.decode_batch(
            ours, skip_special_tokens=False)
    assert found.get_vocab() == expected.get_vocab()
    specials = [{token.content for token in each.get_added_tokens_decoder().values() if token.special}
                for each in (found, expected)]
    assert specials[0] == specials[1]
