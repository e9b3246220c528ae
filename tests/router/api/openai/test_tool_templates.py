"""Chat templates that handle tools in the forms of known families: rendered as transformers renders them, without a
word of ours. The templates are of our own making."""

from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.openai.chat_spec import dialogue_of
from penstock.router.chat.template import ChatTemplate
from penstock.router.chat.tools import prompt as tools_prompt
from penstock.router.metrics.metrics import Metrics
from tests.fakes import LIMITS
from tests.tiny_models import DEMO_MODEL

METRICS = Metrics(LIMITS)
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {
        "name": "weather", "description": "Of a city, <b>now</b>.", "strict": True, "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "description": "Where"}, "days": {"type": "integer"},
                "unit": {"type": "string", "enum": ["C", "F"]}}}, "returns": {"type": "string"}}},
    {"function": {"parameters": {"type": "object", "properties": {}}, "name": "time"}, "type": "function"},
]
ARGUMENTS = ({"city": "Köln", "days": 2}, '{"city": "Köln", "days": 2}')
"""As an object, as transformers' documentation wants them, and as JSON, as OpenAI's clients send them."""

TEMPLATES = {
    "glm": """[gMASK]<sop>{% if tools %}<|system|>
# Tools
<tools>
{% for tool in tools %}{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}</tools>
{% endif %}{% for m in messages %}{% if m.role == 'user' %}<|user|>
{{ m.content }}{% elif m.role == 'assistant' %}<|assistant|>{% if m.content %}
{{ m.content.strip() }}{% endif %}{% for tc in m.tool_calls or [] %}{% set call = tc.function or tc %}
<tool_call>{{ call.name }}
{% for k, v in call.arguments.items() %}<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}</tool_call>{% endfor %}{% elif m.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role
 != 'tool' %}<|observation|>{% endif %}
<tool_response>
{{ m.content }}
</tool_response>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}""",

    "granite": """{% set available = tools or [] %}{%- if available %}
{{- '<|start_of_role|>available_tools<|end_of_role|>' }}{{- available | tojson(indent=4) }}{{- '<|end_of_text|>\\n' }}
{%- endif %}{% for m in messages %}<|start_of_role|>{{ 'tool_response' if m['role'] == 'tool' else m['role'] }}
{{- '<|end_of_role|>' + (m['content'] or '') }}{%- if m.tool_calls %}<|tool_call|>{{ m.tool_calls | map(
attribute='function') | list | tojson }}{% endif %}<|end_of_text|>
{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}""",

    "kimi": """{% macro calls(m) %}<|tool_calls_section_begin|>{% for tc in m['tool_calls'] %}<|tool_call_begin|>
{{- tc['id'] }}<|tool_call_argument_begin|>{% if tc['function']['arguments'] is string %}
{{- tc['function']['arguments'] }}{% else %}{{ tc['function']['arguments'] | tojson }}{% endif %}<|tool_call_end|>
{%- endfor %}<|tool_calls_section_end|>{% endmacro %}{%- if tools -%}<|im_system|>tool_declare<|im_middle|>
{{- tools | tojson(separators=(',', ':')) }}<|im_end|>{%- endif -%}{% for m in messages %}<|im_{{ m.role }}|>
{{- m.get('name', m.role) }}<|im_middle|>{% if m.role == 'tool' %}## Return of {{ m.tool_call_id }}
{{ m.content }}{% elif m.content %}{{ m.content }}{% endif %}{% if m.get('tool_calls') %}{{ calls(m) }}{% endif %}
{{- '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}""",

    "seed": """{% macro type_of(t) %}{{ {'string': 'str', 'integer': 'int'}.get(t, t) }}{% endmacro %}
{%- set names = tools | default([], true) | map(attribute='function.name') | list %}{% if names %}<seed:bos>system
{% for item in tools if item.type == 'function' %}Function:
def {{ item.function.name }}({% for name, spec in item.function.parameters.properties.items() %}{{ name }}: {{
 type_of(spec.type) }}{{ ', ' if not loop.last }}{% endfor %}):
    \"\"\"{{ item.function.description | default('') }}\"\"\"
{% endfor %}<seed:eos>{% endif %}{% for m in messages %}<seed:bos>{{ m.role }}
{{ m.content | default('', true) | trim }}{% for tc in m.tool_calls or [] %}<seed:tool_call>
<function={{ tc.function.name }}>
{% for k, v in tc.function.arguments | items %}<parameter={{ k }}>{{ v }}</parameter>
{% endfor %}</function>
</seed:tool_call>{% endfor %}<seed:eos>{% endfor %}{% if add_generation_prompt %}<seed:bos>assistant
{% endif %}""",

    "gpt-oss": """{% macro namespace_of(name, tools) %}namespace {{ name }} {
{% for tool in tools %}{% set tool = tool.function %}// {{ tool.description }}
type {{ tool.name }} = (_: {% for name, spec in tool.parameters.properties.items() %}
{{ name }}{{ '?' if name not in (tool.parameters.required or []) }}: {{ spec.enum | map('tojson') | join(' | ') if
 spec.enum else spec.type }},
{%- endfor %}) => any;
{% endfor %}}{% endmacro %}{% if messages[0].role in ['developer', 'system'] %}{% set instructions = messages[0].content
 %}{% set turns = messages[1:] %}{% else %}{% set instructions = '' %}{% set turns = messages %}{% endif %}
<|start|>developer<|message|>{{ instructions }}{% if tools %}
{{ namespace_of('functions', tools) }}{% endif %}<|end|>{% set last = namespace(name=none) %}{% for m in turns %}
{% if m.role == 'tool' %}<|start|>functions.{{ last.name }} to=assistant<|message|>{{ m.content | tojson }}<|end|>
{%- elif 'tool_calls' in m %}{% set call = m.tool_calls[0].function %}{% set last.name = call.name %}
<|start|>assistant to=functions.{{ call.name }}<|message|>{{ call.arguments | tojson }}<|call|>
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}""",

    "llama": """{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}<|begin|>{% if tools is not none %}Tools:
{% for t in tools %}{{- t | tojson(indent=4) }}
{% endfor %}{% endif %}{% for m in messages %}{% if m.role == 'tool' or m.role == 'ipython' %}<|ipython|>{{ m.content
 }}{% elif 'tool_calls' in m %}{% if not m.tool_calls | length == 1 %}{{ raise_exception('one call') }}{% endif %}
{{- '{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}{{- m.tool_calls[0].function.arguments |
 tojson }}}<|eot|>{% else %}<|{{ m.role }}|>{{ m.content }}<|eot|>{% endif %}{% endfor %}""",

    "deepseek": """{% if tools %}<tools>{% for tool in tools %}{{ '\\n' + tool['function']['name'] + ': ' +
 (tool['function']['parameters'] | tojson) }}{% endfor %}</tools>{% endif %}{% for m in messages %}
{%- if m['role'] == 'assistant' and m['tool_calls'] is defined %}{% for tool in m['tool_calls'] %}<tool>{{
 tool['type'] + '<sep>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments'] + '\\n```' }}
{%- endfor %}{% else %}<{{ m.role }}>{{ m['content'] }}{% endif %}{% endfor %}""",

    "printed": """{% if tools %}{{ tools | map(attribute='function') | map('tojson') | join('; ') }}{% endif %}
{%- for m in messages %}<{{ m.role }}>{{ m.content }}{% for call in m.tool_calls or [] %}{{ call.function.name }}({{
 call.function.arguments }}){{ ' ' ~ call.function.arguments ~ ' ' }}{% endfor %}{% endfor %}""",
}
WANT_TEXT = ("deepseek", "printed")
"""Those that write arguments as a text."""
COMMAND_R = {
    "default": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    "tool_use": """## Available Tools
{% for tool in tools %}```python
def {{ tool['function']['name'] }}: {{ tool['function']['description'] }}
```
{% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for call in m.tool_calls or [] %}Action: {{
 call.function.arguments | tojson(indent=4) }}{% endfor %}{% endfor %}""",
}
WITHOUT = {
    "no word of tools": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    "tools of a message": "{% for m in messages %}<{{ m.role }}>{{ m.tools }}{{ m.content }}{% endfor %}",
    "in a comment": "{# {{ tools }} #}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    "set anew": "{% set tools = [] %}{% for m in messages %}{{ tools }}<{{ m.role }}>{{ m.content }}{% endfor %}",
}


