"""The rules for texts that vectors or scores are made of: the prompt before each, and whether long ones are cut."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TextRules:
    """The checkpoint's rules for texts, and those of the flags.

    `prompts` stand before texts by their names, and `default_prompt` before those whose request names none. A vector
    covers the prompt's tokens, too, if it `includes_prompt`. Where the request does not say, a text of too many tokens
    is cut if it `truncates`, and a vector has its first `dimensions` alone, unless these are 0. `similarity` names how
    the checkpoint's vectors are to be compared, and `is_normalized` says whether it scales them to a length of 1.
    """

    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    includes_prompt: bool = True
    is_lower_case: bool = False
    truncates: bool = False
    dimensions: int = 0
    similarity: str = "cosine"
    is_normalized: bool = False

    @property
    def compares_normalized(self) -> bool:
        """Whether vectors are compared as ones of the length 1; no length changes a cosine."""
        return self.is_normalized or self.similarity == "cosine"
