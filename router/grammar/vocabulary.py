"""The bytes of a model's tokens, of which llguidance makes a tree.

llguidance reads tokenizer.json, too, in a time that grows with the square of the number of added tokens: 10 s for
40,963 of them, in which nothing else runs.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from llguidance import LLTokenizer

from penstock.checkpoints.byte_characters import byte_characters

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Vocabulary:
    """The methods that llguidance calls on a tokenizer. Ids that the tokenizer has not are special tokens that no text
    spells."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: dict[str, Any], vocab_size: int, eos_token_id: int) -> None:
        """tokenizer: what tokenizer.json says; the tokens that the model of `vocab_size` can't sample are left out"""
        self.eos_token_id = eos_token_id
        self.tokens = [b"\xff<[%d]>" % token_id for token_id in range(vocab_size)]
        bytes_of = _bytes_of(tokenizer["decoder"])
        for text, token_id in _model_tokens(tokenizer["model"]["vocab"]):
            if token_id < vocab_size:
                self.tokens[token_id] = bytes_of(text)
        added = [token for token in tokenizer.get("added_tokens", ()) if token["id"] < vocab_size]
        for token in added:
            self.tokens[token["id"]] = bytes_of(token["content"])
        self.special_token_ids = [token["id"] for token in added if _is_special(token)]

    def __call__(self, text: bytes) -> list[int]:
        """Returns tokens that spell a text that the model is forced to say, which no grammar of ours forces."""
        return [self.tokens.index(bytes([byte])) for byte in text]


def load(tokenizer_json: Path, vocab_size: int, eos_token_ids: Collection[int]) -> tuple[LLTokenizer, list[bytes]]:
    """Reads a tokenizer; returns also the bytes of each token.

    Raises OSError, ValueError, LookupError, TypeError, AttributeError or RecursionError for one that is damaged or
    whose tokens are not known to be bytes.
    """
    ends = sorted(eos_token_ids)
    if not ends or not 0 <= ends[0] <= ends[-1] < vocab_size:
        raise ValueError(f"the end tokens {ends} are not among the model's {vocab_size} tokens")
    vocabulary = Vocabulary(json.loads(tokenizer_json.read_bytes()), vocab_size, ends[0])
    return LLTokenizer(vocabulary, eos_token=ends), vocabulary.tokens  # type: ignore[arg-type]


def _model_tokens(vocab: Any) -> Iterator[tuple[str, int]]:
    """Yields the tokens and ids of a model, which unigram models list with their scores."""
    if isinstance(vocab, list):
        return ((text, token_id) for token_id, (text, _) in enumerate(vocab))
    return iter(vocab.items())


def _is_special(token: dict[str, Any]) -> bool:
    """Tells whether grammars can allow a token by its name alone; so they can those in angle brackets, for these are
    marks whatever the tokenizer says."""
    content: str = token["content"]
    return token["special"] or (content.startswith("<") and content.endswith(">"))


def _bytes_of(decoder: Any) -> Callable[[str], bytes]:
    """Returns the function that tells the bytes of a token, as its decoder does. Raises ValueError for one that is not
    known."""
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = {step["type"]: step for step in steps}
    if "ByteLevel" in kinds:
        byte_of = {character: byte for byte, character in enumerate(byte_characters())}
        return lambda text: _spelled(text, byte_of)
    if "Metaspace" in kinds:
        mark = kinds["Metaspace"]["replacement"]
        if "ByteFallback" in kinds:
            return lambda text: _fallen_back(text, [mark])
        return lambda text: text.replace(mark, " ").encode()
    if "ByteFallback" in kinds:
        marks = [step["pattern"]["String"] for step in steps if step["type"] == "Replace" and step["content"] == " "]
        return lambda text: _fallen_back(text, marks)
    raise ValueError(f"its decoder is none of ByteLevel, ByteFallback and Metaspace: {', '.join(kinds)}")


def _spelled(text: str, byte_of: dict[str, int]) -> bytes:
    """Returns the bytes that characters stand for; an added token may have others, and then stands for itself."""
    try:
        return bytes([byte_of[character] for character in text])
    except KeyError:
        return text.encode()


def _fallen_back(text: str, marks: list[str]) -> bytes:
    if byte := _BYTE.fullmatch(text):
        return bytes.fromhex(byte[1])
    for mark in marks:
        text = text.replace(mark, " ")
    return text.encode()
