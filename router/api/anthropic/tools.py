"""Anthropic's tools, and its types of a choice among them, read into an offer."""

from collections.abc import Collection, Sequence
from typing import Any

from penstock.router.api.anthropic import bodies
from penstock.router.api.anthropic.bodies import ToolChoice
from penstock.router.chat.messages import check_depth
from penstock.router.chat.tools.offer import Offer, Tool, choose, named
from penstock.router.errors import ValidationError

CUSTOM = "custom"
"""The type of tools that the client runs, and describes by itself."""
MAX_NAME = 128


def read_offer(
    tools: Sequence[bodies.Tool] | None, choice: ToolChoice | None, referred: Collection[str]
) -> Offer | None:
    """Returns the tools that the model is offered; None if it can call none. Tools of another type than CUSTOM are left
    out, and those that are to be loaded later, unless they are `referred` to. Raises ValidationError, and ToolError for
    a tool that does not exist."""
    known = [_read(tool, f"tools[{index}]") for index, tool in enumerate(tools or ())
             if tool.type in (None, CUSTOM) and (not tool.defer_loading or tool.name in referred)]
    if choice is None:
        return choose(known, "auto", is_parallel=True)
    is_parallel = not choice.disable_parallel_tool_use
    match choice.type:
        case "any":
            if not known:
                raise ValidationError("`tool_choice` of type any needs `tools` of type custom. Given: none")
            return choose(known, "required", is_parallel)
        case "tool":
            if choice.name is None:
                raise ValidationError("`tool_choice` of type tool must have `name`")
            return choose(named(known, [choice.name]), "required", is_parallel)
        case "auto" | "none" as mode:
            return choose(known, mode, is_parallel)


def _read(tool: bodies.Tool, where: str) -> Tool:
    """Returns a tool; templates are told of it as if it had come by OpenAI's chats, so that prompts are the same."""
    if not tool.name or len(tool.name) > MAX_NAME:
        raise ValidationError(f"`{where}.name` must have 1 to {MAX_NAME} characters. Given: {len(tool.name or '')}")
    if tool.input_schema is None:
        raise ValidationError(f"`{where}` must have `input_schema`")
    schema = tool.input_schema
    if schema.get("type", "object") != "object":
        raise ValidationError(f"`{where}.input_schema` must be a schema of type \"object\"")
    check_depth(schema, f"{where}.input_schema")
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": schema,
                                "strict": tool.strict}
    told = {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}
    return Tool(tool.name, tool.description, schema, bool(tool.strict), told)
