"""The parts that a tokenizer.json is put together from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

from penstock.checkpoints.tokenizers.pre_tokenizers import PreTokenizer

MARK = "▁"                               # a space in SentencePiece's tokens
MAX_PIECE = 1024                         # characters of a token that merges make
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


class TokenType(IntEnum):
    """The kind of a token, as SentencePiece and GGUF number it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def added_token(token_id: int, text: str, is_special: bool, **flags: bool) -> dict[str, Any]:
    """Returns an item of `added_tokens`: a token that is found in texts as it stands."""
    return {"id": token_id, "content": text, "special": is_special, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, **flags}


def merges(pieces: Iterable[str], known: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yields the ways to make each piece of two known ones; the pieces that are made first come first."""
    for piece in pieces:
        if 1 < len(piece) <= MAX_PIECE:
            halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
            yield from sorted(((left, right) for left, right in halves if left in known and right in known),
                              key=lambda pair: (known[pair[0]], known[pair[1]]))


def merges_by_score(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float], known: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yields the merges of SentencePiece's BPE, which makes the token of the best score first."""
    ranked = sorted((-score, token_id) for token_id, (kind, score) in enumerate(zip(types, scores, strict=True))
                    if kind in (TokenType.NORMAL, TokenType.USER_DEFINED) and known.get(tokens[token_id]) == token_id)
    return merges((tokens[token_id] for _, token_id in ranked), known)


def ends(
    first: Sequence[str], last: Sequence[str], ids: Mapping[str, int], bytes_: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Returns `post_processor`, which puts tokens before and behind a text."""
    def sequence(name: str, number: int) -> list[dict[str, Any]]:
        text = {"Sequence": {"id": name, "type_id": number}}
        before, behind = ([{"SpecialToken": {"id": token, "type_id": number}} for token in tokens]
                          for tokens in (first, last))
        return [*before, text, *behind]

    special = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (*first, *last)}
    template = {"type": "TemplateProcessing", "single": sequence("A", 0),
                "pair": [*sequence("A", 0), *sequence("B", 1)], "special_tokens": special}
    processors = [*([bytes_] if bytes_ else []), *([template] if special else [])]
    return {"type": "Sequence", "processors": processors} if processors else None


def byte_level(
    ids: Mapping[str, int], merges: Sequence[str] | Sequence[tuple[str, str]], added: list[dict[str, Any]],
    pre: PreTokenizer, *, adds_space: bool, first: Sequence[str], last: Sequence[str],
) -> dict[str, Any]:
    """Returns a tokenizer.json of merged bytes."""
    return {
        "version": "1.0", "added_tokens": added,
        "normalizer": {"type": "NFC"} if pre.is_composed else None,
        "pre_tokenizer": pre.to_json(adds_space),
        "post_processor": ends(first, last, ids, BYTE_LEVEL),
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "ignore_merges": pre.keeps_words, "byte_fallback": False, "vocab": ids,
                  "merges": merges},
    }


def sentence_piece(
    model: dict[str, Any], added: list[dict[str, Any]], post_processor: dict[str, Any] | None, *,
    before_spaces: Sequence[dict[str, Any]] = (), splits: Sequence[dict[str, Any]] = (), adds_space: bool,
    only_first: bool = False,
) -> dict[str, Any]:
    """Returns a tokenizer.json of SentencePiece's tokens.

    before_spaces: what normalises a text before its spaces become marks
    splits: what splits a text after that
    adds_space: whether a space goes before a text
    only_first: whether none goes before the texts that follow special tokens
    """
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    prepends = [{"type": "Prepend", "prepend": MARK}] if adds_space and not only_first else []
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if adds_space:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    if adds_space and only_first:
        splits = [{"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}, *splits]
    return {
        "version": "1.0", "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            *before_spaces, *prepends, *([] if adds_space and only_first else [replace])]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits} if splits else None,
        "post_processor": post_processor,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }
