"""Byte-level BPE as tiktoken has it: tokens of bytes by rank, the lowest of which is made first."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.checkpoints.byte_characters import byte_characters
from penstock.checkpoints.tokenizers.description import byte_level, merges
from penstock.checkpoints.tokenizers.pre_tokenizers import PreTokenizer
from penstock.checkpoints.tokenizers.settings import Settings
from penstock.checkpoints.tokenizers.vocabulary import Vocabulary
from penstock.system.fields import FileError


def spelled(tokens: Mapping[bytes, int]) -> dict[str, int]:
    """Returns the tokens in the characters that stand for bytes."""
    characters = byte_characters()
    return {"".join([characters[byte] for byte in token]): token_id for token, token_id in tokens.items()}


def tokenizer(
    ranks: Mapping[str, int], vocabulary: Vocabulary, settings: Settings, pre: PreTokenizer, *, adds_bos: bool,
    more_first: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Returns the content of a tokenizer.json.

    ranks: the ids of the tokens that merges make and are made of, in the order in which they are made
    vocabulary: these and all others, but for those of `settings`
    more_first: tokens before every text, beside the first one that files tell of
    """
    pieces = sorted(ranks, key=ranks.__getitem__)
    settings.add_to(vocabulary)
    first, last = [*settings.first(adds_bos), *more_first], settings.last()
    for token in (*first, *last):
        if token not in vocabulary.ids:
            raise FileError(vocabulary.path, f"expected a token {token!r:.100}, which goes before or behind every text")
    return byte_level(vocabulary.ids, list(merges(pieces, ranks)), vocabulary.added(), replace(pre, keeps_words=True),
                      adds_space=bool(settings.adds_space), first=first, last=last)
