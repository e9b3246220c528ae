"""Tools: the functions that a client offers, which of them the answer may or must call, and how that is refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.router.errors import ToolError


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask the client to call. `parameters` is a JSON schema of an object.

    Of a strict tool every keyword of the schema binds; of others, those that a grammar can't express bind nothing.
    """

    name: str
    description: str | None
    parameters: dict[str, Any]
    is_strict: bool = False

    def as_openai(self) -> dict[str, Any]:
        """Returns the tool as templates that take tools expect it."""
        described = {} if self.description is None else {"description": self.description}
        return {"type": "function", "function": {"name": self.name, **described, "parameters": self.parameters}}


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools that the model is told of. If it `must_call`, every answer is a call."""

    tools: tuple[Tool, ...]
    must_call: bool = False
    is_parallel: bool = True
    """Whether one answer may have several calls."""


Mode = Literal["none", "auto", "required"]


def choose(tools: Sequence[Tool], mode: Mode, name: str | None, is_parallel: bool) -> Offer | None:
    """Returns what is offered; None if nothing can be called. With a `name`, the answer is one call of that function.

    ToolError if no tool has that name, or if there are none although one must be called.
    """
    if name is not None:
        named = tuple(tool for tool in tools if tool.name == name)
        if not named:
            raise ToolError(f"Tool with name {name} not found")
        return Offer(named[:1], must_call=True, is_parallel=False)
    if not tools and mode == "required":
        raise ToolError("`tool_choice` is \"required\", but there are no `tools`")
    if not tools or mode == "none":
        return None
    return Offer(tuple(tools), must_call=mode == "required", is_parallel=is_parallel)
