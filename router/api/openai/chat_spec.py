"""What a body of a chat asks for: its prompt, and the format in which tools may be called."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import orjson

from penstock.router.api.openai.bodies import ChatBody, Function, Message, Part, ToolCall
from penstock.router.api.openai.parameters import max_tokens, parameters
from penstock.router.chat import tools_prompt
from penstock.router.chat.template import ChatTemplate
from penstock.router.chat.tools import Offer, Tool, choose
from penstock.router.chat.tools_format import PLAIN, CallFormat, native_format
from penstock.router.chat.tools_grammar import tools_grammar
from penstock.router.errors import TemplateError, ToolError, ValidationError
from penstock.router.generation.other_fields import REFUSED_IN_CHATS, refuse_unsupported
from penstock.router.generation.service import Service
from penstock.router.generation.spec import GenerationSpec
from penstock.router.grammar.compiler import MAX_SOURCE
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec

_OURS = {"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"}
"""Variables of templates that fields of the body set."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt, the tools that it offers, and how calls of them are written; both None if there can't be any calls."""

    prompt: str
    offer: Offer | None
    call_format: CallFormat | None


async def parse(body: ChatBody, service: Service) -> tuple[GenerationSpec, CallFormat | None]:
    """Returns what the body asks for, and how its answer calls tools. A RouterError names the field that is refused."""
    refuse_unsupported(body.model_extra, REFUSED_IN_CHATS)
    if body.n == 0:
        raise ValidationError("`n` must be > 0. Given: 0")
    if body.top_logprobs and not body.logprobs:
        raise ValidationError("`top_logprobs` needs `logprobs` to be true")
    common = parameters(body, max_tokens(body), top_n_tokens=body.top_logprobs)
    if common.grammar is not None and body.tools is not None:
        raise ToolError("Grammar and tools are mutually exclusive")
    conversation = await converse(body, service)
    marker_id = service.tokenizer.special_id(conversation.call_format.marker) if conversation.call_format else None
    if (grammar := await _grammar(conversation, marker_id, service)) is not None:
        common = common.model_copy(update={"grammar": grammar})
    return GenerationSpec(
        inputs=conversation.prompt,
        parameters=common,
        n=1 if body.n is None else body.n,
        is_greedy=body.temperature == 0,
        keep_stop=False,
        add_special_tokens=bool(body.add_special_tokens),
        has_openai_penalties=True,
        raw_logprobs=True,
        shown_ids=frozenset() if marker_id is None else frozenset({marker_id}),
        adapter=service.adapters.named(body.model)), conversation.call_format


async def _grammar(conversation: Conversation, marker_id: int | None, service: Service) -> GrammarSpec | None:
    """Returns the grammar of calls. An answer that need not call has none where grammars are off or it would be too
    large."""
    call_format, offer = conversation.call_format, conversation.offer
    if call_format is None or offer is None or (service.grammars is None and not offer.must_call):
        return None
    try:
        grammar = await asyncio.to_thread(tools_grammar, call_format, offer, marker_id)
    except GrammarError as error:
        raise ValidationError(f"grammar is not valid: {error}") from error
    return grammar if offer.must_call or len(grammar.source) <= MAX_SOURCE else None


async def converse(body: ChatBody, service: Service) -> Conversation:
    """Writes the prompt by the model's template. If that knows nothing of tools, a message describes them, as in
    TGI."""
    template = service.template
    if template is None:
        raise TemplateError("template not found")
    offer = _read_offer(body)
    messages = [_read_message(message, f"messages[{index}]") for index, message in enumerate(body.messages)]
    call_format = native_format(template.source(body.chat_template)) if template.takes_tools else None
    if not template.takes_tools:
        messages = [tools_prompt.calls_as_text(message) for message in messages]
    if offer is not None and call_format is None:
        described = "" if template.takes_tools else tools_prompt.describe(offer.tools) + "\n"
        messages = tools_prompt.add_to_messages(messages, described + (body.tool_prompt or tools_prompt.PROMPT))
    elif offer is not None and body.tool_prompt:
        messages = tools_prompt.add_to_messages(messages, body.tool_prompt)
    tools = [tool.as_openai() for tool in offer.tools] if offer is not None and template.takes_tools else None
    began_at = time.monotonic()
    try:
        prompt = await _render(body, template, messages, tools)
    finally:
        service.metrics.rendered(time.monotonic() - began_at)
    return Conversation(prompt, offer, None if offer is None else call_format or PLAIN)


