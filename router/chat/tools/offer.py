"""Tools: the functions that a client offers, which of them the answer may or must call, and how that is refused."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.router.errors import ToolError
from penstock.router.grammar.spec import GrammarSpec


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask the client to call. `parameters` is a JSON schema of an object.

    Of a strict tool every keyword of the schema binds, or the grammar; of others, those that a grammar can't express in
    the model's form of calls bind nothing.
    """

    name: str
    description: str | None
    parameters: dict[str, Any]
    is_strict: bool = False
    told: dict[str, Any] = field(default_factory=dict)
    """The whole tool, as templates that take tools are told of it."""
    is_custom: bool = False
    """Whether a call has a text of any form instead of arguments. Its parameters are one text then, `input`, for models
    that write a call of it as of a function."""
    grammar: GrammarSpec | None = None
    """The form of a custom tool's text."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools that the model is told of. If it `must_call`, every answer is a call."""

    tools: tuple[Tool, ...]
    must_call: bool = False
    is_parallel: bool = True
    """Whether one answer may have several calls."""


Mode = Literal["none", "auto", "required"]


def named(tools: Sequence[Tool], names: Collection[str]) -> list[Tool]:
    """Returns the tools of these names. ToolError if there is none of a name."""
    found = {tool.name: tool for tool in reversed(tools)}
    if missing := [name for name in names if name not in found]:
        raise ToolError(f"Tool with name {missing[0]} not found", "tool_choice")
    return [found[name] for name in dict.fromkeys(names)]


def choose(tools: Sequence[Tool], mode: Mode, is_parallel: bool) -> Offer | None:
    """Returns the offered tools; None if none can be called. Raises ToolError if there are no tools although one must
    be called."""
    if not tools and mode == "required":
        raise ToolError("`tool_choice` is \"required\", but there are no `tools`", "tool_choice")
    if not tools or mode == "none":
        return None
    return Offer(tuple(tools), must_call=mode == "required", is_parallel=is_parallel)
