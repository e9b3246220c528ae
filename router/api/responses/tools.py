"""The tools of a response: which of them are served, and which the answer may or must call."""

from collections.abc import Sequence
from typing import Any

from penstock.router.api.openai.tools import MAX_TOOLS, Allowed, AllowedTools, NamedFunction, NamedTool, read_offer
from penstock.router.api.responses.bodies import AskingBody, ChosenTool, ToolItem
from penstock.router.chat.tool_bodies import ToolBody
from penstock.router.chat.tools import Offer
from penstock.router.errors import ToolError, ValidationError

SERVED = ("function", "custom")
"""The types of tools that clients run themselves. Others are run by OpenAI's servers, or by no server at all."""
_MODES = ("none", "auto", "required")


def served_tools(tools: Sequence[ToolItem] | None) -> list[ToolItem]:
    """Returns the tools that can be served. Agents also name tools of other servers, which they can do without; if
    there are no others, one of them is refused by its name. Raises ValidationError."""
    served = [tool for tool in tools or () if tool.type in SERVED]
    if tools and not served:
        raise _not_served("tools[0].type", tools[0].type)
    if len(served) > MAX_TOOLS:
        raise ValidationError(f"`tools` must have at most {MAX_TOOLS} functions and custom tools. Given: {len(served)}")
    for index, tool in enumerate(tools or ()):
        if tool.type in SERVED and tool.name is None:
            raise ValidationError(f"`tools[{index}]` must have a `name`", "missing_required_parameter")
    return served


def offer_of(body: AskingBody) -> Offer | None:
    """Returns the tools that the model is offered; None if it can call none. Raises ValidationError, and ToolError for
    a tool that is not there."""
    tools = [ToolBody.model_validate(_nested(tool)) for tool in served_tools(body.tools)]
    return read_offer(tools, _choice(body.tool_choice), body.parallel_tool_calls is not False)


def _nested(tool: ToolItem) -> dict[str, Any]:
    """Returns a tool as chats have it."""
    told = {name: getattr(tool, name) for name in ("name", "description", "parameters", "strict")}
    return {"type": "function", "function": {name: value for name, value in told.items() if value is not None}}


def _choice(choice: str | ChosenTool | None) -> str | NamedTool | AllowedTools | None:
    if choice is None or isinstance(choice, str):
        if choice not in (None, *_MODES):
            raise ToolError(f"`tool_choice` must be {', '.join(_MODES)}, or an object. Given: \"{choice:.40}\"",
                            "tool_choice")
        return choice
    if choice.type != "allowed_tools":
        return _named(choice, "tool_choice")
    if choice.mode is None or choice.tools is None:
        raise ToolError("`tool_choice` must have `mode` and `tools`, for it is of type allowed_tools", "tool_choice")
    served = [tool for tool in choice.tools if tool.type in SERVED]
    if choice.tools and not served:
        raise _not_served("tool_choice.tools[0].type", choice.tools[0].type)
    names = [_named(tool, "tool_choice.tools") for tool in served]
    return AllowedTools(type="allowed_tools", allowed_tools=Allowed(mode=choice.mode, tools=names))


def _named(choice: ChosenTool, where: str) -> NamedTool:
    if choice.type not in SERVED:
        raise _not_served(f"{where}.type", choice.type)
    if choice.name is None:
        raise ValidationError(f"`{where}` must have a `name`", "missing_required_parameter")
    return NamedTool(function=NamedFunction(name=choice.name))


def _not_served(where: str, kind: str) -> ValidationError:
    return ValidationError(f"`{where}` must be {' or '.join(SERVED)}: this server runs no tools of its own. "
                           f"Given: \"{kind:.40}\"", "unsupported_parameter")
