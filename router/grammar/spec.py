"""The grammar as a client asks for it, in one form for all routes."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar that is neither compiled nor known to be valid; equal specs are equal grammars.

    `source` is a JSON schema (as JSON), a regular expression that the whole answer matches, or a grammar in Lark's
    notation or in that of GBNF.
    """

    kind: Literal["json", "regex", "lark", "gbnf"]
    source: str
