"""tokenizer.json and tokenizer_config.json of a GGUF file's model, as its metadata describe them."""

import logging
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from penstock.router.launcher.gguf.metadata import Metadata
from penstock.router.launcher.gguf.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

log = logging.getLogger(__name__)

KEY = "tokenizer.ggml"
MARK = "▁"                               # a space in SentencePiece's tokens
MAX_PIECE = 256                          # characters of a token that merges make
ROLES = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id",
         "pad_token": "padding_token_id"}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


class TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Vocabulary:
    """The tokens of a file and what they are for."""

    def __init__(self, metadata: Metadata, size: int) -> None:
        """size: the rows of the embedding. Raises GgufError."""
        self.metadata = metadata
        self.tokens = metadata.texts(f"{KEY}.tokens")
        if not 1 <= len(self.tokens) <= size:
            raise metadata.error(f"{KEY}.tokens", f"from 1 to {size} texts, for token_embd.weight has {size} rows")
        count = len(self.tokens)
        has_types = f"{KEY}.token_type" in metadata
        self.types = metadata.integers(f"{KEY}.token_type", count) if has_types else [int(TokenType.NORMAL)] * count
        self.ids: dict[str, int] = {}
        for token_id, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True)):
            if kind != TokenType.UNUSED:  # the writer fills gaps with these
                self.ids.setdefault(token, token_id)

    def role(self, name: str) -> str | None:
        """Returns the token of a role, such as eos_token."""
        key = f"{KEY}.{ROLES[name]}"
        if key not in self.metadata:
            return None
        return self.tokens[self.metadata.integer(key, most=len(self.tokens) - 1)]

    def added(self) -> list[dict[str, Any]]:
        """Returns `added_tokens` of tokenizer.json: those that are found in texts as they stand."""
        special = (TokenType.CONTROL, TokenType.UNKNOWN)
        return [{"id": token_id, "content": token, "special": self.types[token_id] in special, "single_word": False,
                 "lstrip": False, "rstrip": False, "normalized": False}
                for token, token_id in self.ids.items()
                if self.types[token_id] in (*special, TokenType.USER_DEFINED) and token]


def tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns what tokenizer.json says. Raises GgufError for a kind of tokenizer that is not known."""
    metadata = vocabulary.metadata
    kind = metadata.text(f"{KEY}.model")
    if kind == "gpt2":
        return _byte_level(vocabulary)
    if kind == "llama":
        return _sentence_piece(vocabulary)
    raise metadata.error(f"{KEY}.model", "gpt2 or llama")


def tokenizer_config(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns what tokenizer_config.json says. Raises GgufError."""
    roles = {name: vocabulary.role(name) for name in ROLES}
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"} | {
        name: token for name, token in roles.items() if token is not None}
    template, metadata = "tokenizer.chat_template", vocabulary.metadata
    named = metadata.texts("tokenizer.chat_templates") if "tokenizer.chat_templates" in metadata else []
    if template in metadata:
        config["chat_template"] = metadata.text(template)
    if named:
        default = {"default": config["chat_template"]} if template in metadata else {}
        found = default | {name: metadata.text(f"{template}.{name}") for name in named if name != "default"}
        config["chat_template"] = [{"name": name, "template": text} for name, text in found.items()]
    return config


def _byte_level(vocabulary: Vocabulary) -> dict[str, Any]:
    metadata = vocabulary.metadata
    pre = _pre_tokenizer(metadata)
    merges = metadata.texts(f"{KEY}.merges")
    known = vocabulary.ids
    for number, merge in enumerate(merges):
        left, space, right = merge.partition(" ")
        if not space or left not in known or right not in known or left + right not in known:
            raise metadata.error(f"{KEY}.merges", f"two tokens that make a third, with a space between them, as merge "
                                                  f"{number}; it is {merge!r:.100}")
    return {
        "version": "1.0", "added_tokens": vocabulary.added(),
        "normalizer": {"type": "NFC"} if pre.is_composed else None,
        "pre_tokenizer": pre.to_json(metadata.switch(f"{KEY}.add_space_prefix", False)),
        "post_processor": _ends(vocabulary, pre.adds_bos, BYTE_LEVEL),
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "ignore_merges": pre.keeps_words, "byte_fallback": False, "vocab": known,
                  "merges": merges},
    }


def _pre_tokenizer(metadata: Metadata) -> PreTokenizer:
    key = f"{KEY}.pre"
    if key not in metadata:
        log.warning("%s has no %s, as files of before April 2024: texts are split in a way that is not the model's own",
                    metadata.path, key)
    name = metadata.text(key, "default")
    if name not in PRE_TOKENIZERS:
        raise metadata.error(key, f"one of {', '.join(sorted(PRE_TOKENIZERS))}")
    return PRE_TOKENIZERS[name]


def _sentence_piece(vocabulary: Vocabulary) -> dict[str, Any]:
    """Merges of BPE are the ways to make a token of two, the best score first, as SentencePiece takes them."""
    metadata, known = vocabulary.metadata, vocabulary.ids
    scores = metadata.numbers(f"{KEY}.scores", len(vocabulary.tokens))
    adds_space = metadata.switch(f"{KEY}.add_space_prefix", True)
    unknown = vocabulary.role("unk_token")
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    normalizers = [{"type": "Prepend", "prepend": MARK}, replace] if adds_space else [replace]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if adds_space:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0", "added_tokens": vocabulary.added(),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None, "post_processor": _ends(vocabulary, True, None),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "unk_token": unknown, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": known, "merges": list(_merges(vocabulary, scores))},
    }


def _merges(vocabulary: Vocabulary, scores: list[float]) -> Iterator[tuple[str, str]]:
    known = vocabulary.ids
    merged = (TokenType.NORMAL, TokenType.USER_DEFINED)
    pieces = [(-scores[token_id], token_id, token) for token, token_id in known.items()
              if vocabulary.types[token_id] in merged and 1 < len(token) <= MAX_PIECE]
    for _, _, token in sorted(pieces):
        halves = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        yield from sorted(((left, right) for left, right in halves if left in known and right in known),
                          key=lambda pair: (known[pair[0]], known[pair[1]]))


def _ends(vocabulary: Vocabulary, adds_bos: bool, bytes_: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns `post_processor` of tokenizer.json, which adds the first and the last token of a text."""
    metadata = vocabulary.metadata
    first = vocabulary.role("bos_token") if metadata.switch(f"{KEY}.add_bos_token", adds_bos) else None
    last = vocabulary.role("eos_token") if metadata.switch(f"{KEY}.add_eos_token", False) else None

    def sequence(name: str, number: int) -> list[dict[str, Any]]:
        text: dict[str, Any] = {"Sequence": {"id": name, "type_id": number}}
        return [*([{"SpecialToken": {"id": first, "type_id": number}}] if first else []), text,
                *([{"SpecialToken": {"id": last, "type_id": number}}] if last else [])]

    special = {token: {"id": token, "ids": [vocabulary.ids[token]], "tokens": [token]}
               for token in (first, last) if token}
    template = {"type": "TemplateProcessing", "single": sequence("A", 0),
                "pair": [*sequence("A", 0), *sequence("B", 1)], "special_tokens": special}
    processors = [*([bytes_] if bytes_ else []), *([template] if special else [])]
    return {"type": "Sequence", "processors": processors} if processors else None
