"""Texts to encode and decode, and the folders of tokenizers."""

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from penstock.checkpoints.byte_characters import byte_characters
from penstock.checkpoints.tokenizers.conversion import convert
from penstock.checkpoints.tokenizers.sources import find
from tests.checkpoints.gguf.test_tokenizer import random_text
from tests.paths import DEMO_MODEL, ROOT

CORPUS = [line for line in (ROOT / "README.md").read_text().splitlines() if line.strip()]
CORPUS += ["Привет мир, как дела?", "こんにちは世界", "你好，世界", "naïve café, crème brûlée", "3.14 123456"] * 20
_RNG = random.Random(5)
TEXTS = ["", " ", "  a", "a  b   c\n\n d\t\te", "\n", "👩‍👩‍👧 🏳️‍🌈", *(random_text(_RNG) for _ in range(400)),
         *CORPUS[:60]]

DEMO = json.loads((DEMO_MODEL / "tokenizer.json").read_text())["model"]
MERGES = [merge if isinstance(merge, str) else " ".join(merge) for merge in DEMO["merges"]]


def demo_ranks() -> dict[bytes, int]:
    """The demo model's merges as tiktoken has them: bytes first, then what is made of two tokens, in that order."""
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}
    made = (bytes(byte_of[character] for character in merge.replace(" ", "")) for merge in MERGES)
    tokens = dict.fromkeys([*(bytes([byte]) for byte in range(256)), *made])
    return {token: rank for rank, token in enumerate(tokens)}


def write(folder: Path, **files: Any) -> None:
    """Writes files by their names, of which `__` stands for the dot: what is no text or bytes as JSON."""
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))


def converted(folder: Path) -> Tokenizer:
    source = find(folder)
    assert source is not None
    return Tokenizer.from_str(convert(source))


def decoded(tokenizer: Tokenizer, ids: list[int]) -> str:
    text: str = tokenizer.decode(ids, skip_special_tokens=False)
    return text
