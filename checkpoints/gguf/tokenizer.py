"""tokenizer.json and tokenizer_config.json of a GGUF file's model, as its metadata describe them."""

import logging
from typing import Any

from penstock.checkpoints.gguf.metadata import Metadata
from penstock.checkpoints.tokenizers.description import (
    TokenType,
    added_token,
    byte_level,
    ends,
    merges_by_score,
    sentence_piece,
)
from penstock.checkpoints.tokenizers.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

log = logging.getLogger(__name__)

KEY = "tokenizer.ggml"
ROLES = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id",
         "pad_token": "padding_token_id"}


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
        return [added_token(token_id, token, self.types[token_id] in special) for token, token_id in self.ids.items()
                if self.types[token_id] in (*special, TokenType.USER_DEFINED) and token]


def tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the content of tokenizer.json. Raises GgufError for a kind of tokenizer that is not known."""
    metadata = vocabulary.metadata
    kind = metadata.text(f"{KEY}.model")
    if kind == "gpt2":
        return _byte_level(vocabulary)
    if kind == "llama":
        return _sentence_piece(vocabulary)
    raise metadata.error(f"{KEY}.model", "gpt2 or llama")


def tokenizer_config(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the content of tokenizer_config.json. Raises GgufError."""
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
    first, last = _ends(vocabulary, pre.adds_bos)
    return byte_level(known, merges, vocabulary.added(), pre,
                      adds_space=metadata.switch(f"{KEY}.add_space_prefix", False), first=first, last=last)


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
    metadata, known = vocabulary.metadata, vocabulary.ids
    scores = metadata.numbers(f"{KEY}.scores", len(vocabulary.tokens))
    model = {"type": "BPE", "unk_token": vocabulary.role("unk_token"), "fuse_unk": True, "byte_fallback": True,
             "ignore_merges": False, "vocab": known,
             "merges": list(merges_by_score(vocabulary.tokens, vocabulary.types, scores, known))}
    first, last = _ends(vocabulary, True)
    return sentence_piece(model, vocabulary.added(), ends(first, last, known),
                          adds_space=metadata.switch(f"{KEY}.add_space_prefix", True))


def _ends(vocabulary: Vocabulary, adds_bos: bool) -> tuple[list[str], list[str]]:
    """Returns the tokens before a text and behind it."""
    wanted = {"bos_token": vocabulary.metadata.switch(f"{KEY}.add_bos_token", adds_bos),
              "eos_token": vocabulary.metadata.switch(f"{KEY}.add_eos_token", False)}
    first, last = ([token] if wanted[name] and (token := vocabulary.role(name)) else [] for name in wanted)
    return first, last
