"""SentencePiece's tokenizer.model, unigram or BPE, as Llama 2, Mistral, Gemma and InternLM have it."""

import base64
from pathlib import Path
from typing import Any

from penstock.checkpoints.tokenizers.description import MARK, TokenType, ends, merges_by_score, sentence_piece
from penstock.checkpoints.tokenizers.sentencepiece_model import Model, ModelType
from penstock.checkpoints.tokenizers.settings import Settings
from penstock.checkpoints.tokenizers.vocabulary import Vocabulary

MARKS = {"GemmaTokenizer": ("<start_of_turn>", "<end_of_turn>")}
"""By class, the tokens that only transformers' code tells to be special."""


BYTES_APART = {"type": "Split", "pattern": {"Regex": "<(?=0x[0-9A-F]{2}>)"}, "behavior": "Isolated", "invert": False}
"""Keeps texts like `<0x0A>` from being taken for the token of a byte, whose score is the best of all."""


def tokenizer(path: Path, settings: Settings) -> dict[str, Any]:
    """Returns the content of a tokenizer.json. Raises FileError.

    Where a model has rules that normalise texts, such as NFKC, `tokenizers` applies them to a character with its
    combining marks at once, so that some such marks get lost.
    """
    model = Model(path)
    adds_space = model.normalizer.add_dummy_prefix if settings.adds_space is None else settings.adds_space
    vocabulary = _vocabulary(model, settings, adds_space)
    roles = {f"{role}_token": model.token(getattr(model.trainer, f"{role}_id")) for role in ("bos", "eos")}
    settings = settings.with_roles(**roles)
    is_unigram = model.trainer.model_type == ModelType.UNIGRAM
    content = _unigram(model, vocabulary) if is_unigram else _bpe(model, vocabulary)
    return sentence_piece(
        content, vocabulary.added(), ends(settings.first(adds_bos=True), settings.last(), vocabulary.ids),
        before_spaces=_normalizers(model), splits=[BYTES_APART] if is_unigram and model.trainer.byte_fallback else [],
        adds_space=adds_space, only_first=not settings.is_legacy)


def _vocabulary(model: Model, settings: Settings, adds_space: bool) -> Vocabulary:
    """Returns the tokens; those that are unused are none, for training leaves them out of all texts.

    Tokens of several spaces that a user defined are looked for where spaces are marks, unless a mark that goes before
    each text would go before these, too.
    """
    vocabulary = Vocabulary(model.path, {text: token_id for token_id, text in enumerate(model.texts)
                                         if model.types[token_id] != TokenType.UNUSED})
    marks = MARKS.get(settings.family or "", ())
    for token_id, (text, kind) in enumerate(zip(model.texts, model.types, strict=True)):
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED) and text:
            vocabulary.add(text, token_id, kind != TokenType.USER_DEFINED or text in marks,
                           normalized=MARK in text and not adds_space)
    settings.add_to(vocabulary)
    return vocabulary


def _bpe(model: Model, vocabulary: Vocabulary) -> dict[str, Any]:
    """Merges are the ways to make a token of two, the best score first, as SentencePiece takes them."""
    return {"type": "BPE", "unk_token": _unknown(model, vocabulary), "fuse_unk": True,
            "byte_fallback": model.trainer.byte_fallback, "ignore_merges": False, "vocab": vocabulary.ids,
            "merges": list(merges_by_score(model.texts, model.types, model.scores, vocabulary.ids))}


def _unigram(model: Model, vocabulary: Vocabulary) -> dict[str, Any]:
    scores = [*model.scores, *[0.0] * len(vocabulary.ids)]
    return {"type": "Unigram", "unk_id": model.trainer.unk_id, "byte_fallback": model.trainer.byte_fallback,
            "vocab": list(zip(vocabulary.texts(), scores, strict=False))}


def _unknown(model: Model, vocabulary: Vocabulary) -> str | None:
    token = model.texts[model.trainer.unk_id]
    return token if token in vocabulary.ids else None


def _normalizers(model: Model) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if model.normalizer.precompiled_charsmap:
        rules = base64.b64encode(model.normalizer.precompiled_charsmap).decode()
        found.append({"type": "Precompiled", "precompiled_charsmap": rules})
    if model.normalizer.remove_extra_whitespaces:
        found += [{"type": "Strip", "strip_left": True, "strip_right": True},
                  {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    return found
