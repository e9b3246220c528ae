"""The messages of a chat, as the chat template gets them."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.openai.chat_spec import dialogue_of
from penstock.router.chat.template import ChatTemplate
from penstock.router.errors import ValidationError
from penstock.router.metrics.metrics import Metrics
from tests.fakes import LIMITS

METRICS = Metrics(LIMITS)
PRINTS = "{{ messages | tojson }}{% if tools %}{% endif %}"
KNOWS = "{% for m in messages %}{% if m['role'] in ['developer', 'observation'] %}{% endif %}{% endfor %}"
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
READ_CALL = {**CALL, "function": {"name": "f", "arguments": {"a": 1}}}


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate({"default": PRINTS, "knowing": KNOWS + PRINTS}, {})


async def told(template: ChatTemplate, *messages: dict[str, Any], **fields: Any) -> Any:
    body = ChatBody.model_validate({"messages": [*messages], "add_generation_prompt": True, **fields})
    prompt, _ = await dialogue_of(body).written(SimpleNamespace(template=template, metrics=METRICS, limits=LIMITS))  # type: ignore[arg-type]
    return json.loads(prompt)


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function"])
async def test_a_content_is_a_text_or_parts(template: ChatTemplate, role: str) -> None:
    read = {"developer": "system", "function": "tool"}.get(role, role)
    parts = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]
    for content in ("ab", parts):
        assert await told(template, {"role": role, "content": content, "name": "n"}) == [
            {"role": read, "content": "ab", "name": "n"}]


async def test_a_role_that_the_template_knows_stays(template: ChatTemplate) -> None:
    messages = [{"role": role, "content": "a"} for role in ("developer", "observation")]
    assert await told(template, *messages, chat_template="knowing") == messages


@pytest.mark.parametrize("role", ["observation", "User", "", "x" * 1000])
async def test_an_unknown_role_is_refused(template: ChatTemplate, role: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        await told(template, {"role": "user", "content": "a"}, {"role": role, "content": "a"})
    assert str(refusal.value) == (
        "Input validation error: `messages[1].role` must be one of system, developer, user, assistant, tool, function, "
        f"or one that the chat template knows. Given: \"{role[:40]}\"")


@pytest.mark.parametrize(("message", "read"), [
    ({"content": None, "refusal": "No."}, {"content": "No."}),
    ({"content": "Yes.", "refusal": None}, {"content": "Yes."}),
    ({"content": [{"type": "text", "text": "Oh. "}, {"type": "refusal", "refusal": "No."}]}, {"content": "Oh. No."}),
    ({"content": None, "tool_calls": [CALL]}, {"tool_calls": [READ_CALL]}),
    ({"content": "", "tool_calls": [CALL]}, {"content": "", "tool_calls": [READ_CALL]}),
    ({"tool_calls": [{"function": {"name": "f"}}]},
     {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}),
    ({"content": None, "function_call": CALL["function"]},
     {"tool_calls": [{"type": "function", "function": READ_CALL["function"]}]}),
    ({"content": "a", "function_call": None, "tool_calls": None, "audio": None}, {"content": "a"}),
    ({"content": "a", "reasoning_content": "b"}, {"content": "a", "reasoning_content": "b", "thinking": "b"}),
])
async def test_turns_of_the_assistant(template: ChatTemplate, message: dict[str, Any], read: dict[str, Any]) -> None:
    assert await told(template, {"role": "assistant", **message}) == [{"role": "assistant", **read}]


async def test_a_result_of_a_function_may_be_nothing(template: ChatTemplate) -> None:
    assert await told(template, {"role": "function", "name": "f", "content": None}) == [
        {"role": "tool", "content": "", "name": "f"}]


@pytest.mark.parametrize(("message", "told_why"), [
    ({"content": None}, "`messages[0]` must have `content` or `tool_calls`"),
    ({"content": None, "tool_calls": []}, "`messages[0]` must have `content` or `tool_calls`"),
    ({"content": None, "audio": {"id": "a"}}, "`messages[0].audio` is not supported"),
    ({"content": [{"type": "refusal"}]}, '`messages[0].content[0]` must be of type "text"'),
    ({"tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "f", "input": "a"}}]},
     '`messages[0].tool_calls[0]` must have a `function`. Given: a call of type "custom"'),
    ({"tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]},
     "`messages[0].tool_calls[0].function.arguments` must be a JSON object"),
    ({"tool_calls": [{"function": {"name": "f", "arguments": '{"a":' * 500 + "1" + "}" * 500}}]},
     "`messages[0].tool_calls[0].function.arguments` is nested too deeply"),
    ({"tool_calls": [{"function": {"name": "f", "arguments": '{"a": [1%s]}' % (", []" * 22_000)}}] * 3},
     "`messages` must not have more than 65536 texts, names of fields, lists and objects in the arguments"),
    ({"content": "a", **{f"a{number}": 1 for number in range(129)}},
     "`messages[0]` must have at most 128 fields that are unknown. Given: 129"),
    ({"function_call": {"name": "f", "arguments": "{"}},
     "`messages[0].function_call.function.arguments` must be a JSON object"),
])
async def test_what_is_refused(template: ChatTemplate, message: dict[str, Any], told_why: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        await told(template, {"role": "assistant", **message})
    assert told_why in str(refusal.value)


@pytest.mark.parametrize(("field", "value"), [("reasoning_effort", "low"), ("documents", [{"text": "a"}])])
async def test_a_field_is_a_variable_of_templates_that_read_it(field: str, value: object) -> None:
    template = ChatTemplate({"default": f"{{{{ {field} | tojson }}}}", "other": PRINTS}, {})
    message = {"role": "user", "content": "a"}
    assert await told(template, message, **{field: value}) == value
    for nothing in (None, []) if field == "documents" else (None,):
        await told(template, message, chat_template="other", **{field: nothing})
    if field == "documents":
        with pytest.raises(ValidationError, match="`documents` is not supported by this model's chat template"):
            await told(template, message, chat_template="other", documents=value)
    else:  # a wish that agents send to every model
        assert await told(template, message, chat_template="other", **{field: value}) == await told(
            template, message, chat_template="other")


async def test_variables_of_a_template_are_few(template: ChatTemplate) -> None:
    message = {"role": "user", "content": "a"}
    variables = {f"a{number}": 1 for number in range(128)}
    assert await told(template, message, chat_template_kwargs=variables) == [message]
    with pytest.raises(ValidationError, match="`chat_template_kwargs` must have at most 128 variables"):
        await told(template, message, chat_template_kwargs={**variables, "b": 1})


async def test_a_setting_of_the_answer_is_no_variable_of_a_template() -> None:
    template = ChatTemplate({"default": "{{ messages | tojson }}", "reads": "{{ num_beams }}"}, {})
    message = {"role": "user", "content": "a"}
    assert await told(template, message, chat_template_kwargs={"num_beams": 1, "enable_thinking": False}) == [message]
    assert await told(template, message, chat_template="reads", chat_template_kwargs={"num_beams": 4}) == 4
    with pytest.raises(ValidationError, match="`num_beams`, other than 1, is not supported"):
        await told(template, message, chat_template_kwargs={"num_beams": 4})
