"""A grammar as a client writes it, in one form for all routes."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """Not compiled yet, nor known to be valid. `source` is a JSON schema (as JSON), a regular expression that the whole
    answer matches, or a grammar in Lark's notation; equal specs are equal grammars."""

    kind: Literal["json", "regex", "lark"]
    source: str
