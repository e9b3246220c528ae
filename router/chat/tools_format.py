"""How models write calls of tools: a table, a row for each way, and which of them a chat template teaches.

A call is a JSON object with a name and an object of arguments, in this order; rows differ in what is around it. The
texts of a row are as the models write them, and as grammars demand them; where an answer is read, white space between
their words may be any or none.
"""

import re
from dataclasses import dataclass

NAME = "NAME"
"""Stands for a name, as a JSON string."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way. Calls are written `begin` call `separator` call ... `end`."""

    name: str
    taught_by: re.Pattern[str]
    """Found in the templates of models that call so."""
    marker: str
    """What tells calls from text before them; empty if there is no text before calls."""
    begin: str
    """Begins with the marker."""
    key: str
    """Of the arguments."""
    close: str
    """What follows the arguments."""
    separator: str
    end: str = ""
    has_short_ids: bool = False
    """Whether templates take ids of calls of 9 letters and digits only."""

    @property
    def header(self) -> str:
        """A call up to the first character of its arguments."""
        return f'{{"name": {NAME}, "{self.key}": {{'


FORMATS = (
    CallFormat(
        name="hermes", taught_by=re.compile(r'<tool_call>(?:\s|\\n)*\{\\?"name'), marker="<tool_call>",
        begin="<tool_call>\n", key="arguments", close="}\n</tool_call>", separator="\n<tool_call>\n"),
    CallFormat(
        name="mistral", taught_by=re.compile(r"\[TOOL_CALLS\]\s*\["), marker="[TOOL_CALLS]",
        begin="[TOOL_CALLS] [", key="arguments", close="}", separator=", ", end="]", has_short_ids=True),
    CallFormat(
        name="llama", taught_by=re.compile(r'\{\\?"name\\?":[^}]*\\?"parameters\\?":'), marker="",
        begin="", key="parameters", close="}", separator="; "),
)
"""Qwen's and Hermes's, Mistral's up to its third tokenizer, Llama 3's."""

PLAIN = FORMATS[-1]
"""For models whose template teaches none of these: the prompt tells them, as TGI's does."""


def native_format(template: str) -> CallFormat | None:
    """What a template, by its source, teaches a model; None if nothing known."""
    return next((form for form in FORMATS if form.taught_by.search(template)), None)
