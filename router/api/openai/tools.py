"""Which tools of a chat the answer may or must call: OpenAI's types of a choice, read into an offer."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from penstock.router.chat.tool_bodies import ToolBody, read_tools
from penstock.router.chat.tools.offer import Offer, Tool, choose, named
from penstock.router.shapes import Body

MAX_TOOLS = 128
"""The most tools that OpenAI takes."""


class NamedFunction(Body):
    name: str


class NamedTool(Body):
    """A tool by its name, such as the one that the answer must call."""

    type: Literal["function"] = "function"
    function: NamedFunction


class Allowed(Body):
    """The tools that the answer may call, or of which it must call one or more."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(max_length=MAX_TOOLS, fail_fast=True)]


class AllowedTools(Body):
    """A choice of some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: Allowed


def _kind(choice: Any) -> str | None:
    """Returns which of the forms of a `tool_choice` this is."""
    if isinstance(choice, str):
        return "text"
    kind = choice.get("type", "function") if isinstance(choice, dict) else getattr(choice, "type", None)
    return kind if isinstance(kind, str) else None


ToolChoice = Annotated[
    Annotated[str, Tag("text")] | Annotated[NamedTool, Tag("function")] | Annotated[AllowedTools, Tag("allowed_tools")],
    Discriminator(
        _kind, custom_error_type="tool_choice",
        custom_error_message="must be none, auto, required, or an object of type function or allowed_tools")]
"""As a text it is `none`, `auto`, `required`, or, as in TGI, the name of a function."""


def read_offer(tools: list[ToolBody] | None, choice: str | NamedTool | AllowedTools | None, is_parallel: bool
               ) -> Offer | None:
    """Returns the tools that the model is offered; None if it can call none. ToolError names a tool that does not
    exist."""
    return offer_of(read_tools(tools or ()), choice, is_parallel)


def offer_of(known: Sequence[Tool], choice: str | NamedTool | AllowedTools | None, is_parallel: bool) -> Offer | None:
    """Returns those of the tools that the model is offered, as `read_offer` does."""
    match choice:
        case None:
            return choose(known, "auto", is_parallel)
        case "auto" | "none" | "required" as mode:
            return choose(known, mode, is_parallel)
        case AllowedTools(allowed_tools=allowed):
            names = [tool.function.name for tool in allowed.tools]
            return choose(named(known, names), allowed.mode, is_parallel)
        case NamedTool(function=function):
            return choose(named(known, [function.name]), "required", is_parallel=False)
        case name:
            return choose(named(known, [name]), "required", is_parallel=False)
