"""The grammar as a client asks for it, in one form for all routes."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar that is neither compiled nor known to be valid; equal specs are equal grammars.

    `source` is a JSON schema (as JSON), a regular expression that the whole answer matches, or a grammar in Lark's
    notation or in that of GBNF.
    """

    kind: Literal["json", "regex", "lark", "gbnf", "any"]
    source: str


@dataclass(frozen=True, slots=True)
class ThinkingRule:
    """Where an answer thinks: from its beginning if `is_open`, otherwise behind the text `begin`, if it begins with
    that; and up to the text `end`. At most `budget` tokens come there, None for any number; then those of `end_ids`
    are forced, which spell `end`. `begin_ids` spell `begin`."""

    begin: str
    end: str
    begin_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    is_open: bool
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class ThinkingSpec(GrammarSpec):
    """A grammar that binds an answer behind its thinking alone. Of the kind `any`, with an empty source, it binds
    nothing there."""

    thinking: ThinkingRule
