"""The draft model of `--draft-model-id`: where its files are, and whether its tokens are those of the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checkpoints.tokenizers.place import tokenizer_of
from penstock.launcher import hub
from penstock.launcher.config import LauncherConfig
from penstock.system.arguments import InvalidArgument

if TYPE_CHECKING:
    import tokenizers

PROBES = (
    "The quick brown fox jumps over the lazy dog.", "def open(path: str) -> None:\n    return  # 42",
    "  two  spaces\tand a tab\r\n\n", '{"name": "Zoë", "age": 1234567, "tags": [1.5e-3, true]}',
    "Grüße aus Köln — 你好，世界! 🙂", "<|im_start|>system [INST] </s> <s>")
"""Texts that tokenizers of different models cut differently."""


def find(config: LauncherConfig, has_bars: bool) -> Path | None:
    """Finds the folder of the draft model, if there is one, and downloads it if it isn't here. Raises InvalidArgument.
    """
    if config.draft_model_id is None:
        return None
    if config.draft_model_id.endswith(hub.GGUF):
        raise InvalidArgument(f"`draft_model_id`: {config.draft_model_id} is a GGUF file; name a directory, or a model "
                              "on the Hugging Face Hub, with safetensors files")
    try:
        return hub.find(config.draft_model_id, None, config.huggingface_hub_cache, has_bars).path
    except InvalidArgument as error:
        raise _of_the_draft(error) from error


def check_tokens(folder: Path, tokenizer: Path) -> None:
    """Raises InvalidArgument unless the draft model in a folder has the tokens of the model's tokenizer.json: the same
    vocabulary, or the same ids for texts of several kinds."""
    try:
        place = tokenizer_of(folder)
    except InvalidArgument as error:
        raise _of_the_draft(error) from error
    ours, theirs = _load(tokenizer), _load(place)
    if ours.get_vocab() == theirs.get_vocab():
        return
    for text in PROBES:
        own, other = (each.encode(text, add_special_tokens=False).ids for each in (ours, theirs))
        if own != other:
            raise InvalidArgument(f"`draft_model_id`: {folder} has other tokens than the model: {text!r} is {other}, "
                                  f"and for the model {own}")


def _load(path: Path) -> tokenizers.Tokenizer:
    import tokenizers  # only who drafts needs it

    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing more special
        raise InvalidArgument(f"`draft_model_id`: {path} cannot be read, to compare it: {error}") from error


def _of_the_draft(error: InvalidArgument) -> InvalidArgument:
    return InvalidArgument(error.message.replace("`model_id`", "`draft_model_id`").replace(
        "--model-id", "--draft-model-id"))
