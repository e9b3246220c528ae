"""The files of a model's directory that concern conversations: its chat templates and its special tokens."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.router.text.encoding import TokenizerError

DEFAULT = "default"
"""The name of a template that stands alone."""


@dataclass(frozen=True, slots=True)
class ChatFiles:
    """The sources of templates by name, and the texts of tokens that they may name, such as `bos_token`."""

    templates: dict[str, str]
    special_tokens: dict[str, str]


def read(model_dir: Path, tokenizer_config_path: Path | None = None) -> ChatFiles:
    """Reads the directory's files; `tokenizer_config_path` replaces its tokenizer_config.json, and what templates it
    has go before the directory's. TokenizerError names a file that can't be understood.

    Otherwise the order is transformers': `chat_template.jinja` and `additional_chat_templates`, then
    tokenizer_config.json, then a processor's chat_template.json.
    """
    path = tokenizer_config_path or model_dir / "tokenizer_config.json"
    config = _read_json(path, is_needed=tokenizer_config_path is not None)
    told, files = _templates(config, path), _template_files(model_dir)
    templates = (told or files) if tokenizer_config_path else (files or told)
    if not templates:
        path = model_dir / "chat_template.json"
        templates = _templates(_read_json(path), path)
    return ChatFiles(templates, _special_tokens(config, model_dir))


def _templates(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Returns the templates of `chat_template`, which is a text or a list of `{"name": ..., "template": ...}`."""
    match config.get("chat_template"):
        case None:
            return {}
        case str(template):
            return {DEFAULT: template}
        case [*entries] if all(_is_named(entry) for entry in entries):
            return {entry["name"]: entry["template"] for entry in entries}
    raise TokenizerError(f"{path}: `chat_template` is neither a text nor a list of texts with names")


def _is_named(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("name", "template"))


def _template_files(model_dir: Path) -> dict[str, str]:
    named = {path.stem: path for path in sorted(model_dir.glob("additional_chat_templates/*.jinja"))}
    if (single := model_dir / "chat_template.jinja").is_file():
        named.setdefault(DEFAULT, single)
    return {name: _read_text(path) for name, path in named.items()}


def _special_tokens(config: Mapping[str, Any], model_dir: Path) -> dict[str, str]:
    """Returns every `..._token` by name. special_tokens_map.json counts if the configuration has no added tokens: then
    both were written by a release of transformers that kept the truth there.
    """
    named = dict(config)
    if "added_tokens_decoder" not in config:
        named.update(_read_json(model_dir / "special_tokens_map.json"))
    if isinstance(extra := named.get("extra_special_tokens"), dict):
        named.update(extra)
    texts = {name: token.get("content") if isinstance(token, dict) else token
             for name, token in named.items() if name.endswith("_token")}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _read_json(path: Path, is_needed: bool = False) -> dict[str, Any]:
    """Returns the object in a file; an empty one if there is no file and none is needed."""
    if not is_needed and not path.is_file():
        return {}
    try:
        value = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} holds no JSON object")
    return value


def _read_text(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise TokenizerError(f"{path} is no file")  # a pipe would be waited for
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise TokenizerError(f"cannot read {path}: {error}") from error
