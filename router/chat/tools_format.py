"""How models write calls of tools: a table, a row for each way, and which of them a chat template teaches.

A call is a JSON object with a name and an object of arguments, in this order; rows differ in what is around it. The
texts of a row are as the models write them, and as grammars demand them; where an answer is read, white space between
their words may be any or none.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

NAME = "NAME"
"""Stands for the function's name, as a JSON string."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way to write calls: `begin` call `separator` call ... `end`."""

    name: str
    taught_by: re.Pattern[str]
    """A pattern that is found in the templates of models that call so."""
    marker: str
    """The marker between text and the calls behind it; empty if there is no text before calls."""
    begin: str
    """The text before the first call; it begins with the marker."""
    key: str
    """The key under which a call has its arguments."""
    close: str
    """The text behind the arguments."""
    separator: str
    end: str = ""
    has_short_ids: bool = False
    """Whether templates take ids of calls of 9 letters and digits only."""

    @property
    def header(self) -> str:
        """The text of a call up to the first character of its arguments."""
        return f'{{"name": {NAME}, "{self.key}": {{'


FORMATS = (
    CallFormat(
        name="hermes", taught_by=re.compile(r'<tool_call>(?:\s|\\n)*\{\\?"name'), marker="<tool_call>",
        begin="<tool_call>\n", key="arguments", close="}\n</tool_call>", separator="\n<tool_call>\n"),
    CallFormat(
        name="mistral", taught_by=re.compile(r"\[TOOL_CALLS\]\s*\["), marker="[TOOL_CALLS]",
        begin="[TOOL_CALLS] [", key="arguments", close="}", separator=", ", end="]", has_short_ids=True),
    CallFormat(
        name="llama", taught_by=re.compile(r'\{\\?"name\\?":[^{}]*\\?"parameters\\?":'), marker="",
        begin="", key="parameters", close="}", separator="; "),
)
"""The formats of Qwen and Hermes, of Mistral up to its third tokenizer, and of Llama 3."""

PLAIN = FORMATS[-1]
"""The format for models whose template teaches none of these: the prompt describes it, as TGI's does."""


@lru_cache
def native_format(template: str) -> CallFormat | None:
    """Returns the format that a template teaches, by its source; None if it is none of the known ones."""
    return next((each for each in FORMATS if each.taught_by.search(template)), None)
