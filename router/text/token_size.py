"""How much text a token can stand for, which tells of a long text that it has too many tokens."""

import json
from typing import Any

import tokenizers
from tokenizers import models

_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
_COMPOSED = 4
"""How many bytes NFC makes one of, at the most: 7 bytes of U+1FBE U+0308 U+0301 become 2."""
_KEEPING = frozenset(("ByteLevel", "Metaspace", "Digits", "Split", "Punctuation", "UnicodeScripts"))
"""Pre-tokenizers that lose none of the text, but for what their `behavior` says."""


def most_bytes_of_a_token(tokenizer: tokenizers.Tokenizer) -> int | None:
    """Returns how many bytes of UTF-8 one token stands for at the most; None for tokenizers that drop parts of texts,
    or of which that is not known."""
    factor = _shrinking(_state(tokenizer.normalizer))
    parts = _flat(_state(tokenizer.pre_tokenizer), "pretokenizers")
    added = tokenizer.get_added_tokens_decoder().values()
    if (factor is None or not all(part["type"] in _KEEPING and part.get("behavior") != "Removed" for part in parts)
            or any(token.lstrip or token.rstrip for token in added)):
        return None
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    model = tokenizer.model
    if not isinstance(model, models.BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    is_byte_level = any(part["type"] == "ByteLevel" for part in parts)
    has_bytes = vocabulary.keys() >= set(tokenizers.pre_tokenizers.ByteLevel.alphabet()) if is_byte_level else (
        model.byte_fallback and vocabulary.keys() >= _BYTES)
    if not has_bytes:
        return None
    longest = max(map(len, vocabulary)) if is_byte_level else max(len(token.encode()) for token in vocabulary)
    return factor * max([longest, *(len(token.content.encode()) for token in added)])


def _shrinking(normalizer: dict[str, Any] | None) -> int | None:
    """Returns how many times shorter a text may become, in bytes; None if there is no such number."""
    factor = 1
    for part in _flat(normalizer, "normalizers"):
        match part:
            case {"type": "NFC"}:
                factor *= _COMPOSED
            case {"type": "Prepend" | "ByteLevel"}:
                pass
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if (
                    len(old.encode()) <= len(new.encode())):
                pass
            case _:
                return None
    return factor


def _flat(state: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """Returns the parts of a component in order, those of a sequence in its place."""
    if state is None:
        return []
    if state["type"] != "Sequence":
        return [state]
    return [part for each in state[name] for part in _flat(each, name)]


def _state(component: Any) -> dict[str, Any] | None:
    """Returns the entry of tokenizer.json for a component; None if there is none."""
    state: dict[str, Any] | None = None if component is None else json.loads(component.__getstate__())
    return state
