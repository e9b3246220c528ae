"""The forms that a prompt may have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NotRequired, TypedDict, cast


class TextPrompt(TypedDict):
    """A text to be tokenised. What is computed of it is shared only with prompts of the same salt."""

    prompt: str
    cache_salt: NotRequired[str]


class TokensPrompt(TypedDict):
    """A prompt that is tokenised already."""

    prompt_token_ids: Sequence[int]
    cache_salt: NotRequired[str]


PromptType = str | Sequence[int] | TextPrompt | TokensPrompt


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in one form, or its ids with the text that they are of. A chat's text has its special tokens already."""

    text: str | None
    token_ids: tuple[int, ...] | None = None
    add_special_tokens: bool = True
    cache_salt: str | None = None

    @property
    def inputs(self) -> str | tuple[int, ...]:
        """The ids, or the text if there are none."""
        return (self.text or "") if self.token_ids is None else self.token_ids


def read_all(prompts: PromptType | Sequence[PromptType]) -> list[Prompt]:
    """Returns the prompts of a call, which may be a single one. A list of ids is one prompt."""
    if isinstance(prompts, str | Mapping) or _are_ids(prompts):
        return [read(cast(PromptType, prompts))]
    if not isinstance(prompts, Sequence):
        raise TypeError(f"prompts must be a text, token ids, or a list of prompts. Given: {type(prompts).__name__}")
    return [read(cast(PromptType, each)) for each in prompts]


def read(prompt: PromptType) -> Prompt:
    """Returns a prompt in one form. Raises TypeError or ValueError for a value that is no prompt."""
    if isinstance(prompt, str):
        return Prompt(prompt)
    if isinstance(prompt, Mapping):
        return _read_mapping(prompt)
    if _are_ids(prompt):
        return _of_ids(prompt)
    raise TypeError("a prompt must be a text, a list of at least one token id, or a dict with `prompt` or "
                    f"`prompt_token_ids`. Given: {type(prompt).__name__}")


def _read_mapping(prompt: Mapping[str, Any]) -> Prompt:
    given = {name: value for name, value in prompt.items() if value is not None}
    if unknown := given.keys() - {"prompt", "prompt_token_ids", "cache_salt"}:
        raise ValueError(f"`{min(unknown)}` of a prompt is not taken: it may have `prompt` or `prompt_token_ids`, and "
                         "`cache_salt`")
    salt = given.get("cache_salt")
    if not isinstance(given.get("prompt", ""), str):
        raise TypeError(f"`prompt` of a prompt must be a text. Given: {type(given['prompt']).__name__}")
    if "prompt_token_ids" in given:
        return replace(_of_ids(given["prompt_token_ids"]), text=given.get("prompt"), cache_salt=salt)
    if "prompt" not in given:
        raise ValueError("a prompt must have a text as `prompt`, or `prompt_token_ids`")
    return Prompt(given["prompt"], cache_salt=salt)


def _of_ids(ids: object) -> Prompt:
    if not _are_ids(ids):
        raise TypeError("`prompt_token_ids` must be a list of token ids, at least one")
    return Prompt(None, tuple(cast(Sequence[int], ids)))


def _are_ids(value: object) -> bool:
    return (isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) > 0
            and all(type(each) is int and each >= 0 for each in value))
