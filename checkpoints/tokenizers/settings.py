"""The settings of a tokenizer in tokenizer_config.json and the smaller files beside it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from penstock.checkpoints.tokenizers.vocabulary import Vocabulary
from penstock.system.fields import Fields, FileError

FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json")
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTS = ("additional_special_tokens", "extra_special_tokens")
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")


@dataclass(frozen=True, slots=True)
class Added:
    """A token that is found in texts as it stands; without an id it has the one that the vocabulary gives it."""

    text: str
    token_id: int | None
    is_special: bool
    flags: dict[str, bool]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings beside the vocabulary. None stands for a setting that no file has."""

    path: Path
    """tokenizer_config.json, which need not be there."""
    tokenizer_class: str | None
    model_type: str | None
    """config.json's name of the architecture."""
    roles: dict[str, str]
    """The tokens by what they are for, such as `bos_token`."""
    added: tuple[Added, ...]
    adds_bos: bool | None
    adds_eos: bool | None
    adds_space: bool | None
    is_legacy: bool
    """Whether a space goes before each text between special tokens, not the first alone."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the files that are there. Raises FileError for one that can't be understood."""
        config, special, known, model = (_fields(folder / name) for name in FILES)
        path = folder / FILES[0]
        listed = [_added(Fields(path, {"added_tokens_decoder": value}), "added_tokens_decoder", value, _id(path, key))
                  for key, value in _object(config, "added_tokens_decoder").items()]
        # What comes later holds: special_tokens_map.json, unless tokenizer_config.json has all of the tokens.
        ordered = (special, config) if "added_tokens_decoder" in config else (config, special)
        roles = {name: _added(fields, name, fields[name]) for fields in ordered for name in ROLES if name in fields}
        more = [_added(fields, name, item) for fields in (special, config) for name in LISTS if name in fields
                for item in _items(fields, name)]
        if "added_tokens_decoder" not in config:
            special_texts = {token.text for token in (*roles.values(), *more)}
            listed += [Added(text, known.integer(text), text in special_texts,
                             {"normalized": text not in special_texts}) for text in known]
        return cls(path, config.text("tokenizer_class", "") or None, model.text("model_type", "") or None,
                   {name: token.text for name, token in roles.items()},
                   (*listed, *roles.values(), *more), _switch(config, "add_bos_token"),
                   _switch(config, "add_eos_token"), _switch(config, "add_prefix_space"), config.switch("legacy", True))

    @property
    def family(self) -> str:
        """The class of transformers' slow tokenizer; empty if no file says which."""
        return (self.tokenizer_class or "").removesuffix("Fast")

    def with_roles(self, **roles: str | None) -> Self:
        """Returns the settings with tokens for roles that no file gives one for."""
        return replace(self, roles={name: token for name, token in roles.items() if token is not None} | self.roles)

    def add_to(self, vocabulary: Vocabulary) -> None:
        """Adds the tokens, first those whose ids are told. Raises FileError."""
        for token in sorted(self.added, key=lambda token: token.token_id is None):
            if token.token_id is not None or not vocabulary.is_added(token.text):
                vocabulary.add(token.text, token.token_id, token.is_special, **token.flags)

    def first(self, adds_bos: bool) -> list[str]:
        """Returns the tokens before a text, unless a file says otherwise than `adds_bos`."""
        return self._role("bos_token", adds_bos if self.adds_bos is None else self.adds_bos)

    def last(self) -> list[str]:
        """Returns the tokens behind a text."""
        return self._role("eos_token", bool(self.adds_eos))

    def _role(self, name: str, is_wanted: bool) -> list[str]:
        return [self.roles[name]] if is_wanted and name in self.roles else []


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a file. Raises FileError."""
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"expected JSON: {error}") from error
    if not isinstance(value, dict):
        raise FileError(path, "expected a JSON object")
    return value


def read_bytes(path: Path) -> bytes:
    """Returns the bytes of a file. Raises FileError, also for a pipe, which would block."""
    if path.exists() and not path.is_file():
        raise FileError(path, "expected a file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(path, f"it cannot be read: {error.strerror}") from error


def _fields(path: Path) -> Fields:
    """Returns the keys that have a value; none if there is no file."""
    values = read_json(path) if path.exists() else {}
    return Fields(path, {key: value for key, value in values.items() if value is not None})


def _object(fields: Fields, key: str) -> Mapping[str, Any]:
    if key not in fields:
        return {}
    value = fields[key]
    if not isinstance(value, dict):
        raise fields.error(key, "an object")
    return value


def _items(fields: Fields, key: str) -> Iterable[Any]:
    value = fields[key]
    if not isinstance(value, (list, dict)):
        raise fields.error(key, "a list of tokens")
    return value.values() if isinstance(value, dict) else value


def _id(path: Path, key: str) -> int:
    if not key.isdecimal() or len(key) > 9:
        raise FileError(path, f"added_tokens_decoder: expected ids of tokens as keys, found {key!r:.100}")
    return int(key)


def _added(fields: Fields, key: str, value: Any, token_id: int | None = None) -> Added:
    """Reads a token, which is a text or an object with its flags."""
    token: dict[str, Any] = value if isinstance(value, dict) else {"content": value}
    text = token.get("content")
    flags = {name: token[name] for name in ("special", *FLAGS) if token.get(name) is not None}
    if not isinstance(text, str) or not text or not all(isinstance(flag, bool) for flag in flags.values()):
        raise fields.error(key, "a token: a text, or an object with its `content` and flags that are true or false")
    return Added(text, token_id, flags.pop("special", token_id is None), flags)


def _switch(fields: Fields, key: str) -> bool | None:
    return fields.switch(key, False) if key in fields else None
