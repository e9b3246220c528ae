"""GPT-2's vocab.json and merges.txt, as Qwen 2 and others have them, too."""

from pathlib import Path
from typing import Any

from penstock.checkpoints.tokenizers.description import byte_level
from penstock.checkpoints.tokenizers.pre_tokenizers import PRE_TOKENIZERS
from penstock.checkpoints.tokenizers.settings import Settings, read_bytes, read_json
from penstock.checkpoints.tokenizers.sources import MERGES
from penstock.checkpoints.tokenizers.vocabulary import MAX_TOKENS, Vocabulary
from penstock.system.fields import FileError

CLASSES = {"GPT2Tokenizer": "gpt-2", "CodeGenTokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2"}
"""By transformers' class, GGUF's name of how texts are split."""
DEFAULT = "GPT2Tokenizer"
END = "<|endoftext|>"
"""The end of a text, unless a file names another."""


def tokenizer(path: Path, settings: Settings) -> dict[str, Any]:
    """Returns the content of a tokenizer.json, made of vocab.json and the merges beside it. Raises FileError."""
    ids = read_json(path)
    for text, token_id in ids.items():
        if type(token_id) is not int or not 0 <= token_id < MAX_TOKENS:
            raise FileError(path, f"{text!r:.100}: expected an id from 0 to {MAX_TOKENS - 1}, found {token_id!r:.100}")
    if not ids or len(set(ids.values())) < len(ids):
        raise FileError(path, "expected tokens with ids that differ")
    merges = _merges(path.with_name(MERGES), ids)
    pre = PRE_TOKENIZERS[CLASSES[_class(path, settings)]]
    vocabulary = Vocabulary(path, ids)
    if END in ids:
        vocabulary.add(END)
        settings = settings.with_roles(bos_token=END, eos_token=END)
    settings.add_to(vocabulary)
    return byte_level(vocabulary.ids, merges, vocabulary.added(), pre, adds_space=bool(settings.adds_space),
                      first=settings.first(adds_bos=False), last=settings.last())


def _class(path: Path, settings: Settings) -> str:
    """Returns the class that a file names, else the one that models of this type have."""
    name = settings.family
    if not name:
        return "Qwen2Tokenizer" if (settings.model_type or "").startswith("qwen") else DEFAULT
    if name not in CLASSES:
        raise FileError(settings.path, f"tokenizer_class: expected one of {', '.join(CLASSES)}, for there is "
                                       f"{path.name} alone, found {name}")
    return name


def _merges(path: Path, ids: dict[str, int]) -> list[str]:
    try:
        lines = read_bytes(path).decode().split("\n")
    except UnicodeError as error:
        raise FileError(path, f"expected UTF-8: {error}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        merge = line.rstrip("\r")
        if not merge or (number == 1 and merge.startswith("#version")):
            continue
        left, space, right = merge.partition(" ")
        if not space or left not in ids or right not in ids or left + right not in ids:
            raise FileError(path, "expected two tokens that make a third, with a space between them, as line "
                                  f"{number}, found {merge!r:.100}")
        found.append(merge)
    return found
