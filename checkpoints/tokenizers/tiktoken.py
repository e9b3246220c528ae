"""Files of tiktoken, lines of a token in base64 and its rank, of the families that are known to have them.

A file says neither how texts are split nor what the tokens behind its own are: the code beside it does, and each
family's rules are those of its code.
"""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.checkpoints.tokenizers import ranks
from penstock.checkpoints.tokenizers.pre_tokenizers import KIMI, PRE_TOKENIZERS, PreTokenizer
from penstock.checkpoints.tokenizers.settings import Settings, read_bytes
from penstock.checkpoints.tokenizers.vocabulary import MAX_TOKENS, Vocabulary
from penstock.system.fields import FileError

LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\r?(\n|$)")
LLAMA3_TOKENS = 128_000
_EXTRAS = tuple(f"<|extra_{number}|>" for number in range(205))


@dataclass(frozen=True, slots=True)
class Family:
    """How a family splits texts, its special tokens behind `count` others, and those that go before every text."""

    pre: PreTokenizer
    specials: Callable[[int], Sequence[str]]
    bos: str | None = None
    first: tuple[str, ...] = ()


def _llama3(count: int) -> Sequence[str]:
    reserved = [f"<|reserved_special_token_{number}|>" for number in range(251)]
    return ["<|begin_of_text|>", "<|end_of_text|>", *reserved[:4], "<|start_header_id|>", "<|end_header_id|>",
            reserved[4], "<|eot_id|>", *reserved[5:]]


LLAMA3 = Family(PRE_TOKENIZERS["llama-bpe"], _llama3, bos="<|begin_of_text|>")
FAMILIES = {
    "QWenTokenizer": Family(
        PRE_TOKENIZERS["qwen2"], lambda count: ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *_EXTRAS)),
    "HYTokenizer": Family(
        PRE_TOKENIZERS["qwen2"],
        lambda count: ("<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>", *_EXTRAS)),
    "ChatGLM4Tokenizer": Family(PRE_TOKENIZERS["chatglm-bpe"], lambda count: (), first=("[gMASK]", "<sop>")),
    "TikTokenTokenizer": Family(
        KIMI, lambda count: [f"<|reserved_token_{token_id}|>" for token_id in range(count, count + 256)]),
}
"""By the class of the tokenizer's code."""
CLASS_OF_FILE = {"qwen.tiktoken": "QWenTokenizer", "hy.tiktoken": "HYTokenizer", "tiktoken.model": "TikTokenTokenizer"}
"""By the file's name, the class of those that no file names."""


def is_tiktoken(path: Path) -> bool:
    """Tells whether a file begins with a line of tiktoken's, for some have the name of SentencePiece's. Raises
    FileError."""
    return LINE.match(read_bytes(path)) is not None


def tokenizer(path: Path, settings: Settings) -> dict[str, Any]:
    """Returns the content of a tokenizer.json. Raises FileError."""
    known = ranks.spelled(_ranks(path))
    count = max(known.values()) + 1
    family = _family(path, settings, count)
    vocabulary = Vocabulary(path, known)
    for number, text in enumerate(family.specials(count)):
        vocabulary.add(text, count + number)
    return ranks.tokenizer(known, vocabulary, settings.with_roles(bos_token=family.bos), family.pre,
                           adds_bos=family.bos is not None, more_first=family.first)


def _ranks(path: Path) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        if not line:
            continue
        try:
            token, rank = line.split()
            known = found.setdefault(base64.b64decode(token, validate=True), int(rank))
        except (ValueError, binascii.Error):
            raise FileError(path, f"expected a token in base64 and its rank as line {number}, found {line!r:.100}"
                            ) from None
        if known != int(rank) or not 0 <= known < MAX_TOKENS:
            raise FileError(path, f"line {number}: expected a token that no other line has, and a rank from 0 to "
                                  f"{MAX_TOKENS - 1}, found {line!r:.100}")
    if not found or len(set(found.values())) < len(found) or b"" in found:
        raise FileError(path, "expected lines of a token in base64 and its rank, which differ")
    return found


def _family(path: Path, settings: Settings, count: int) -> Family:
    name = settings.family
    if name in FAMILIES:
        return FAMILIES[name]
    if path.name in CLASS_OF_FILE and not name:
        return FAMILIES[CLASS_OF_FILE[path.name]]
    if path.name == "tokenizer.model" and count == LLAMA3_TOKENS:
        return LLAMA3
    raise FileError(path, f"expected {LLAMA3_TOKENS} tokens, as Llama 3 has them, or a tokenizer_class in "
                          f"{settings.path.name} that is one of {', '.join(FAMILIES)}; found {count} tokens and "
                          + (f"tokenizer_class {name}" if name else "no tokenizer_class"))
