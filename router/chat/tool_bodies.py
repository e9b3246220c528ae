"""The tools of a chat: OpenAI's types of them, read into the tools that are offered."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from penstock.router.chat.messages import check_depth
from penstock.router.chat.tools.offer import Tool
from penstock.router.errors import ValidationError
from penstock.router.shapes import Body


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


def read_tools(tools: Sequence[ToolBody]) -> list[Tool]:
    """Returns the tools of a chat. Raises ValidationError."""
    return [tool.read(f"tools[{index}]") for index, tool in enumerate(tools)]