@pytest.fixture(scope="module")
def reference() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json")))


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate(TEMPLATES | WITHOUT, {})


def conversation(arguments: object) -> list[dict[str, Any]]:
    call = {"id": "functions.weather:0", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is the weather?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "functions.weather:0", "content": "Grey."}]


async def rendered(template: ChatTemplate, messages: list[dict[str, Any]], name: str | None) -> str:
    body = ChatBody.model_validate({"messages": messages, "tools": TOOLS, "chat_template": name})
    return (await dialogue_of(body).written(SimpleNamespace(template=template, metrics=METRICS, limits=LIMITS)))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TEMPLATES)
async def test_it_is_rendered_as_transformers_does(
    reference: PreTrainedTokenizerFast, template: ChatTemplate, name: str
) -> None:
    as_object, as_text = map(conversation, ARGUMENTS)
    wanted = reference.apply_chat_template(
        as_text if name in WANT_TEXT else as_object, tools=TOOLS, chat_template=TEMPLATES[name],
        add_generation_prompt=True, tokenize=False)
    assert "weather" in wanted
    for messages in (as_object, as_text):
        assert await rendered(template, messages, name) == wanted


@pytest.mark.parametrize("content", ["m['content']", "m.content"])
async def test_a_template_that_tells_calls_by_a_content_of_null(content: str) -> None:
    """Such as DeepSeek R1's, where transformers fails since its fifth version."""
    source = ("{% if tools %}{% endif %}{% for m in messages %}<{{ m.role }}>{% if m['role'] == 'assistant' and "
              f"{content} is none %}}{{{{ m.tool_calls[0].function.name }}}}{{% else %}}{{{{ {content} + '' }}}}"
              "{% endif %}{% endfor %}")
    prompt = await rendered(ChatTemplate({"default": source}, {}), conversation(ARGUMENTS[1]), None)
    assert prompt == "<system>Be brief.<user>How is the weather?<assistant>weather<tool>Grey."


async def test_a_template_of_its_own_for_tools(reference: PreTrainedTokenizerFast) -> None:
    messages = conversation(ARGUMENTS[0])
    wanted = reference.apply_chat_template(messages, tools=TOOLS, chat_template=COMMAND_R["tool_use"], tokenize=False)
    assert await rendered(ChatTemplate(COMMAND_R, {}), conversation(ARGUMENTS[1]), None) == wanted


@pytest.mark.parametrize("name", WITHOUT)
async def test_a_template_that_handles_no_tools_has_them_in_a_message(template: ChatTemplate, name: str) -> None:
    prompt = await rendered(template, conversation(ARGUMENTS[1]), name)
    assert tools_prompt.PROMPT in prompt
    assert '"returns": {"type": "string"}' in prompt
