"""OpenAI's old form of tools: `functions`, of which an answer calls one, and `function_call`, which chooses it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator

from penstock.router.api.openai.tools import MAX_TOOLS, NamedFunction, NamedTool
from penstock.router.chat.tool_bodies import Function, ToolBody


class FunctionBody(Function):
    """A function that the model may call."""

    @field_validator("parameters", "arguments")
    @classmethod
    def _check(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None and schema.get("type", "object") != "object":
            raise ValueError("must be a schema of type \"object\"")
        return schema

    def as_tool(self) -> ToolBody:
        """Returns the function as tools are offered today."""
        return ToolBody.model_validate({"type": "function", "function": self.model_dump(exclude_none=True)})


def _kind(choice: Any) -> str | None:
    return "text" if isinstance(choice, str) else "named" if isinstance(choice, dict | NamedFunction) else None


Functions = Annotated[list[FunctionBody], Field(max_length=MAX_TOOLS, fail_fast=True)]
FunctionChoice = Annotated[
    Annotated[Literal["none", "auto"], Tag("text")] | Annotated[NamedFunction, Tag("named")],
    Discriminator(_kind, custom_error_type="function_call",
                  custom_error_message="must be none, auto, or an object with the name of a function")]


def as_tool_choice(choice: str | NamedFunction | None) -> str | NamedTool | None:
    """Returns a `function_call` of a request as a choice of tools."""
    return NamedTool(function=choice) if isinstance(choice, NamedFunction) else choice


def in_old_form(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a choice of a reply, or of a chunk, with its first call as `function_call`; there can't be others."""
    place = "message" if "message" in choice else "delta"
    told = dict(choice[place])
    for call in told.pop("tool_calls", None) or ():
        if call.get("index", 0) == 0:
            told.setdefault("function_call", call["function"])
    reason = choice["finish_reason"]
    return {**choice, place: told, "finish_reason": "function_call" if reason == "tool_calls" else reason}
