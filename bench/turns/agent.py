"""A scripted agent: a conversation in which the model calls one of ten tools in each turn, in the words of each API."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.bench.load.prompts import COMMON_WORDS

TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ messages[0].content }}

You may call these tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Write <tool_call>
{"name": <name>, "arguments": <object>}
</tool_call> to call one.<|im_end|>
{% endif %}
{%- for m in (messages[1:] if tools else messages) %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A chat template in Hermes' form, which renders a call as a model writes it."""
_NAMES = ("read_file", "write_file", "list_files", "search_text", "run_command", "apply_patch", "fetch_page",
          "ask_user", "plan_steps", "run_tests")
MAX_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a tool by the model, and its result."""

    name: str
    arguments: dict[str, Any]
    result: str

    @property
    def text(self) -> str:
        """The call as the model writes it."""
        call = f'{{"name": "{self.name}", "arguments": {json.dumps(self.arguments)}}}'
        return f"<tool_call>\n{call}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent's instructions, its tools with a name, a description and a schema each, its task and its steps."""

    system: str
    tools: list[tuple[str, str, dict[str, Any]]]
    task: str
    steps: list[Step]

    @property
    def answers(self) -> dict[str, str]:
        """The model's answers by what stands last in the prompt."""
        keys = [self.task, *(step.result for step in self.steps)]
        texts = [*(step.text for step in self.steps), "All is done."]
        return dict(zip(keys, texts, strict=True))


def words(draw: random.Random, number: int) -> str:
    """Returns so many common words, which tell nothing."""
    return "".join(draw.choices(COMMON_WORDS, k=number)).strip()


def make_agent(num_turns: int, seed: int = 1, num_system_words: int = 2500, num_tools: int = len(_NAMES)) -> Agent:
    """Returns an agent whose task takes so many turns."""
    draw = random.Random(seed)
    tools = [(name, words(draw, 60), {
        "type": "object", "properties": {"path": {"type": "string", "description": words(draw, 12)},
                                         "limit": {"type": "integer", "description": words(draw, 12)}},
        "required": ["path"]}) for name in _NAMES[:num_tools]]
    steps = [Step(draw.choice(_NAMES), {"path": f"src/{words(draw, 1)}_{number}.py", "limit": number},
                  f"Result {number}: {words(draw, draw.randint(20, 60))}") for number in range(1, num_turns)]
    return Agent(words(draw, num_system_words), tools, f"The task: {words(draw, 30)}", steps)


def chat_body(agent: Agent, num_steps: int) -> dict[str, Any]:
    """Returns the body for `/v1/chat/completions` after so many steps."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": agent.system}, {"role": "user", "content": agent.task}]
    for number, step in enumerate(agent.steps[:num_steps]):
        function = {"name": step.name, "arguments": json.dumps(step.arguments)}
        messages += [
            {"role": "assistant", "content": "",
             "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": step.result}]
    tools = [{"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
             for name, description, schema in agent.tools]
    return {"model": "scripted", "messages": messages, "max_tokens": MAX_TOKENS, **({"tools": tools} if tools else {})}


def responses_body(agent: Agent, num_steps: int) -> dict[str, Any]:
    """Returns the body for `/v1/responses` after so many steps."""
    items: list[dict[str, Any]] = [{"role": "user", "content": agent.task}]
    for number, step in enumerate(agent.steps[:num_steps]):
        items += [{"type": "function_call", "call_id": f"call_{number}", "name": step.name,
                   "arguments": json.dumps(step.arguments)},
                  {"type": "function_call_output", "call_id": f"call_{number}", "output": step.result}]
    tools = [{"type": "function", "name": name, "description": description, "parameters": schema, "strict": None}
             for name, description, schema in agent.tools]
    return {"model": "scripted", "instructions": agent.system, "input": items, "tools": tools, "store": False,
            "max_output_tokens": MAX_TOKENS}


def messages_body(agent: Agent, num_steps: int) -> dict[str, Any]:
    """Returns the body for `/v1/messages` after so many steps."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": agent.task}]
    for number, step in enumerate(agent.steps[:num_steps]):
        messages += [
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": f"call_{number}", "name": step.name, "input": step.arguments}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": f"call_{number}", "content": step.result}]}]
    tools = [{"name": name, "description": description, "input_schema": schema}
             for name, description, schema in agent.tools]
    return {"model": "scripted", "system": agent.system, "messages": messages, "tools": tools,
            "max_tokens": MAX_TOKENS}


def _openai_usage(usage: dict[str, Any], kind: str) -> tuple[int, int]:
    return usage[f"{kind}_tokens"], usage[f"{kind}_tokens_details"]["cached_tokens"]


def _anthropic_usage(usage: dict[str, Any]) -> tuple[int, int]:
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + (usage.get("cache_creation_input_tokens") or 0) + cached, cached


@dataclass(frozen=True, slots=True)
class Api:
    """An API of conversations. `body` writes a request, and `usage` reads how many tokens the prompt had, and how many
    of them came from the cache."""

    path: str
    body: Callable[[Agent, int], dict[str, Any]]
    usage: Callable[[dict[str, Any]], tuple[int, int]]


APIS = {
    "chat": Api("/v1/chat/completions", chat_body, lambda usage: _openai_usage(usage, "prompt")),
    "responses": Api("/v1/responses", responses_body, lambda usage: _openai_usage(usage, "input")),
    "messages": Api("/v1/messages", messages_body, _anthropic_usage),
}
