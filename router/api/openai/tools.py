"""The tools of a chat, and which of them the answer may or must call: OpenAI's types of them, read into an offer."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, PrivateAttr, Tag, model_validator

from penstock.router.api.openai.messages import check_depth
from penstock.router.chat.tools import Offer, Tool, choose, named
from penstock.router.errors import ValidationError
from penstock.router.generation.parameters import Body

MAX_TOOLS = 128
"""The most tools that OpenAI takes."""


class Function(Body):
    """The function of a tool. TGI's clients may call its parameters `arguments`."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    arguments: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(Body):
    """A function that the model may call. Chat templates are told of it as it was written, all of it."""

    type: Literal["function"] = "function"
    function: Function
    _written: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, value: Any, handler: Callable[[Any], Self]) -> Self:
        tool = handler(value)
        tool._written = value
        return tool

    def read(self, where: str) -> Tool:
        """Returns the tool; a function whose parameters are left out takes none."""
        function = self.function
        schema = function.arguments if function.parameters is None else function.parameters
        if schema is None:
            schema = {"type": "object", "properties": {}}
        if schema.get("type", "object") != "object":
            raise ValidationError(f"`{where}.function.parameters` must be a schema of type \"object\"")
        written = {**_present(self._written["function"]), "parameters": schema}
        written.pop("arguments", None)
        kind = {} if "type" in self._written else {"type": self.type}
        told = {**kind, **_present(self._written), "function": written}
        check_depth(told, where)
        return Tool(function.name, function.description, schema, bool(function.strict), told)


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


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
    known = [tool.read(f"tools[{index}]") for index, tool in enumerate(tools or ())]
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