async def _render(
    body: ChatBody, template: ChatTemplate, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> str:
    """Renders the prompt; as in TGI, a last message of the assistant is continued unless the body says otherwise."""
    variables = body.chat_template_kwargs or {}
    if taken := _OURS & variables.keys():
        raise ValidationError(f"`chat_template_kwargs` cannot have `{min(taken)}`, which is a field of its own")
    last = messages[-1]
    is_begun = last["role"] == "assistant" and bool(last["content"]) and "tool_calls" not in last
    is_continued = body.continue_final_message
    if is_continued is None:
        is_continued = is_begun and not body.add_generation_prompt
    if is_continued and body.add_generation_prompt:
        raise ValidationError("`add_generation_prompt` and `continue_final_message` cannot both be true")
    return await template.render_async(
        messages, tools=tools, add_generation_prompt=not is_continued and body.add_generation_prompt is not False,
        continue_final_message=is_continued, chat_template=body.chat_template, **variables)


def _read_message(message: Message, where: str) -> dict[str, Any]:
    """Returns the message as templates expect it: its content as a text, arguments of calls as objects."""
    if message.content is None and not message.tool_calls:
        raise ValidationError(f"`{where}` must have `content` or `tool_calls`")
    content = _read_content(message.content or "", where)
    read: dict[str, Any] = {"role": message.role, "content": content, **(message.model_extra or {})}
    if message.tool_calls:
        read["tool_calls"] = [
            _read_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(message.tool_calls)]
    return read


def _read_content(content: str | list[Part], where: str) -> str:
    if isinstance(content, str):
        return content
    for number, part in enumerate(content):
        if part.type != "text" or part.text is None:
            raise ValidationError(f"`{where}.content[{number}]` must be of type \"text\", this model takes nothing "
                                  f"else. Given: \"{part.type:.40}\"")
    return "".join(part.text for part in content if part.text is not None)


def _read_call(call: ToolCall, where: str) -> dict[str, Any]:
    arguments: object = call.function.arguments or {}
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            arguments = None
    if not isinstance(arguments, dict):
        raise ValidationError(f"`{where}.function.arguments` must be a JSON object")
    _check_depth(arguments, f"{where}.function.arguments")
    return {"id": None if call.id is None else str(call.id), "type": "function",
            "function": {"name": call.function.name, "arguments": arguments}}


def _read_offer(body: ChatBody) -> Offer | None:
    tools = [_read_tool(tool.function, f"tools[{index}].function") for index, tool in enumerate(body.tools or ())]
    is_parallel = body.parallel_tool_calls is not False
    match body.tool_choice:
        case None | "auto":
            return choose(tools, "auto", None, is_parallel)
        case "none" | "required" as mode:
            return choose(tools, mode, None, is_parallel)
        case str() as name:
            return choose(tools, "required", name, is_parallel)
        case named:
            return choose(tools, "required", named.function.name, is_parallel)


def _read_tool(function: Function, where: str) -> Tool:
    """Returns the tool; a function whose parameters are left out takes none."""
    schema = function.arguments if function.parameters is None else function.parameters
    if schema is None:
        schema = {"type": "object", "properties": {}}
    if schema.get("type", "object") != "object":
        raise ValidationError(f"`{where}.parameters` must be a schema of type \"object\"")
    _check_depth(schema, f"{where}.parameters")
    return Tool(function.name, function.description, schema, bool(function.strict))


def _check_depth(value: object, where: str) -> None:
    """Refuses what is too deep for orjson, for slower writers of JSON would exhaust Python's stack on it."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise ValidationError(f"`{where}` is nested too deeply") from error
