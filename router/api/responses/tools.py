"""The tools of a response: which of them are served, and which the answer may or must call."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from penstock.router.api.openai import tools as chat_tools
from penstock.router.api.openai.tools import MAX_TOOLS, Allowed, AllowedTools, NamedFunction, NamedTool
from penstock.router.api.responses.bodies import AskingBody, ChosenTool, ToolItem
from penstock.router.api.responses.input_items import full_name
from penstock.router.api.responses.output_items import CalledAs
from penstock.router.chat.messages import check_depth
from penstock.router.chat.tool_bodies import ToolBody
from penstock.router.chat.tools.offer import Offer, Tool
from penstock.router.errors import ToolError, ValidationError
from penstock.router.grammar.forms import parse_guided
from penstock.router.grammar.spec import GrammarSpec

SERVED = ("function", "custom")
"""The types of tools that clients run themselves. Others are run by OpenAI's servers, or by no server at all."""
NAMESPACE = "namespace"
"""The type of several tools with a name before theirs."""
MAX_NAME = 128
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters of a custom tool, for models that write a call of it as of a function."""
_MODES = ("none", "auto", "required")


class _Placed(NamedTuple):
    """A tool that is served: where the client has written it, and the namespace in which it is."""

    where: str
    namespace: str | None
    tool: ToolItem

    @property
    def name(self) -> str:
        """The name by which the model knows it."""
        return full_name(self.namespace, str(self.tool.name))


def _placed(tools: Sequence[ToolItem] | None) -> Iterator[_Placed]:
    """Yields the tools that are served, those in namespaces, too."""
    for index, tool in enumerate(tools or ()):
        if tool.type in SERVED:
            yield _Placed(f"tools[{index}]", None, tool)
        elif tool.type == NAMESPACE and tool.name is not None:
            for number, inner in enumerate(tool.tools or ()):
                if inner.type in SERVED:
                    yield _Placed(f"tools[{index}].tools[{number}]", tool.name, inner)


def called_as(tools: Sequence[ToolItem] | None) -> dict[str, CalledAs]:
    """Returns the tools that are served by the names that the model has for them."""
    return {placed.name: CalledAs(str(placed.tool.name), placed.namespace, placed.tool.type == "custom")
            for placed in _placed(tools)}


def told_again(tools: Sequence[ToolItem] | None, types: Sequence[str] = (*SERVED, NAMESPACE)) -> list[dict[str, Any]]:
    """Returns the tools that are served as the client has written them."""
    return [{**tool.model_dump(exclude_unset=True), **({"tools": told_again(tool.tools, SERVED)} if tool.tools else {})}
            for tool in tools or () if tool.type in types]


def offer_of(body: AskingBody) -> Offer | None:
    """Returns the tools that the model is offered; None if it can call none. Agents also name tools of other servers,
    which they can do without; if there are no others, one of them is refused by its name. Raises ValidationError, and
    ToolError for a tool that is not there."""
    served = [*_placed(body.tools)]
    if body.tools and not served:
        raise _not_served("tools[0].type", body.tools[0].type)
    if len(served) > MAX_TOOLS:
        raise ValidationError(f"`tools` must have at most {MAX_TOOLS} functions and custom tools. Given: {len(served)}")
    choice = _choice(body.tool_choice)
    must_call = choice == "required" or isinstance(choice, NamedTool)
    return chat_tools.offer_of([_read(*placed, must_call) for placed in served], choice,
                               body.parallel_tool_calls is not False)


def _read(where: str, namespace: str | None, tool: ToolItem, must_call: bool) -> Tool:
    """Returns a tool as chats have it. The grammar of a custom tool binds calls of it where the model's form of calls
    has room for it; if it `must_call`, one that has none is refused."""
    if tool.name is None:
        raise ValidationError(f"`{where}` must have a `name`", "missing_required_parameter")
    name = full_name(namespace, tool.name)
    if len(name) > MAX_NAME:
        raise ValidationError(f"`{where}` must have at most {MAX_NAME} characters in its name and its namespace's. "
                              f"Given: {len(name)}")
    if tool.type == "custom":
        told = {"name": name, "description": _description(tool), "parameters": _INPUT}
        return Tool(name, tool.description, _INPUT, must_call, {"type": "function", "function": told},
                    is_custom=True, grammar=_grammar(tool, where))
    told = {"name": name, **{field: getattr(tool, field) for field in ("description", "parameters", "strict")}}
    present = {field: value for field, value in told.items() if value is not None}
    check_depth(present, where)
    if (tool.parameters or {}).get("type", "object") != "object":
        raise ValidationError(f"`{where}.parameters` must be a schema of type \"object\"")
    return ToolBody.model_validate({"type": "function", "function": present}).read(where)


def _description(tool: ToolItem) -> str:
    """Returns the description of a custom tool for the model, with the form that its text must have."""
    form = tool.format
    rule = f"The input follows this grammar ({form.syntax}):\n{form.definition}" if form and form.definition else ""
    return "\n".join(filter(None, (tool.description, rule)))


def _grammar(tool: ToolItem, where: str) -> GrammarSpec | None:
    form = tool.format
    if form is None or form.type == "text":
        return None
    if form.syntax is None or form.definition is None:
        raise ValidationError(f"`{where}.format` must have `syntax` and `definition`", "missing_required_parameter")
    try:
        return parse_guided({"guided_grammar" if form.syntax == "lark" else "guided_regex": form.definition})
    except ValidationError as error:
        error.param = f"{where}.format"
        raise


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
    return NamedTool(function=NamedFunction(name=full_name(choice.namespace, choice.name)))


def _not_served(where: str, kind: str) -> ValidationError:
    return ValidationError(f"`{where}` must be {' or '.join(SERVED)}: this server runs no tools of its own. "
                           f"Given: \"{kind:.40}\"", "unsupported_parameter")
